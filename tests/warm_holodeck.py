"""Start the `holodeck` command as a fork of a process that has imported all of it.

Importing takes most of the CPU of a short command (0.4 s, and 1 s with the durable engine). `WarmHolodeck` is a process
of its own, one for each worker, that imports the package and builds its models once, and forks for each command. A fork
is a process like any other: it has its own arguments, folder, environment and standard streams, runs
`holodeck.cli.entry.main`, finalises its interpreter, and can be signalled by its id. It differs in that its modules are
imported already and that it is not a child of the test, from which it would take over limits, mask and ignored signals.
What is about those, about imports, about the interpreter's own variables or about the program file starts
`python -m holodeck` instead.

The process listens on a socket. A connection carries one command: its description and its three streams go in, its
process id and later its exit status come out. It ends when the worker closes its standard input, or ends.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from no_network import refuse_network

_LARGEST = 1 << 20
"""Bytes of a description: arguments and an environment, for which the kernel takes about as much."""
_NUMBER = struct.Struct("i")
_INTERPRETER = ("PYTHON", "LC_", "LANG", "MALLOC", "LD_")
"""How variables begin that only a process that starts anew reads."""


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a fork with these variables does what a new process would do."""
    return not any(name.startswith(_INTERPRETER) for name in environ)


class Forked:
    """A command that runs, or a Python file that runs it. Its streams are the caller's to close.

    With `has_terminal`, the standard input is a terminal, whose keys signal the command.
    """

    def __init__(
        self,
        args: Sequence[str],
        streams: Sequence[int],
        *,
        cwd: Path,
        environ: Mapping[str, str],
        program: str = "",
        is_offline: bool = False,
        has_terminal: bool = False,
    ) -> None:
        about = {
            **{"args": args, "cwd": str(cwd), "environ": dict(environ)},
            **{"program": program, "is_offline": is_offline, "has_terminal": has_terminal},
        }
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(warm_address())
        socket.send_fds(self._socket, [json.dumps(about).encode()], list(streams))
        self.pid = self._receive()

    def wait(self, seconds: float) -> int:
        """The exit code, as `subprocess` gives it. Kills the command and raises `TimeoutError` when time is over."""
        self._socket.settimeout(seconds)
        try:
            return self._receive()
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            self._socket.close()

    def fileno(self) -> int:
        """Becomes readable when the command has ended."""
        return self._socket.fileno()

    def _receive(self) -> int:
        data = self._socket.recv(_NUMBER.size)
        assert data, "the process that forks has ended"
        (number,) = _NUMBER.unpack(data)
        return int(number)


@cache
def warm_address() -> bytes:
    """The socket of this worker's process, which is started when it is first needed."""
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("")
        listener.listen(socket.SOMAXCONN)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            # A module that reads the home when it is imported would otherwise read the user's.
            env={**inherited, "HOME": "/nonexistent"},
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
        atexit.register(process.communicate)
        address: bytes = listener.getsockname()
        return address


def _import_all() -> None:
    # The gateway imports it in the function that uses it.
    import uvloop  # noqa: F401

    import holodeck

    for module in pkgutil.walk_packages(holodeck.__path__, "holodeck."):
        if not module.name.startswith("holodeck.testing") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _build_models() -> None:
    """Build what pydantic defers until a model is first used: most of the CPU of a command that reads a file."""
    from pydantic import BaseModel

    models = [BaseModel]
    while models:
        subclasses = models.pop().__subclasses__()
        models += subclasses
        for model in subclasses:
            if not model.__pydantic_complete__ and model.__module__.startswith("holodeck."):
                model.model_rebuild()


def _accept(listener: socket.socket, end: int) -> dict[str, Any] | None:
    """Fork for each connection. Returns in a fork with what it is to do, and with None when the worker has ended."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([listener.fileno(), end, *running], [], [])
        if end in ready:
            return None
        for handle in running.keys() & ready:
            pid, connection = running.pop(handle)
            os.close(handle)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            _send(connection, code)
            connection.close()
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            data, streams, _, _ = socket.recv_fds(connection, _LARGEST, 3)
            if (pid := os.fork()) == 0:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                os.closerange(3, max([end, connection.fileno(), *streams, *running]) + 1)
                about: dict[str, Any] = json.loads(data)
                return about
            for stream in streams:
                os.close(stream)
            _send(connection, pid)
            running[os.pidfd_open(pid)] = pid, connection


def _send(connection: socket.socket, number: int) -> None:
    try:
        connection.send(_NUMBER.pack(number))
    except BrokenPipeError:
        return  # the test no longer waits for it


def _main(listener: socket.socket) -> None:
    # Standard input becomes that of the command, and nothing may have been read from it by then.
    end = os.dup(0)
    _import_all()
    _build_models()
    gc.freeze()
    try:
        about = _accept(listener, end)
    except KeyboardInterrupt:  # Ctrl-C at the terminal of the tests
        return
    if about is None:
        return
    listener.detach()
    if about["has_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(about["cwd"])
    os.environ.clear()
    os.environ.update(about["environ"])
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.path[0] = about["cwd"]
    sys.argv = ["holodeck", *about["args"]]
    if about["is_offline"]:
        refuse_network()
    from holodeck.cli.entry import main

    try:
        runpy.run_path(about["program"], run_name="__main__") if about["program"] else main()
    except SystemExit as ended:
        _leave(ended)


def _leave(ended: SystemExit) -> NoReturn:
    """End as the interpreter does, without taking apart what was imported: that takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    # Unclosed resources and coroutines that were never awaited warn now.
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
