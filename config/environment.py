"""Reads deployment variables without ever raising: a bad one is remembered and becomes a system-check error.

A settings module that raises leaves an operator with a traceback and no list. Here every variable falls back to its
default and the complaint is kept in ``problems``, which ``helix.checks`` reports together with the rest.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from helix import conf

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
# Schemes of a broker's address, each with the transport whose options it takes.
BROKERS = {
    "memory": "memory",
    "redis": "redis",
    "rediss": "redis",
    "redis+socket": "redis",
    "amqp": "amqp",
    "amqps": "amqp",
}
REDIS_SCHEMES = ("redis", "rediss", "unix")
_POSTGRES = ("postgres", "postgresql")
# Requests, worker threads and the sweep share one pool per process; a fixed ceiling keeps PostgreSQL's limit far away.
_POOL = {"min_size": 1, "max_size": 32, "timeout": 30}


class Environment:
    """Typed access to one environment; ``problems`` collects what could not be read."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables
        self.helix_values, self.problems = conf.from_environment(variables)

    def helix(self, name: str) -> Any:
        """The value that ``conf.get(name)`` will give; for settings that are computed from another."""
        return self.helix_values.get(name, conf.default_of(name))

    def text(self, name: str, default: str = "") -> str:
        return self.variables.get(name, "").strip() or default

    def words(self, name: str, default: str = "") -> list[str]:
        """A comma separated list."""
        return [word.strip() for word in self.text(name, default).split(",") if word.strip()]

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name).lower()
        if text in (*_TRUE, *_FALSE):
            return text in _TRUE
        if text:
            self._complain(name, "must be true or false")
        return default

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of ``choices``; the first is the default."""
        text = self.text(name, choices[0])
        if text in choices:
            return text
        self._complain(name, f"must be one of {', '.join(choices)}")
        return choices[0]

    def url(self, name: str, default: str, schemes: tuple[str, ...]) -> str:
        """An address with one of ``schemes``. The address itself is never shown: it may hold a password."""
        text = self.text(name, default)
        if scheme_of(text) in schemes:
            return text
        self._complain(name, f"must be an address that begins with one of {', '.join(s + '://' for s in schemes)}")
        return default

    def database(self, name: str, default: Path) -> dict[str, Any]:
        """Django's settings of the database that the address in ``name`` points to.

        ``sqlite:///relative`` and ``sqlite:////absolute``; ``postgres://user:password@host:port/name``, where
        ``?host=/directory`` names the directory of a socket and any other query becomes an option of the driver.
        """
        text = self.text(name)
        try:
            parts = urlsplit(text)
            if parts.scheme in _POSTGRES and parts.path.strip("/"):
                return _postgres(parts.path, parts.username, parts.password, parts.hostname, parts.port, parts.query)
            if text.startswith("sqlite:///") and parts.path.strip("/"):
                return _sqlite(Path(parts.path[1:]))
        except ValueError:
            pass
        if text:
            self._complain(name, "must look like sqlite:///helix.sqlite3 or postgres://user:password@host:5432/name")
        return _sqlite(default)

    def _complain(self, name: str, message: str) -> None:
        self.problems.append(conf.EnvironmentProblem(name, f"{name} {message}."))


def scheme_of(address: str) -> str:
    """What an address begins with; nothing for a text whose host cannot be read."""
    try:
        return urlsplit(address).scheme
    except ValueError:
        return ""


def _sqlite(path: Path) -> dict[str, Any]:
    return {
        # Django's backend with a fair, process-wide write lock: SQLite itself starves old writers.
        "ENGINE": "helix.db.sqlite",
        "NAME": path,
        "CONN_MAX_AGE": 0,
        "ATOMIC_REQUESTS": False,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def _postgres(
    path: str, user: str | None, password: str | None, host: str | None, port: int | None, query: str
) -> dict[str, Any]:
    options = dict(parse_qsl(query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(path.strip("/")),
        "USER": unquote(user or ""),
        "PASSWORD": unquote(password or ""),
        "HOST": options.pop("host", "") or host or "",
        "PORT": str(port or options.pop("port", "")),
        "CONN_MAX_AGE": 0,
        # The pool looks at a connection before it hands it out: after a restart of the server, each of its old ones
        # would fail one request, or one turn.
        "CONN_HEALTH_CHECKS": True,
        "ATOMIC_REQUESTS": False,
        "OPTIONS": {"pool": dict(_POOL), **options},
    }


def local_secret(path: Path) -> str:
    """The secret key of this checkout, made at its first use and readable by its owner only.

    Where the file can be neither read nor made, a key for this process alone: logins then end with the process.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            # A temporary file is readable by its owner only, and a hard link never replaces: of several first starts
            # one key wins, and all read it.
            with NamedTemporaryFile("w", dir=path.parent) as draft:
                draft.write(secrets.token_urlsafe(50))
                draft.flush()
                with suppress(FileExistsError):
                    os.link(draft.name, path)
        return path.read_text().strip()
    except OSError:
        return secrets.token_urlsafe(50)
