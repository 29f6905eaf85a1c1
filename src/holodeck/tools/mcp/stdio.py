"""Talks to a server that is a child process, line by line; its errors tell how the process ended and what it said."""

from __future__ import annotations

import asyncio
import codecs
import os
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.limits import KIB, PROCESS_LAST_WORDS, STDERR_LINES_SHOWN
from holodeck.lib.line_splitter import Lines
from holodeck.lib.process import Process, spawn
from holodeck.lib.shortage import is_short
from holodeck.tools.mcp.channel import Delivery, Incoming
from holodeck.tools.mcp.environment import child_environment, withheld_variables
from holodeck.tools.mcp.faults import Faults
from holodeck.tools.mcp.jsonrpc import Message, RequestId, cancellation, encode, encode_ascii, sniff_id
from holodeck.tools.mcp.pipe import PipeChannel

if TYPE_CHECKING:
    from holodeck.tools.mcp.launch import Launch

_INSTALL = {
    "npx": "Install Node.js (it brings npx)",
    "uvx": "Install uv (it brings uvx)",
    "docker": "Install Docker",
}
_STDERR_SHOWN = 4 * KIB


class StdioChannel(PipeChannel):
    """A server started by us."""

    def __init__(
        self,
        launch: Launch,
        *,
        cwd: Path,
        faults: Faults,
        incoming: Incoming,
        encoding: str,
        limit: int,
        budget: ByteBudget,
    ) -> None:
        super().__init__(faults, incoming, budget)
        self._launch = launch
        self._cwd = cwd
        self._limit = limit
        self._encoding = codecs.lookup(encoding).name
        self._process: Process | None = None
        self._flow = _Flow()
        self._queued: list[bytes] = []
        self._output_ended = asyncio.Event()
        self._spawned = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._is_established = False
        self._lines = Lines(
            limit=limit,
            on_line=self.received if self._encoding == "utf-8" else self._recoded,
            on_dropped=self._dropped,
            on_end=self._output_over,
            budget=budget,
        )

    async def open(self) -> None:
        withheld = withheld_variables(os.environ, self._launch.env)
        if withheld:
            name = self._faults.server
            notice = f"{name} is started without {', '.join(withheld)}: there is a login in it. 'env' can pass it on."
            log.info("mcp.variables_withheld", server=name, notice=notice)
        try:
            self._process = await spawn(
                self._launch.argv,
                env=child_environment(os.environ, self._launch.env),
                cwd=str(self._cwd),
                stdout=self._lines,
                stdin=self._flow,
                on_exit=self._part_ended,
                container=self._launch.container,
            )
        except (OSError, ValueError) as error:
            raise self._not_started(error) from error
        finally:
            self._spawned.set()

    def established(self, version: str, *, is_modern: bool) -> None:
        self._is_established = True

    async def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self.lose(self._faults.connection("close", "the connection was closed"))
        if self._process is not None:
            await self._process.close()
            if self._process.was_killed:
                text = "it went on after the end of its input and SIGTERM, and was killed."
                raise self._faults.connection("close", text)

    def cancel(self, request_id: RequestId, reason: str) -> None:
        if not self.lost.done() and not self._flow.is_paused:
            self._write(cancellation(request_id, reason))

    def is_stuck(self, since: float) -> bool:
        return self._flow.is_paused or self._lines.is_stuck(since)

    def last_words(self) -> str:
        if self._process is None:
            return ""
        lines = self._process.stderr_tail()[-_STDERR_SHOWN:].decode("utf-8", "replace").splitlines()
        return self._faults.masked("\n".join([line for line in lines if line.strip()][-STDERR_LINES_SHOWN:]))

    async def _deliver(self, message: Message, delivery: Delivery) -> None:
        while self._flow.is_paused:
            await self._flow.resumed()
        if self.lost.done():
            raise self.lost.result()
        delivery.may_have_left = True
        self._write(message)

    def _write(self, message: Message) -> None:
        if self._process is None:
            return
        line = (encode(message) if self._encoding == "utf-8" else encode_ascii(message)) + b"\n"
        if len(self._waiting) <= 1 and not self._queued:
            self._process.stdin.write(line)
            return
        self._queued.append(line)  # calls that come together leave together: one system call for all
        if len(self._queued) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        lines, self._queued = self._queued, []
        if self._process is not None and not self.lost.done():
            self._process.stdin.write(b"".join(lines))

    def _recoded(self, raw: bytes | bytearray) -> None:
        self.received(raw.decode(self._encoding, "replace").encode("utf-8", "replace"))

    def _dropped(self, head: bytes, tail: bytes, size: int) -> None:
        request_id = sniff_id(head, tail)
        if size > self._limit:
            self.unusable(
                request_id, f"it has {size} bytes and the limit is {self._limit}; see 'max_result_bytes'", head
            )
        elif request_id is not None:
            self._fail(request_id, self._faults.over_budget("call"))
        else:
            self._discard("there was no room for it", head)

    def _part_ended(self) -> None:
        """The process or its output is over. The other, and the last words, follow a moment later, if at all."""
        if self._ending is None and not self.lost.done():
            self._ending = self._loop.create_task(self._report_end())

    def _output_over(self) -> None:
        self._output_ended.set()
        self._part_ended()

    async def _report_end(self) -> None:
        await self._spawned.wait()  # it may have ended before we were told that it had begun
        try:
            async with asyncio.timeout(PROCESS_LAST_WORDS):
                await self._output_ended.wait()
                if self._process is not None:
                    await self._process.exited.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(0)  # standard error may have ended in the same pass of the loop
        if self._process is not None:
            self.lose(self._ended(self._process))

    def _ended(self, process: Process) -> MCPConnectionError:
        code = process.exit_code
        command = self._launch.argv[0]
        who = "it" if self._is_established else f"'{command}'"
        if code is None:
            how = f"{who} closed its output"
        elif code < 0:
            how = f"{who} was ended by signal {-code}"
        else:
            how = f"{who} ended with exit code {code}"
        words = self.last_words()
        text = f"{how}." + (f" Its last words:\n{words}" if words else " It wrote nothing to standard error.")
        phase = "run" if self._is_established else "start"
        return self._faults.connection(phase, text, exit_code=code, stderr=words, command=command)

    def _not_started(self, error: Exception) -> MCPConnectionError:
        command = self._launch.argv[0]
        if is_short(error):
            return self._faults.no_room("start")
        if not self._cwd.is_dir():
            text = f"the folder '{self._cwd}' to start it in does not exist. Correct 'cwd'."
        elif isinstance(error, FileNotFoundError):
            hint = _INSTALL.get(command, f"Install '{command}'")
            text = f"'{command}' is not on PATH. {hint}, or use transport: http."
        elif isinstance(error, PermissionError):
            text = f"'{command}' may not be executed. Check its permissions."
        else:
            text = f"'{command}' could not be started: {error}."
        return self._faults.connection("start", text, command=command)


class _Flow(asyncio.BaseProtocol):
    """Whether the process still takes its input."""

    def __init__(self) -> None:
        self.is_paused = False
        self._resumed = asyncio.Event()

    def pause_writing(self) -> None:
        self.is_paused = True
        self._resumed.clear()

    def resume_writing(self) -> None:
        self.is_paused = False
        self._resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()

    async def resumed(self) -> None:
        await self._resumed.wait()
