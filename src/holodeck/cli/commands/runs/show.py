"""`holodeck runs show`: one durable run, step by step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from holodeck.cli.commands.runs.run_json import format_time, run_data
from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.run_lines import format_duration
from holodeck.durable_runs.local_state import find_local_state
from holodeck.durable_runs.records import RunRecord, RunStep, RunStore, build_run_steps, resume_hint
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_ANSWER_SHOWN, MAX_ARGUMENTS_SHOWN, MAX_OUTCOME_SHOWN

# Steps of one run that are shown, the last ones: a few screens.
MAX_STEPS_SHOWN = 200

_SHOW_EPILOG = """\b
Examples:
  holodeck runs show run_0123456789abcdef01234567
  holodeck runs show run_0123456789abcdef01234567 --json | jq '.history[] | select(.kind == "call")'"""
_COLOURS = {"completed": "green", "running": "cyan", "interrupted": "yellow", "incomplete": "yellow"}


@click.command("show", epilog=_SHOW_EPILOG)
@click.argument("run_id", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
def command(run_id: str, as_json: bool) -> None:
    """Show a RUN: its question, each step with its time, its answer or why it stopped."""
    with RunStore(find_local_state(os.environ)) as store:
        run = store.require_run(run_id)
        steps = build_run_steps(store.read_steps(run_id))
    if as_json:
        click.echo(json_text(_run_with_steps_data(run, steps), indent=2))
    else:
        _print_run(run, steps)


def _run_with_steps_data(run: RunRecord, steps: Sequence[RunStep]) -> dict[str, Any]:
    return {
        **run_data(run),
        "history": [
            {
                "kind": step.kind,
                "name": step.name,
                "status": step.status,
                "began": format_time(step.started_at),
                "seconds": step.seconds,
                "asked": step.arguments[:MAX_ANSWER_SHOWN],
                "said": step.result[:MAX_ANSWER_SHOWN],
            }
            for step in steps[-MAX_STEPS_SHOWN:]
        ],
        "answer": str(run.outcome.get("text", ""))[:MAX_ANSWER_SHOWN],
        "reason": run.reason,
        "usage": run.outcome.get("usage"),
    }


def _print_run(run: RunRecord, steps: Sequence[RunStep]) -> None:
    run_input = run.input
    click.echo(f"{run.id}  {click.style(run.status, fg=_COLOURS.get(run.status, 'red'))}")
    click.echo(escape_unprintable(f"{run_input.agent}  {run_input.file or '(made in code)'}"))
    click.echo(f"Began {datetime.fromtimestamp(run_input.started_at).astimezone():%Y-%m-%d %H:%M:%S}\n")
    click.echo(_shorten_text(run.question))
    click.echo("")
    hidden = len(steps) - MAX_STEPS_SHOWN
    if hidden > 0:
        click.echo(f"... {hidden} earlier steps")
    for step in steps[-MAX_STEPS_SHOWN:]:
        click.echo(_step_line(step))
    answer = str(run.outcome.get("text", ""))
    if answer:
        click.echo(f"\n{_shorten_text(answer)}")
    if run.reason:
        click.echo(f"\n{run.status}: {_shorten_text(run.reason)}")
    if run.status == "interrupted":
        click.echo(f"\nGo on with: {resume_hint(run.id, run.input)}")


def _step_line(step: RunStep) -> str:
    title = f"turn {step.name}" if step.kind == "turn" else step.name
    arguments = one_line(step.arguments, MAX_ARGUMENTS_SHOWN)
    mark = "" if step.status == "done" else f"{step.status}: "
    result = one_line(step.result, MAX_OUTCOME_SHOWN)
    time = f"{datetime.fromtimestamp(step.started_at).astimezone():%H:%M:%S}"
    parts = [
        time,
        f"{format_duration(step.seconds):>8}",
        escape_unprintable(title),
        *([arguments] if arguments else []),
    ]
    return "  ".join([*parts, f"{mark}{result}"]).rstrip(" :")


def _shorten_text(text: str) -> str:
    hidden = len(text) - MAX_ANSWER_SHOWN
    return escape_unprintable(text[:MAX_ANSWER_SHOWN]) + (f"\n... and {hidden} more characters" if hidden > 0 else "")
