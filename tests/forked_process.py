"""A fork of the warm `holodeck` process beside a test, with what tests use of `asyncio.subprocess.Process`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from warm_holodeck import Forked

_AT_ONCE = 60.0  # seconds, for what can be read already


class ForkedCommand:
    """A command whose standard streams are the caller's."""

    def __init__(self, forked: Forked) -> None:
        self.pid = forked.pid
        self.returncode: int | None = None
        self._forked = forked
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(forked, self._end)

    def send_signal(self, number: int) -> None:
        # It may have ended, with its end not read here yet.
        with suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._forked)
        self.returncode = self._forked.wait(_AT_ONCE)
        self._ended.set()


class ForkedProcess(ForkedCommand):
    """A command whose standard output and error are pipes, and whose standard input is empty unless one is given.

    As with asyncio, `wait` returns when the process has ended and every process has closed its pipes.
    """

    def __init__(self, forked: Forked, stdout: _Pipe, stderr: _Pipe) -> None:
        super().__init__(forked)
        self.stdout, self.stderr = stdout.reader, stderr.reader
        self._pipes = (stdout, stderr)

    async def wait_ended(self) -> int:
        """The exit code, while its pipes may still have something to read."""
        return await super().wait()

    async def wait(self) -> int:
        code = await super().wait()
        for pipe in self._pipes:
            await pipe.closed.wait()
        return code

    async def communicate(self) -> tuple[bytes, bytes]:
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err


class _Pipe(asyncio.StreamReaderProtocol):
    """The reading end of a pipe."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.closed = asyncio.Event()
        super().__init__(self.reader)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.closed.set()


async def fork(
    args: Sequence[str], *, cwd: Path, environ: Mapping[str, str], program: str = "", stdin: int | None = None
) -> ForkedProcess:
    """Start `holodeck` with these arguments, or a Python file that stands in for it.

    `stdin`: a file descriptor, which is closed here; None for an empty standard input.
    """
    loop = asyncio.get_running_loop()
    ends = [os.pipe(), os.pipe()]
    streams = [os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, *(theirs for _, theirs in ends)]
    try:
        forked = await asyncio.to_thread(Forked, args, streams, cwd=cwd, environ=environ, program=program)
    finally:
        for stream in streams:
            os.close(stream)
    stdout, stderr = [(await loop.connect_read_pipe(_Pipe, os.fdopen(ours, "rb", 0)))[1] for ours, _ in ends]
    return ForkedProcess(forked, stdout, stderr)
