"""The server of `holodeck mcp dev`: started, listed, called, and started again.

`DevServer.run` is the task that owns the server. Each start has a plugin of its own, so that the limits on restarts of
a plugin do not count here. `request_restart` ends the process that runs, or the start in progress, and starts anew.
A server that does not start or ends is reported, and waits for the next request: there is no restart without one, so
that a program that cannot run is not started in a loop. A process that ends during a call is started again by the call.
`run` closes the process when it is cancelled. What happens is passed to `show` as events.

`holodeck mcp dev` also shows the log of the MCP client and of the server as notices. An author needs more of it than a
user: each line of standard output that is no message, each tool that models are not offered, and the messages that the
server sends to its client's log.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holodeck.cli.dev.events import (
    CallCancelled,
    CallFinished,
    CallProgress,
    CallStarted,
    Connected,
    DevEvent,
    Notice,
    OthersListed,
    ServerFailed,
    Starting,
    StderrLine,
    ToolsListed,
    find_tool_changes,
    reason_of,
)
from holodeck.config.agent_loader import LoadedTool
from holodeck.lib import log
from holodeck.lib.errors import MCPConnectionError, MCPError, MCPTimeoutError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_FAILURE_SHOWN
from holodeck.lib.tasks import TaskSet
from holodeck.runtime import open_server
from holodeck.tools.mcp.protocol.server_requests import Callbacks, Handler
from holodeck.tools.mcp.transports.duplex import UNEXPECTED_ANSWER

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding
    from holodeck.tools.mcp.plugin import MCPPlugin

# Seconds for a process to end: closing it takes 6 at most, see `lib/system/process.py`.
CLOSE_TIMEOUT = 10.0
# Lines of standard error that are compared with the last lines in an error: it has fewer.
_RECENT_STDERR_LINES = 50

WAITING = "It is started again when a file is saved, or by 'restart'."
NOT_RUNNING = "The server is not running. Save a file, or type 'restart'."
_SERVERS = f"{log.ROOT}.mcp.server."
_SHOWN_ELSEWHERE = frozenset({"mcp.lost", "mcp.failed"})
"""Events that are also events of the server or of a call."""


class DevServer:
    """One server under development. Commands wait for the start in progress; see the module for restarts."""

    def __init__(
        self,
        loaded: LoadedTool,
        argv: Sequence[str],
        show: Callable[[DevEvent], None],
        *,
        elicit: Handler | None,
        has_restarts: bool,
    ) -> None:
        """`elicit`: asks the user for the server. `has_restarts`: whether a server that failed can be started again."""
        self._loaded = loaded
        self._command = shlex.join(argv)
        self._show = show
        self._elicit = elicit
        self._has_restarts = has_restarts
        self._is_calling = False
        self._tasks = TaskSet()
        self._restart_wanted = asyncio.Event()
        self._restart_reason = ""
        self._settled = asyncio.Event()
        """Set while no start is in progress."""
        self._process: _ServerProcess | None = None
        """The process that can be called."""
        self._tools: tuple[MCPToolInfo, ...] | None = None
        self._findings: tuple[Finding, ...] = ()
        self._others = OthersListed(resources=(), prompts=())

    @property
    def tools(self) -> tuple[MCPToolInfo, ...]:
        """The tools of the latest list, also while the server is not running."""
        return self._tools or ()

    def request_restart(self, reason: str) -> None:
        """Start the server, or end it and start it again. Does not wait. `reason`: empty for the first start."""
        self._restart_reason = reason
        self._settled.clear()
        self._restart_wanted.set()

    async def wait_settled(self) -> bool:
        """Wait for the end of the start in progress. Returns whether the server is running."""
        await self._settled.wait()
        return self._process is not None

    async def run(self) -> None:
        """Start the server at each request until cancelled, then close it."""
        try:
            while True:
                await self._restart_wanted.wait()
                self._restart_wanted.clear()
                self._show(Starting(command=self._command, reason=self._restart_reason))
                process = _ServerProcess(self._loaded, self._show, self._elicit, self._on_tools_changed)
                try:
                    await self._serve_until_restart(process)
                finally:
                    await self._close_process(process)
        finally:
            await self._tasks.close(CLOSE_TIMEOUT)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Call a tool, and report the call. Returns whether it succeeded. A cancelled call is reported and raises."""
        if not await self.wait_settled() or self._process is None:
            self._show(Notice(text=NOT_RUNNING, is_warning=True))
            return False
        process, began = self._process, time.monotonic()
        self._show(CallStarted(tool=name, arguments=arguments))

        def show_progress(done: float | None, total: float | None, message: str | None) -> None:
            self._show(CallProgress(tool=name, done=done, total=total, message=message or ""))

        self._is_calling = True
        try:
            result = await process.plugin.call(name, arguments, on_progress=show_progress)
            seconds = time.monotonic() - began
            if _is_connection_loss(result.error):
                # The end of the process is reported before the end of the call.
                await process.ended.wait()
        except asyncio.CancelledError:
            self._show(CallCancelled(tool=name, seconds=time.monotonic() - began))
            raise
        finally:
            self._is_calling = False
        is_lost = process.has_failed and _is_connection_loss(result.error)
        self._show(CallFinished(tool=name, result=result, seconds=seconds, is_server_lost=is_lost))
        # A restart may have been requested meanwhile, because a file was saved.
        if is_lost and self._settled.is_set():
            self.request_restart("it ended during a call")
        return result.success

    def show_tools(self) -> None:
        """Report the latest list of tools in full."""
        self._show(ToolsListed(tools=self.tools, changes=None, findings=self._findings, new_findings=self._findings))

    async def _serve_until_restart(self, process: _ServerProcess) -> None:
        """Return when the process has ended, or when a restart is requested, also in the middle of the start."""
        serving = self._tasks.start(self._serve(process), name="dev server")
        next_restart = self._tasks.start(self._restart_wanted.wait())
        try:
            await asyncio.wait({serving, next_restart}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving, next_restart):
                task.cancel()
        await asyncio.wait({serving, next_restart})
        if not serving.cancelled():
            serving.result()

    async def _serve(self, process: _ServerProcess) -> None:
        """Start the process and wait for its end, which is reported."""
        error = await self._start(process) or await process.lost
        process.has_failed = True
        self._process = None
        self._show(process.build_failure(error))
        # The call starts it again.
        if self._has_restarts and not self._is_calling:
            self._show(Notice(text=WAITING))

    async def _close_process(self, process: _ServerProcess) -> None:
        self._process = None
        try:
            await process.plugin.close()
        finally:
            process.ended.set()
            if not self._restart_wanted.is_set():
                self._settled.set()

    async def _start(self, process: _ServerProcess) -> MCPError | None:
        """Connect and list the tools, and report both. Returns the error if one of both failed."""
        began = time.monotonic()
        plugin, error = process.plugin, None
        try:
            tools = tuple(await plugin.list_tools())
            others = await _list_others(plugin)
        except MCPError as failure:
            error = failure
        if plugin.era is not None:
            info = plugin.server_info
            self._show(
                Connected(
                    server=" ".join(str(info[key]) for key in ("name", "version") if info.get(key)),
                    protocol=plugin.protocol_version or "",
                    era=str(plugin.era),
                    seconds=time.monotonic() - began,
                )
            )
        if error is not None:
            return error
        self._show_list(tools)
        if others != self._others:
            self._others = others
            self._show(others)
        self._process = process
        self._settled.set()
        return None

    def _on_tools_changed(self) -> None:
        self._tasks.start(self._list_again())

    async def _list_again(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            self._show_list(tuple(await process.plugin.list_tools()))
        # The end of the process is reported elsewhere.
        except MCPError:
            return

    def _show_list(self, tools: tuple[MCPToolInfo, ...]) -> None:
        findings = find_findings(self._loaded.tool.name, tools)
        new_findings = tuple(finding for finding in findings if finding not in self._findings)
        changes = None if self._tools is None else find_tool_changes(self._tools, tools)
        self._tools, self._findings = tools, findings
        self._show(ToolsListed(tools=tools, changes=changes, findings=findings, new_findings=new_findings))


class _ServerProcess:
    """One start of the server: its plugin, and how it ended."""

    def __init__(
        self,
        loaded: LoadedTool,
        show: Callable[[DevEvent], None],
        elicit: Handler | None,
        on_tools_changed: Callable[[], None],
    ) -> None:
        self.lost: asyncio.Future[MCPError] = asyncio.get_running_loop().create_future()
        """Done when the connection was lost, or not made."""
        self.ended = asyncio.Event()
        """Set when the process is closed."""
        self.has_failed = False
        """Whether it ended without a request to end."""
        self._show = show
        self._recent_stderr: deque[str] = deque(maxlen=_RECENT_STDERR_LINES)
        callbacks = Callbacks(
            elicitation=elicit,
            on_message=self._on_message,
            on_tools_changed=on_tools_changed,
            on_stderr=self._on_stderr,
        )
        self.plugin: MCPPlugin = open_server(loaded, callbacks=callbacks, is_locked=False)

    def build_failure(self, error: MCPError) -> ServerFailed:
        """Return the event for the end of this process."""
        stderr = str(error.details.get("stderr") or "")
        exit_code = error.details.get("exit_code")
        return ServerFailed(
            phase=error.phase,
            reason=reason_of(error).removesuffix(f" Its last words:\n{stderr}"),
            exit_code=exit_code if isinstance(exit_code, int) else None,
            stderr=stderr,
            has_shown_stderr=all(line in self._recent_stderr for line in stderr.splitlines()),
        )

    def _on_message(self, message: Mapping[str, Any] | Exception) -> None:
        if isinstance(message, MCPError) and not self.lost.done():
            self.lost.set_result(message)

    def _on_stderr(self, line: str) -> None:
        self._recent_stderr.append(line)
        self._show(StderrLine(line=line))


async def _list_others(plugin: MCPPlugin) -> OthersListed:
    resources, templates = await plugin.list_resources(), await plugin.list_resource_templates()
    return OthersListed(
        resources=(*(each.uri for each in resources), *(each.uri_template for each in templates)),
        prompts=tuple(prompt.name for prompt in await plugin.list_prompts()),
    )


def find_findings(server: str, tools: Sequence[MCPToolInfo]) -> tuple[Finding, ...]:
    """Return what `holodeck mcp lint` finds in the tools of one server, errors first."""
    from holodeck.tools.mcp.lint.servers import check_names
    from holodeck.tools.mcp.lint.texts import check_tool

    found = [finding for tool in tools for finding in check_tool(server, tool)]
    found += check_names({server: tools}, [server])
    return tuple(sorted(found, key=lambda finding: finding.severity))


def _is_connection_loss(error: MCPError | None) -> bool:
    return isinstance(error, MCPConnectionError) and not isinstance(error, MCPTimeoutError)


@contextmanager
def listen_to_log(show: Callable[[DevEvent], None]) -> Iterator[None]:
    """Pass notices to `show` inside the block, and nothing to other handlers of the process."""
    root = logging.getLogger(log.ROOT)
    before = root.level, root.propagate
    handler = _LogListener(show)
    root.addHandler(handler)
    # A line that is no message is a matter of debugging everywhere else.
    root.setLevel(logging.DEBUG)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.level, root.propagate = before


class _LogListener(logging.Handler):
    """Turns log records into notices. Those that an author cannot act on are left out."""

    def __init__(self, show: Callable[[DevEvent], None]) -> None:
        super().__init__(logging.DEBUG)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        is_warning = record.levelno >= logging.WARNING
        if record.name.startswith(_SERVERS):
            level = record.levelname.lower()
            self._show(Notice(text=f"log {level} | {_shorten(record.getMessage())}", is_warning=is_warning))
            return
        line = log.line_of(record)
        event, fields = line.event, line.fields
        text = _describe(event, fields)
        if text is None and is_warning and event not in _SHOWN_ELSEWHERE:
            text = _shorten(record.getMessage())
        if text is not None:
            self._show(Notice(text=text, is_warning=True))


def _describe(event: str, fields: Mapping[str, Any]) -> str | None:
    match event:
        # A late answer is no mistake, and one that belongs to no request has an event of its own.
        case "mcp.discarded" if fields.get("problem") == UNEXPECTED_ANSWER:
            return None
        case "mcp.discarded":
            raw, problem = _shorten(fields.get("raw")), _shorten(fields.get("problem"))
            return f"A line of its standard output is no message ({problem}): {raw}"
        case "mcp.dropped":
            return f"'{_shorten(fields.get('name'))}' is left out: {_shorten(fields.get('reason'))}"
        case "mcp.variables_withheld":
            return str(fields.get("notice"))
        case "mcp.close_failed":
            return _shorten(fields.get("error"))
        case _:
            return None


def _shorten(value: object) -> str:
    return one_line(str(value), MAX_FAILURE_SHOWN)
