"""One function stores what people and clients answer, and no door has a way around it (R-168, R-323)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.sources import PACKAGES, Module, imports_of, modules

SUBMIT = "helix.services.submit"
# Who hands answers to the submit: the operations behind HTTP, socket and inbox; the chat; the operators' repairs.
HANDING_ON = {"helix.operations.writes", "helix.dialects.aisdk.answering", "helix.admin.repairs"}
# Who closes a call without anybody's words: a lapse, a message that goes on without it, a peer that closed its own.
WITHOUT_WORDS = {"helix.rows.calls", "helix.rows.abandon", "helix.rows.mirrors"}
WORDS = {"answer_json", "answer_error", "edited_arguments_json"}
ANSWER_COLUMNS = {*WORDS, "answer_kind", "answered_at"}
# A rewind restores what its checkpoint remembers; a mirror that its peer reopens forgets its answer (P-17).
WRITES_COLUMNS = {SUBMIT, "helix.rows.calls", "helix.rows.mirrors", "helix.services.rewind"}
DOORS = ("helix.api", "helix.streaming", "helix.dialects", "helix.admin", "helix.management", "approvals")
# What a door may know of the rows' own layer: a word for a hidden value, and when sweeps last ran.
SHOWN_BY_DOORS = {"helix.rows.calls": {"PLACEHOLDER"}, "helix.rows": {"sweeps"}, "helix.rows.sweeps": set[str]()}


def calls_of(module: Module, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            called = node.func
            if name == (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)):
                yield node


def names_in(module: Module) -> Iterator[str]:
    """Every name that a module uses, imports or reaches by an attribute."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]


def columns_written(module: Module) -> set[str]:
    """Answer columns that a module assigns, or names in a call that writes rows."""
    written: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            written |= {target.attr for target in targets if isinstance(target, ast.Attribute)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("update", "create", "bulk_update", "get_or_create", "update_or_create"):
                written |= {keyword.arg for keyword in node.keywords if keyword.arg}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("store_answer", "move_call"):
            written |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return written & ANSWER_COLUMNS


def is_door(module: Module) -> bool:
    return any(module.name == door or module.name.startswith(f"{door}.") for door in DOORS)


def test_only_the_submit_stores_what_somebody_answered() -> None:
    """R-168: whoever else stores an answer stores that there was none."""
    storing = {module.name for module in modules(*PACKAGES) if any(calls_of(module, "store_answer"))}
    assert storing == {SUBMIT, *WITHOUT_WORDS}
    told = {
        module.name
        for module in modules(*PACKAGES)
        for call in calls_of(module, "store_answer")
        if {keyword.arg for keyword in call.keywords} & WORDS
    }
    assert told == {SUBMIT}


def test_the_columns_of_an_answer_are_written_below_the_submit_alone() -> None:
    writing = {module.name for module in modules(*PACKAGES) if columns_written(module)}
    assert writing == WRITES_COLUMNS


def test_three_modules_hand_answers_to_the_submit() -> None:
    """R-323: behind them stands every door; a fourth way in has to be argued for here."""
    naming = {module.name for module in modules(*PACKAGES) if "submit_answer" in names_in(module)} - {SUBMIT}
    assert naming == HANDING_ON


def test_no_door_imports_what_writes_rows() -> None:
    """A door knows operations and services; of the rows' layer only what it shows."""
    doors = [module for module in modules("helix", "approvals") if is_door(module)]
    assert len(doors) > 20
    wrong = []
    for module in doors:
        for name, line in imports_of(module):
            if name.split(".")[:2] == ["helix", "rows"] and name not in SHOWN_BY_DOORS:
                wrong.append(f"{module.name}:{line} imports {name}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "") in SHOWN_BY_DOORS:
                taken = {alias.name for alias in node.names}
                if taken - SHOWN_BY_DOORS[node.module or ""]:
                    wrong.append(f"{module.name}:{node.lineno} takes {sorted(taken)}")
    assert wrong == []


def test_no_door_opens_a_transaction_or_a_tree_of_its_own() -> None:
    """One verb is one transaction, and it is the service's (F-3)."""
    wrong = [
        f"{module.name} uses {name}"
        for module in modules("helix", "approvals")
        if is_door(module)
        for name in names_in(module)
        if name in ("locked", "atomic", "select_for_update", "store_answer", "move_call")
    ]
    assert wrong == []


def test_the_scan_sees_what_it_forbids() -> None:
    """The control: the same questions find the submit itself."""
    (submit,) = (module for module in modules("helix") if module.name == SUBMIT)
    assert columns_written(submit) and any(calls_of(submit, "store_answer")) and "locked" in names_in(submit)
