"""``make test``: every step on a bare machine, in order, each loud about its failure.

Servers are throw-away: PostgreSQL and Valkey from wheels, in a directory of this run. Where those cannot start, the
services of this machine are used; without either, the steps that need them fail. A failing step does not hide the
ones after it, and any failure fails the whole.
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helix.serving.servers import ServerUnavailable, start_postgres, start_valkey  # noqa: E402

# Proved once, on SQLite's lane: these ask no database, or choose their own.
WITHOUT_DATABASE = ("tests/architecture", "tests/rules", "tests/loop", "tests/deployment/test_serving.py")
# Minutes of killing processes: `make chaos`, and by name.
STORM = "tests/chaos/test_chaos.py"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# The data is thrown away, so nothing has to survive a power cut.
POSTGRES_OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300")


@dataclass(frozen=True)
class Step:
    """One command; ``environment`` is added to this process's own."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def pytest(*arguments: str) -> tuple[str, ...]:
    return python("-m", "pytest", "-q", "--durations=5", *arguments)


def quick_steps() -> Iterator[Step]:
    yield Step("lint", python("-m", "ruff", "check", "."))
    yield Step("format", python("-m", "ruff", "format", "--check", "."))
    yield Step("types", python("-m", "mypy"))
    yield Step("settings", python("manage.py", "check"))
    yield Step("migrations", python("manage.py", "makemigrations", "--check", "--dry-run"))


def suite_steps(postgres: str, valkey: str) -> Iterator[Step]:
    """The suite on both databases, then the browser, which needs a pytest process without an event loop, and Node."""
    shared = {"HELIX_TEST_REDIS_URL": valkey}
    parallel = ("-n", str(min(4, os.cpu_count() or 1)), "--dist", "loadfile")
    yield Step("suite on SQLite", pytest(*parallel), {**shared, "DATABASE_URL": ""})
    ignored = [f"--ignore={path}" for path in (*WITHOUT_DATABASE, STORM)]
    yield Step("suite on PostgreSQL", pytest(*parallel, *ignored), {**shared, "DATABASE_URL": postgres})
    yield Step("browser", pytest("tests/browser"), {**shared, "DATABASE_URL": "", "HELIX_TEST_LANE": "browser"})
    # Other people's frontends, from npm, each in all its versions.
    yield Step("clients", pytest("tests/clients"), {**shared, "DATABASE_URL": "", "HELIX_TEST_LANE": "clients"})


@contextmanager
def services() -> Iterator[tuple[str, str]]:
    """The DATABASE_URL of a PostgreSQL and the address of a Redis; each empty when there is none to be had."""
    directory = Path(tempfile.mkdtemp(prefix="helix-"))
    directory.chmod(0o755)
    sockets = directory / "run"
    sockets.mkdir(mode=0o700)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        postgres = os.environ.get("DATABASE_URL", "")
        if not postgres.startswith("postgres"):
            try:
                server, postgres = start_postgres(directory / "postgres", sockets, POSTGRES_OPTIONS)
                stack.callback(server.stop)
            except ServerUnavailable as missing:
                postgres = local_postgres()
                say(f"{missing} Using this machine's PostgreSQL: {postgres or 'none answers'}.")
        try:
            server, path = start_valkey(sockets)
            stack.callback(server.stop)
            valkey = f"unix://{path}"
        except ServerUnavailable as missing:
            valkey = local_redis()
            say(f"{missing} Using this machine's Redis: {valkey or 'none answers'}.")
        yield postgres, valkey


def local_postgres() -> str:
    """The DATABASE_URL of a PostgreSQL on this machine that lets this user in, or nothing."""
    import psycopg

    for user in (getpass.getuser(), "postgres"):
        try:
            psycopg.connect(host="127.0.0.1", user=user, dbname="postgres", connect_timeout=2).close()
        except psycopg.OperationalError:
            continue
        return f"postgres://{user}@127.0.0.1:5432/postgres"
    return ""


def local_redis() -> str:
    """The address of an unused database of a Redis on this machine, or nothing."""
    import redis

    address = "redis://127.0.0.1:6379/15"
    try:
        redis.Redis.from_url(address, socket_connect_timeout=2).ping()
    except redis.RedisError:
        return ""
    return address


def provide(step: str, programs: Sequence[str], *packages: str) -> None:
    """Install Debian's packages when no program is there and this user may; otherwise the step says what it lacks."""
    if any(map(shutil.which, programs)):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say(f"No {programs[0]}: the {step} step will fail. Install it: `apt-get install {' '.join(packages)}`.")
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        subprocess.run(["apt-get", "-qq", *arguments], env=environment, stdin=subprocess.DEVNULL, check=False)


def run(step: Step) -> bool:
    """Run one step with its output passed through; whether it succeeded."""
    say(f"== {step.name}: {' '.join(step.command[1:])}")
    begun = time.monotonic()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **step.environment}
    done = subprocess.run(step.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False)
    verdict = "ok" if done.returncode == 0 else f"FAILED with status {done.returncode}"
    say(f"== {step.name}: {verdict} after {time.monotonic() - begun:.1f} s\n")
    return done.returncode == 0


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    failed = [step.name for step in quick_steps() if not run(step)]
    if arguments != ["lint"]:
        provide("browser", CHROMIUM, "chromium")
        provide("clients", ("npm",), "nodejs", "npm")
        with services() as (postgres, valkey):
            if not postgres or not valkey:
                failed.append("services")
            failed += [step.name for step in suite_steps(postgres, valkey) if not run(step)]
    say(f"FAILED: {', '.join(failed)}" if failed else "Every step passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
