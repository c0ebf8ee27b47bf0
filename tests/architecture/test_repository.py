"""What must not be found in the repository, and what must agree across its files."""

from __future__ import annotations

import ast
import re

import pytest
from django.conf import settings
from django.core.management import call_command

from helix import conf
from helix.serving.processes import read_procfile
from tests.architecture.sources import PACKAGES, ROOT, imports_of, modules, tracked_files

TEXT = (".py", ".md", ".js", ".css", ".html", ".toml", ".txt", ".sh", ".yml", ".example", "")
# Spelled in pieces, so that this file does not find itself.
FOREIGN_PATHS = ("/" + "work/", "." + "library")
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b")
# Broker features that lose, hide, repeat or end work (liveness section 12).
BROKER_CLOCKS = {"eta", "countdown", "expires", "time_limit", "soft_time_limit", "acks_late"}
SENDING = {"apply_async", "send_task", "signature", "shared_task", "task"}


def texts() -> dict[str, str]:
    return {
        str(path.relative_to(ROOT)): path.read_text(errors="replace") for path in tracked_files() if path.suffix in TEXT
    }


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    """Every call with the last part of the called name."""
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""), node)
        for node in named
    ]


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert [(name, path) for name, text in texts().items() for path in FOREIGN_PATHS if path in text] == []


def test_nothing_is_left_to_be_finished() -> None:
    assert [(name, found[0]) for name, text in texts().items() if (found := UNFINISHED.search(text))] == []


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_no_message_carries_a_clock_and_none_ends_what_a_worker_runs() -> None:
    """Due times are columns and a stop is a row; a broker that forgets must cost time only (F-1)."""
    wrong = [
        f"{module.name}:{call.lineno} {name}"
        for module in modules(*PACKAGES)
        for name, call in calls(module.tree)
        if name == "revoke"
        or (name in SENDING and BROKER_CLOCKS & {keyword.arg for keyword in call.keywords if keyword.arg})
    ]
    assert wrong == []


def test_nobody_waits_for_a_celery_result() -> None:
    wrong = [
        f"{module.name}:{line} imports {name}"
        for module in modules(*PACKAGES)
        for name, line in imports_of(module)
        if name.startswith("celery.result")
    ]
    assert wrong == []


def test_no_test_sleeps() -> None:
    """Time is an argument, and a test that waits holds a gate. ``sleep(0)`` only lets another coroutine go first."""
    wrong = [
        f"{module.name}:{call.lineno}"
        for module in modules("tests")
        for name, call in calls(module.tree)
        if name == "sleep" and [ast.unparse(argument) for argument in call.args] != ["0"]
    ]
    assert wrong == []


def settings_read() -> set[str]:
    """Every name that is given to the reader of settings; a part that is put together counts as any text."""
    patterns = [
        re.escape(str(argument.value))
        if isinstance(argument, ast.Constant)
        else "".join(
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+" for part in argument.values
        )
        for module in modules("helix", "approvals", "config", "demo")
        for _, call in calls(module.tree)
        if ast.unparse(call.func) in ("conf.get", "_env.helix")
        for argument in call.args
        if isinstance(argument, ast.Constant | ast.JoinedStr)
    ]
    named = {each.name for each in conf.SETTINGS}
    return {name for pattern in patterns for name in named if re.fullmatch(pattern, name)} | {
        pattern for pattern in patterns if not any(re.fullmatch(pattern, name) for name in named)
    }


def test_every_setting_that_is_read_is_in_the_table() -> None:
    assert settings_read() - {each.name for each in conf.SETTINGS} == set()


def test_every_setting_in_the_table_is_read() -> None:
    """A setting that nobody reads promises what nobody does."""
    assert {each.name for each in conf.SETTINGS} - settings_read() == set()


def test_the_example_environment_names_every_variable() -> None:
    example = set(re.findall(r"^#? ?([A-Z][A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    tree = ast.parse((ROOT / "config" / "settings.py").read_text())
    readers = {"text", "words", "flag", "choice", "url", "database"}
    read = {
        call.args[0].value
        for name, call in calls(tree)
        if name in readers and call.args and isinstance(call.args[0], ast.Constant)
    }
    wanted = {each.name for each in conf.SETTINGS} | read | {"HELIX_STATE_DIR"}
    assert example == wanted


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-full.txt", "requirements-dev.txt"])
def test_every_requirement_is_pinned(name: str) -> None:
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    loose = [line for line in lines if line and not re.fullmatch(r"-r requirements[\w-]*\.txt|[\w.-]+==[\w.+]+", line)]
    assert loose == []


def test_the_processes_consume_every_queue_that_tasks_are_routed_to() -> None:
    commands = " ".join(line.command for line in read_procfile(ROOT / "Procfile"))
    consumed = set(re.findall(r"--queues (\S+)", commands))
    routed = {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()}
    assert consumed == {settings.CELERY_TASK_DEFAULT_QUEUE} | routed
