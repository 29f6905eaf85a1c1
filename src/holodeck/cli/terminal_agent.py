"""Loading and opening of the agent that a command runs, with the terminal wired to its questions and notices."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holodeck.cassettes.active import find_track
from holodeck.cli.default_file import resolve_file
from holodeck.cli.output.ask_user import build_people
from holodeck.cli.output.config_problems import print_problems
from holodeck.cli.output.server_notices import ServerNotices, collect_notices
from holodeck.cli.output.terminal import Screen
from holodeck.cli.output.trust_question import require_trust
from holodeck.config.actions import list_actions
from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.otel import is_configured_in
from holodeck.runtime import build_runner, read_agent

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner


def read_trusted_agent(file: str, screen: Screen, *, is_trusted: bool) -> LoadedAgent:
    """Read an agent file, or that of a folder, print its warnings, and ask whether the user trusts it.

    Raises `ConfigError`, also for a file that the user does not trust. `is_trusted`: see `require_trust`. While a
    cassette is replayed, the file starts and dials nothing, so that only its Python code needs trust.
    """
    loaded = read_agent(resolve_file(file))
    if loaded.warnings and not screen.is_quiet:
        print_problems(loaded.warnings)
    actions, track = list_actions(loaded), find_track()
    if track is not None and track.is_replay:
        actions = actions.select_code()
    require_trust(loaded.path, actions, is_trusted=is_trusted)
    return loaded


@asynccontextmanager
async def open_agent(loaded: LoadedAgent, screen: Screen) -> AsyncIterator[tuple[AgentRunner, ServerNotices]]:
    """Yield the agent, ready to run, and the notices about its servers. Leaving the block ends the servers."""
    async with open_screen(screen) as notices, build_runner(loaded, people=build_people(screen)) as agent:
        try:
            yield agent, notices
        finally:
            screen.show_waiting("ending the servers")


@asynccontextmanager
async def open_screen(screen: Screen) -> AsyncIterator[ServerNotices]:
    """Show what happens to the servers of any agents inside the block, and export traces where that is configured.

    From here on, `screen` keeps what the project's own code prints apart from the answer.
    """

    def show_notice(sentence: str, is_bad: bool) -> None:
        screen.note(sentence, **({"fg": "yellow"} if is_bad else {"dim": True}))

    screen.guard_stdout()
    with collect_notices(show_notice) as notices:
        async with _trace_if_enabled(), screen:
            yield notices


@asynccontextmanager
async def _trace_if_enabled() -> AsyncIterator[None]:
    """Export traces inside the block, if the standard OTEL_* variables configure it."""
    if not is_configured_in(os.environ):
        yield
        return
    from holodeck.telemetry import start_tracing, stop_tracing

    tracer = start_tracing(None, os.environ)
    try:
        yield
    finally:
        await stop_tracing(tracer)
