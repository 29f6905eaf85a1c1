"""Servers are opened, asked and closed again, all at once; one that is down costs the others nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holodeck.cli.interrupts import run_work
from holodeck.cli.progress import Progress
from holodeck.config.loader import LoadedTool
from holodeck.lib.display import printable
from holodeck.lib.errors import HoloDeckError, MCPError
from holodeck.lib.limits import MAX_TIMEOUT
from holodeck.models.tool import MCPTool

if TYPE_CHECKING:
    from holodeck.tools.mcp.callbacks import Callbacks
    from holodeck.tools.mcp.plugin import MCPPlugin

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Visit(Generic[T]):
    """What a server said, or why it said nothing."""

    name: str
    loaded: LoadedTool
    answer: T | None = None
    error: HoloDeckError | None = None
    seconds: float = 0.0
    is_enabled: bool = True


def run(work: Coroutine[Any, Any, T], *, verbose: bool) -> T:
    """Run a command to its end. Ctrl-C cancels it, waits until every server is closed, and then is raised."""
    _listen(verbose)
    try:
        return run_work(work)
    except BaseExceptionGroup as errors:
        _, others = errors.split(BrokenPipeError)
        if others is None:  # the reader of our output has gone, while several servers were being asked
            raise BrokenPipeError from None
        raise


@asynccontextmanager
async def opened(loaded: LoadedTool, callbacks: Callbacks | None = None) -> AsyncIterator[MCPPlugin]:
    """The plugin of a server, closed at the end whatever happens."""
    from holodeck.runtime import open_server

    plugin = open_server(loaded, callbacks=callbacks)
    try:
        yield plugin
    finally:
        await plugin.close()


async def visit_all(
    servers: Sequence[LoadedTool],
    ask: Callable[[MCPPlugin], Awaitable[T]],
    *,
    on_visit: Callable[[Visit[T]], None],
    verb: str,
) -> list[Visit[T]]:
    """Ask all servers at once. `on_visit` is told of each as soon as it is known; the result is in their order."""
    waiting = {item.tool.name for item in servers}
    async with Progress() as progress, asyncio.TaskGroup() as group:

        def show() -> None:
            progress.phase = f"{verb} {', '.join(sorted(waiting))}"

        async def one(item: LoadedTool) -> Visit[T]:
            visit = await _visit(item, ask)
            waiting.discard(item.tool.name)
            show()
            progress.clear()
            on_visit(visit)
            return visit

        show()
        tasks = [group.create_task(one(item)) for item in servers]
    return [task.result() for task in tasks]


def within(loaded: LoadedTool, seconds: float | None) -> LoadedTool:
    """The server with this much time to start and to answer."""
    if seconds is None or not isinstance(loaded.tool, MCPTool):
        return loaded
    limits = {"startup_timeout": seconds, "request_timeout": min(max(int(seconds), 1), MAX_TIMEOUT)}
    tool = loaded.tool.model_copy(update=limits)
    return LoadedTool(tool=tool, written=loaded.written, file=loaded.file)


def short(error: HoloDeckError) -> str:
    """Why, without saying again which server it is about."""
    text = str(error)
    prefix = f"Server '{error.server}' ({error.phase}): " if isinstance(error, MCPError) else ""
    return text.removeprefix(prefix)


async def _visit(item: LoadedTool, ask: Callable[[MCPPlugin], Awaitable[T]]) -> Visit[T]:
    name = item.tool.name
    if isinstance(item.tool, MCPTool) and not item.tool.enabled:
        return Visit(name=name, loaded=item, is_enabled=False)
    began = time.monotonic()
    try:
        async with opened(item) as plugin:
            answer = await ask(plugin)
            seconds = time.monotonic() - began
        return Visit(name=name, loaded=item, answer=answer, seconds=seconds)
    except HoloDeckError as error:
        return Visit(name=name, loaded=item, error=error, seconds=time.monotonic() - began)


class _Harmless(logging.Formatter):
    """Log lines hold text from servers."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _listen(verbose: bool) -> None:
    """What happens behind the scenes goes to standard error for those who ask, and nowhere for the others."""
    handler: logging.Handler = logging.StreamHandler() if verbose else logging.NullHandler()
    handler.setFormatter(_Harmless("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("holodeck")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.CRITICAL)
    logger.propagate = False
