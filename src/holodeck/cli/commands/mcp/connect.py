"""Connections to the servers of a command: opened, queried and closed, all servers concurrently.

A server that fails becomes a `ServerResult` with its error and does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holodeck.cli.interruptible import run_interruptible
from holodeck.cli.output.progress import Progress
from holodeck.cli.output.stdout_guard import OutputError
from holodeck.config.agent_loader import LoadedTool
from holodeck.lib.errors import HoloDeckError, MCPError
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.limits import MAX_TIMEOUT
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool

if TYPE_CHECKING:
    from holodeck.tools.mcp.plugin import MCPPlugin
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

T = TypeVar("T")


@record
class ServerResult(Generic[T]):
    """The answer of one server, or its error. Neither: the server is disabled."""

    name: str
    loaded: LoadedTool
    answer: T | None = None
    error: HoloDeckError | None = None
    seconds: float = 0.0
    is_enabled: bool = True


def run_with_logging(work: Coroutine[Any, Any, T], *, verbose: bool) -> T:
    """Run `work` and return its result. Ctrl-C cancels it, closes all servers, then raises `KeyboardInterrupt`."""
    _configure_logging(verbose)
    try:
        return run_interruptible(work)
    except BaseExceptionGroup as errors:
        # Results are printed in tasks: the error of standard output comes in a group, as does that of standard input.
        _, others = errors.split((BrokenPipeError, OutputError, HoloDeckError))
        if others is not None:
            raise
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


@asynccontextmanager
async def open_plugin(
    loaded: LoadedTool, callbacks: Callbacks | None = None, *, is_locked: bool = True
) -> AsyncIterator[MCPPlugin]:
    """Yield the plugin of a server, and close it at the end of the block. `is_locked`: see `open_server`."""
    from holodeck.runtime import open_server

    plugin = open_server(loaded, callbacks=callbacks, is_locked=is_locked)
    try:
        yield plugin
    finally:
        await plugin.close()


async def query_all(
    servers: Sequence[LoadedTool],
    query: Callable[[MCPPlugin], Awaitable[T]],
    *,
    on_result: Callable[[ServerResult[T]], None],
    verb: str,
    is_locked: bool = True,
) -> list[ServerResult[T]]:
    """Query all servers concurrently and return the results in their order.

    `on_result` is called for each as soon as it is known. `verb` names the activity in the progress line.
    `is_locked`: see `open_server`.
    """
    unfinished = {item.tool.name for item in servers}
    async with Progress() as progress, asyncio.TaskGroup() as group:

        def update_progress() -> None:
            progress.phase = f"{verb} {', '.join(sorted(unfinished))}"

        async def query_one(item: LoadedTool) -> ServerResult[T]:
            result = await _query_server(item, query, is_locked=is_locked)
            unfinished.discard(item.tool.name)
            update_progress()
            progress.clear()
            on_result(result)
            return result

        update_progress()
        tasks = [group.create_task(query_one(item)) for item in servers]
    return [task.result() for task in tasks]


def with_timeout(loaded: LoadedTool, seconds: float | None) -> LoadedTool:
    """Return the server with this many seconds to start and to answer each request."""
    if seconds is None or not isinstance(loaded.tool, MCPTool):
        return loaded
    limits = {"startup_timeout": seconds, "request_timeout": min(max(int(seconds), 1), MAX_TIMEOUT)}
    tool = loaded.tool.model_copy(update=limits)
    return replace(loaded, tool=tool)


def list_notices(plugin: MCPPlugin) -> list[str]:
    """Return a sentence for each pattern that matches no tool, and for each thing that the lock withholds."""
    withheld = (*plugin.withheld_tools, *plugin.withheld_texts)
    return [*plugin.unmatched_patterns, *(drift.notice for drift in withheld)]


def reason_text(error: HoloDeckError) -> str:
    """Return the text of an error without the name of its server, which is shown beside it."""
    text = str(error)
    prefix = f"Server '{error.server}' ({error.phase}): " if isinstance(error, MCPError) else ""
    return text.removeprefix(prefix)


async def _query_server(
    item: LoadedTool, query: Callable[[MCPPlugin], Awaitable[T]], *, is_locked: bool
) -> ServerResult[T]:
    name = item.tool.name
    if isinstance(item.tool, MCPTool) and not item.tool.enabled:
        return ServerResult(name=name, loaded=item, is_enabled=False)
    began = time.monotonic()
    try:
        async with open_plugin(item, is_locked=is_locked) as plugin:
            answer = await query(plugin)
            seconds = time.monotonic() - began
        return ServerResult(name=name, loaded=item, answer=answer, seconds=seconds)
    except HoloDeckError as error:
        return ServerResult(name=name, loaded=item, error=error, seconds=time.monotonic() - began)


class _EscapingFormatter(logging.Formatter):
    """Escapes log lines, which may contain text from servers."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_unprintable(super().format(record))


def _configure_logging(verbose: bool) -> None:
    """Send the log to standard error with `--verbose`, and nowhere without."""
    handler: logging.Handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(_EscapingFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("holodeck")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.CRITICAL)
    logger.propagate = False
