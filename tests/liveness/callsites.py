"""Find calls in syntax trees, one by one: a file with one tracked and one untracked call shows the latter (Q-56).

A site is named by its module, the function around it, what is called, and its number among equal ones there, so that an
exemption survives a moved line and goes stale when its call goes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.architecture.sources import PACKAGES, modules


@dataclass(frozen=True, order=True)
class Site:
    """``helix.pulse:ensure Thread``; a second one there is ``… Thread 2``."""

    where: str
    what: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.where} {self.what}" + (f" {self.number}" if self.number > 1 else "")


Judge = Callable[[ast.Call], str | None]


def sites_in(tree: ast.Module, module: str, judge: Judge) -> list[Site]:
    """Every call of which ``judge`` says a name."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for function, node in _calls(tree, ""):
        what = judge(node)
        if what is not None:
            where = f"{module}:{function}"
            seen[where, what] += 1
            found.append(Site(where, what, seen[where, what]))
    return found


def sites(judge: Judge, packages: Iterable[str] = PACKAGES) -> set[str]:
    """The sites of whole packages, as text."""
    return {str(site) for module in modules(*packages) for site in sites_in(module.tree, module.name, judge)}


def _calls(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        inner = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{function}.{child.name}" if function else child.name
        if isinstance(child, ast.Call):
            yield function or "module", child
        yield from _calls(child, inner)


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


# -- what the tripwires look for ---------------------------------------------------------------------------------------

STARTS = frozenset(
    {
        "delay",
        "apply_async",
        "send_task",
        "on_commit",
        "Thread",
        "Timer",
        "Process",
        "submit",
        "run_in_executor",
        "create_task",
        "ensure_future",
        "run_coroutine_threadsafe",
        "Popen",
    }
)


def starts_work(node: ast.Call) -> str | None:
    """Something goes on after the call has returned (Q-54)."""
    return called(node) if called(node) in STARTS else None


def waits_by_a_clock(node: ast.Call) -> str | None:
    """A sleep, or a wait that may end because time passed (D-4)."""
    name = called(node)
    if (name == "sleep" and not all(map(_is_nothing, node.args))) or (name == "wait_for" and len(node.args) > 1):
        return name
    bounded = any(keyword.arg == "timeout" and not _is_nothing(keyword.value) for keyword in node.keywords)
    if bounded or (name in ("wait", "join", "acquire") and isinstance(node.func, ast.Attribute) and _bounds(node)):
        return name
    return None


def _bounds(node: ast.Call) -> bool:
    """Whether the only argument may be seconds: a joined text, a token and an awaited task are something else."""
    if len(node.args) != 1 or not isinstance(node.func, ast.Attribute):
        return False
    given, owner = node.args[0], node.func.value
    if isinstance(owner, ast.Constant | ast.JoinedStr) or (isinstance(given, ast.Name) and given.id == "token"):
        return False
    return isinstance(given, ast.Name | ast.Constant) and not _is_nothing(given)


def _is_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (None, 0)
