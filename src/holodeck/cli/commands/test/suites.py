"""The suites of a command: each agent file that was named, with each model, and the cases that were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.commands.test.case_cassette import CassetteOptions, open_case_cassette
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.terminal_agent import read_trusted_agent
from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.errors import ConfigError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN
from holodeck.models.llm import LLM
from holodeck.models.test_case import TestCase

if TYPE_CHECKING:
    from holodeck.evaluation.suite import Suite


def read_suites(
    files: Sequence[Path],
    models: Sequence[str],
    pattern: str,
    cassettes: CassetteOptions,
    terminal: Terminal,
    *,
    is_trusted: bool,
) -> list[Suite]:
    """Read the files, ask whether the user trusts them, and return a suite for each file and model.

    `models`: as typed; empty: the model of each file. Files without a case that has `pattern` are left out. Raises
    `ConfigError`, and `click.UsageError` when no case remains.
    """
    from holodeck.evaluation.suite import Suite

    suites: list[Suite] = []
    names: list[str] = []
    for file in files:
        cassette = open_case_cassette(file, cassettes, terminal)
        # What a replayed file may do without, such as keys, it may also be read without.
        with nullcontext() if cassette is None else cassette.track(""):
            loaded = read_trusted_agent(str(file), terminal, is_trusted=is_trusted)
        cases = [(case.name or one_line(case.input, MAX_DESCRIPTION_SHOWN), case) for case in loaded.agent.test_cases]
        if not cases:
            raise click.UsageError(f"{file} has no 'test_cases'. 'holodeck test --help' shows how they look.")
        names += [name for name, _ in cases]
        chosen = tuple((name, case) for name, case in cases if _is_chosen(pattern, name, case))
        if not chosen:
            continue
        for name in models or [describe_model(loaded.agent.model)]:
            tested = _with_model(loaded, find_model(loaded, name))
            suites.append(Suite(file=str(file), model=name, loaded=tested, cases=chosen, cassette=cassette))
    if not suites:
        raise click.UsageError(f"No test case has '{pattern}'. There are: {', '.join(names)}.")
    return suites


def find_model(loaded: LoadedAgent, text: str) -> LLM:
    """Return the model of the file if this is its name, an entry of `test_settings.models`, or a `provider:name`.

    Raises `click.UsageError`.
    """
    entries, own = loaded.agent.test_settings.models, loaded.agent.model
    if text == describe_model(own):
        return own
    if text in entries:
        return entries[text]
    from holodeck.agents.models import parse_model

    try:
        return parse_model(text)[0]
    except ConfigError as error:
        known = f"has: {', '.join(entries)}" if entries else "has none"
        raise click.UsageError(f"{error} 'test_settings.models' of {loaded.path.name} {known}.") from None


def describe_model(model: LLM) -> str:
    """Return `provider:name`, or the provider alone where it has no names."""
    return f"{model.provider}:{model.name}" if model.name else str(model.provider)


def _with_model(loaded: LoadedAgent, model: LLM) -> LoadedAgent:
    return replace(loaded, agent=loaded.agent.model_copy(update={"model": model}))


def _is_chosen(pattern: str, name: str, case: TestCase) -> bool:
    return any(pattern.lower() in text.lower() or fnmatch(text.lower(), pattern.lower()) for text in (name, case.input))
