"""An agent for a command: its file read, its warnings shown, the person at the terminal wired to it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holodeck.cli.asking import people_at
from holodeck.cli.notices import Notices, noticing
from holodeck.cli.report import show_problems
from holodeck.cli.terminal import Screen
from holodeck.cli.usual_file import file_or_usual
from holodeck.config.loader import LoadedAgent
from holodeck.lib.otel import is_wanted_by
from holodeck.runtime import read_agent, wire

if TYPE_CHECKING:
    from holodeck.agent import Agent


def read(file: str, screen: Screen) -> LoadedAgent:
    """Read the file of an agent, or of the agent in a folder. Raises `ConfigError`."""
    loaded = read_agent(file_or_usual(file))
    if loaded.warnings and not screen.is_quiet:
        show_problems(loaded.warnings)
    return loaded


@asynccontextmanager
async def opened(loaded: LoadedAgent, screen: Screen) -> AsyncIterator[tuple[Agent, Notices]]:
    """The agent, ready to run; its servers are gone when the block is left."""

    def tell(sentence: str, is_bad: bool) -> None:
        screen.note(sentence, **({"fg": "yellow"} if is_bad else {"dim": True}))

    screen.keep_output()
    with noticing(tell) as notices:
        async with _traced(), screen, wire(loaded, people=people_at(screen)) as agent:
            try:
                yield agent, notices
            finally:
                screen.wait_for("ending the servers")


@asynccontextmanager
async def _traced() -> AsyncIterator[None]:
    """Traces of what the agent does, if the standard OTEL_* variables ask for them."""
    if not is_wanted_by(os.environ):
        yield
        return
    from holodeck.gateway.tracing import start_tracing, stop_tracing

    tracer = start_tracing(None, os.environ)
    try:
        yield
    finally:
        await stop_tracing(tracer)
