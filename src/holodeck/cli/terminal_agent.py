"""Loading and opening of the agent that a command runs, with the terminal wired to its questions and notices.

The user may name another model than that of the file: `find_model` knows by which words.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cassettes.active import find_track
from holodeck.cli.default_file import resolve_file
from holodeck.cli.output.ask_user import build_people
from holodeck.cli.output.config_problems import print_problems
from holodeck.cli.output.server_notices import ServerNotices, collect_notices
from holodeck.cli.output.terminal import Screen
from holodeck.cli.output.trust_question import require_trust
from holodeck.config.actions import list_actions
from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.errors import ConfigError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.otel import is_configured_in
from holodeck.models.llm import LLM
from holodeck.runtime import build_runner, read_agent
from holodeck.tools.calls import is_named
from holodeck.tools.executor import CallTarget

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner


model_option = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    help="Ask this model instead of the file's: provider:name, one of your models, or an entry of "
    "test_settings.models.",
)


def read_trusted_agent(file: str, screen: Screen, *, is_trusted: bool, model: str | None = None) -> LoadedAgent:
    """Read an agent file, or that of a folder, print its warnings, and ask whether the user trusts it.

    `model`: as typed, in place of that of the file. Raises `ConfigError`, also for a file that the user does not trust,
    and `click.UsageError` for a text that names no model. `is_trusted`: see `require_trust`. While a cassette is
    replayed, the file starts and dials nothing, so that only its Python code needs trust.
    """
    loaded = read_agent(resolve_file(file), has_model=model is not None)
    if loaded.warnings and not screen.is_quiet:
        print_problems(loaded.warnings)
    actions, track = list_actions(loaded), find_track()
    if track is not None and track.is_replay:
        actions = actions.select_code()
    require_trust(loaded.path, actions, is_trusted=is_trusted)
    return loaded if model is None else use_model(loaded, model)


def use_model(loaded: LoadedAgent, text: str) -> LoadedAgent:
    """Return the agent with the model that a text names. Raises `click.UsageError` as `find_model` does."""
    return replace(loaded, agent=loaded.agent.model_copy(update={"model": find_model(loaded, text)}))


def find_model(loaded: LoadedAgent, text: str) -> LLM:
    """Return the model that the user names: that of the file, one of the file's tests or of the user, or any other.

    Raises `click.UsageError` for a text that names none.
    """
    entries, own = loaded.agent.test_settings.models, loaded.agent.model
    if text == describe_model(own):
        return own
    named = {**loaded.models, **entries}
    if text in named:
        return named[text]
    from holodeck.agents.models import parse_model

    try:
        return parse_model(text)[0]
    except ConfigError as error:
        known = f" 'test_settings.models' of {loaded.path.name} has: {', '.join(entries)}." if entries else ""
        yours = f" Your own models: {', '.join(loaded.models)}." if loaded.models else ""
        raise click.UsageError(f"{error}{known}{yours}") from None


def describe_model(model: LLM) -> str:
    """Return `provider:name`, or the provider alone where it has no names."""
    return f"{model.provider}:{model.name}" if model.name else str(model.provider)


@asynccontextmanager
async def open_agent(
    loaded: LoadedAgent, screen: Screen, approved: Sequence[str] = ()
) -> AsyncIterator[tuple[AgentRunner, ServerNotices]]:
    """Yield the agent, ready to run, and the notices about its servers. Leaving the block ends the servers.

    `approved`: what `--approve` names; which tools these are is shown before anything runs.
    """
    people = build_people(screen, approved)
    async with open_screen(screen, loaded.path) as notices, build_runner(loaded, people=people) as agent:
        try:
            if approved:
                await _show_approved(agent, approved, screen)
            yield agent, notices
        finally:
            screen.show_waiting("ending the servers")


approve_option = click.option(
    "--approve",
    "approved",
    multiple=True,
    metavar="TOOL",
    help="Approve every call of this tool that needs an approval: server.tool, or tool, each a name or a glob "
    "(repeatable). Which tools these are is printed first.",
)


async def _show_approved(agent: AgentRunner, approved: Sequence[str], screen: Screen) -> None:
    screen.show_waiting("asking the servers for their tools")
    asking = await _list_asking(agent)
    named = [shown for shown, target in asking.items() if is_named(approved, target)]
    if named:
        screen.note(f"Approved by --approve, without a question: {', '.join(named)}", always=True, fg="yellow")
    for pattern in approved:
        if not any(is_named([pattern], target) for target in asking.values()):
            screen.note(
                f"--approve '{one_line(pattern, MAX_SHOWN_CHARS)}' names no tool that needs an approval. "
                f"There are: {', '.join(asking) or 'none'}. One that appears later is approved.",
                always=True,
                fg="yellow",
            )


async def _list_asking(agent: AgentRunner, prefix: str = "") -> dict[str, CallTarget]:
    """Return the tools that need an approval, by the names that are shown: also those of the agents that it asks."""
    await agent.mcp.specs()
    rules = [route.find_rules() for route in agent.mcp.routes.values()]
    found = {f"{prefix}{each.target.server}.{each.target.tool}": each.target for each in rules if each.needs_approval}
    for _, runner in agent.asked:
        found |= await _list_asking(runner, f"{prefix}{runner.name}: ")
    return found


@asynccontextmanager
async def open_screen(screen: Screen, checked_file: Path | None = None) -> AsyncIterator[ServerNotices]:
    """Show what happens to the servers of any agents inside the block, and export traces where that is configured.

    `checked_file`: see `ServerNotices`.
    From here on, `screen` keeps what the project's own code prints apart from the answer.
    """

    def show_notice(sentence: str, is_bad: bool) -> None:
        screen.note(sentence, **({"fg": "yellow"} if is_bad else {"dim": True}))

    screen.guard_stdout()
    with collect_notices(show_notice, checked_file=checked_file, shows_all=screen.is_verbose) as notices:
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
