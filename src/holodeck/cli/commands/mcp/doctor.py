"""`holodeck mcp doctor`: for each server, which steps work, which one fails, why, and what to do about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click

from holodeck.cli.commands.mcp.connect import run_with_logging, with_timeout
from holodeck.cli.commands.mcp.examination import Examination, examine
from holodeck.cli.commands.mcp.target import Target, select_servers, start_timeout_option, target_options
from holodeck.cli.output.config_problems import print_problems, problem_data
from holodeck.cli.output.progress import Progress
from holodeck.config.agent_loader import LoadedTool
from holodeck.config.server_loader import LoadedServers
from holodeck.lib.escape import escape_unprintable
from holodeck.models.tool import MCPTool

_OUTCOME_LABELS = {
    "ok": ("ok", "green"),
    "failed": ("FAILED", "red"),
    "unneeded": ("-", None),
    "not tried": ("-", None),
}
_STEP_WIDTH = 12
_WORD_WIDTH = 7


@click.command("doctor")
@click.argument("server", required=False)
@start_timeout_option
@target_options
def command(target: Target, server: str | None, timeout: float | None) -> int:
    """Check all servers, or SERVER: found, started or reached, authorised, speaks MCP, lists tools, answers.

    Exit codes: 0 all servers are healthy, 1 a step failed, 2 wrong configuration or usage.
    """
    loaded = target.load_servers()
    chosen = [with_timeout(item, timeout) for item in select_servers(loaded, server, target)]
    enabled = [item for item in chosen if isinstance(item.tool, MCPTool) and item.tool.enabled]
    disabled = [item.tool.name for item in chosen if item not in enabled]
    done = run_with_logging(_examine_all(enabled, is_quiet=target.as_json), verbose=target.verbose)
    problems = loaded.problems if server is None else ()
    if target.as_json:
        click.echo(json.dumps(_examinations_data(done, disabled, loaded if server is None else None), indent=2))
    else:
        for name in disabled:
            click.echo(f"{escape_unprintable(name)}: switched off, not examined\n")
        if problems:
            print_problems(problems)
    refused = bool(loaded.refused) and server is None
    if all(item.is_healthy for item in done):
        return 2 if refused else 0
    return 1


async def _examine_all(servers: Sequence[LoadedTool], *, is_quiet: bool) -> list[Examination]:
    unfinished = {item.tool.name for item in servers}
    async with Progress() as progress, asyncio.TaskGroup() as group:

        async def examine_one(item: LoadedTool) -> Examination:
            done = await examine(item)
            unfinished.discard(item.tool.name)
            progress.phase = f"examining {', '.join(sorted(unfinished))}"
            progress.clear()
            if not is_quiet:
                _print_examination(done, item)
            return done

        progress.phase = f"examining {', '.join(sorted(unfinished))}"
        tasks = [group.create_task(examine_one(item)) for item in servers]
    return [task.result() for task in tasks]


def _print_examination(done: Examination, item: LoadedTool) -> None:
    via = item.tool.transport.value if isinstance(item.tool, MCPTool) else ""
    click.secho(f"{done.server} ({via})", bold=True)
    for step in (step for step in done.steps if step.outcome != "not tried"):
        word, colour = _OUTCOME_LABELS[step.outcome]
        label = click.style(word, fg=colour) + " " * (_WORD_WIDTH - len(word))
        detail = escape_unprintable(step.detail).replace("\n", "\n" + " " * (_STEP_WIDTH + _WORD_WIDTH + 3))
        click.echo(f"  {step.name.ljust(_STEP_WIDTH)} {label}{detail}".rstrip())
        if step.advice:
            click.echo(
                f"  {''.ljust(_STEP_WIDTH)} {''.ljust(_WORD_WIDTH)}What to do: {escape_unprintable(step.advice)}"
            )
    click.echo()


def _examinations_data(
    done: Sequence[Examination], disabled: Sequence[str], loaded: LoadedServers | None
) -> dict[str, Any]:
    servers: list[dict[str, Any]] = [
        {"name": item.server, "healthy": item.is_healthy, "steps": [vars(step) for step in item.steps]} for item in done
    ]
    servers += [{"name": name, "enabled": False} for name in disabled]
    if loaded is None:
        return {"servers": servers}
    servers += [
        {"name": name, "healthy": False, "problems": [problem_data(problem) for problem in found]}
        for name, found in loaded.refused.items()
    ]
    return {"servers": servers, "problems": [problem_data(problem) for problem in loaded.problems]}
