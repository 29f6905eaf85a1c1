"""A real terminal that a test types into and reads, with the `holodeck` command at the other end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from asyncio.subprocess import Process
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from forked_process import ForkedCommand
from holodeck_command import INHERITED
from no_network import without_network
from patience import patience
from warm_holodeck import Forked, can_fork

TIMEOUT = 45.0  # seconds: a process has to start
CTRL_C = "\x03"
CTRL_D = "\x04"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>])")


class TypingTerminal:
    """`async with TypingTerminal("chat", cwd=folder) as terminal: await terminal.sees("> ")`."""

    def __init__(
        self, *args: str | Path, cwd: Path, env: Mapping[str, str] | None = None, stdout: int | None = None
    ) -> None:
        self._args = [str(arg) for arg in args]
        self._cwd = cwd
        self._env = env or {}
        self._stdout = stdout
        self._read = b""
        self._position = 0
        self._changed = asyncio.Event()

    @property
    def raw(self) -> str:
        """Everything that was written to the terminal so far, escape sequences included."""
        return self._read.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """The same without the escape sequences."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    async def wait_for(self, text: str, *, within: float = TIMEOUT) -> str:
        """Wait until the text appears after the one that was waited for last, and return what was in between."""
        try:
            async with asyncio.timeout(patience(within)):
                while (found := self.text.find(text, self._position)) < 0:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} did not appear in {self.text[self._position :]!r}") from None
        between = self.text[self._position : found]
        self._position = found + len(text)
        return between

    def type_text(self, text: str | bytes) -> None:
        """Press keys; a line ends with a carriage return."""
        os.write(self._master, text if isinstance(text, bytes) else text.encode())

    @property
    def has_echo(self) -> bool:
        """Whether the terminal shows what is typed by itself, as a shell finds it after a command."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def resize(self, *, columns: int) -> None:
        """Change the width of the terminal, as a person does with its window."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    async def wait_exit(self, *, within: float = TIMEOUT) -> int:
        """Wait for the end of the command and return its exit code."""
        async with asyncio.timeout(patience(within)):
            return await self.process.wait()

    async def __aenter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        terminal = {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "HOME": str(self._cwd.parent)}
        streams = [slave, slave if self._stdout is None else self._stdout, slave]
        self.process = await self._start({**inherited, **terminal, **self._env}, streams)
        os.close(slave)
        asyncio.get_running_loop().add_reader(self._master, self._read_output)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        os.close(self._master)

    async def _start(self, environ: Mapping[str, str], streams: list[int]) -> Process | ForkedCommand:
        is_offline = self._args[:1] == ["validate"]
        if can_fork(self._env):
            start = partial(Forked, cwd=self._cwd, environ=environ, is_offline=is_offline, has_terminal=True)
            return ForkedCommand(await asyncio.to_thread(start, self._args, streams))
        command = [sys.executable, "-m", "holodeck", *self._args]
        stdin, stdout, stderr = streams
        return await asyncio.create_subprocess_exec(
            *(without_network(*command) if is_offline else command),
            cwd=self._cwd,
            env=environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def _read_output(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self._read += data
        self._changed.set()
