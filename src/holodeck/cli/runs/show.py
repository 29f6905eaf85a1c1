"""`holodeck runs show`: one run, step by step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from holodeck.cli.events_json import json_text
from holodeck.cli.runs.words import moment, run_data
from holodeck.cli.words import duration
from holodeck.lib.display import one_line, printable
from holodeck.lib.limits import MAX_ANSWER_SHOWN, MAX_ARGUMENTS_SHOWN, MAX_OUTCOME_SHOWN, MAX_STEPS_SHOWN
from holodeck.runs.home import find_home
from holodeck.runs.kept_run import KeptRun
from holodeck.runs.shelf import Shelf
from holodeck.runs.steps import RunStep, run_steps

_EPILOG = """\b
Examples:
  holodeck runs show run_0123456789abcdef01234567
  holodeck runs show run_0123456789abcdef01234567 --json | jq '.history[] | select(.kind == "call")'"""
_COLOURS = {"completed": "green", "running": "cyan", "interrupted": "yellow", "incomplete": "yellow"}


@click.command("show", epilog=_EPILOG)
@click.argument("run_id", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
def command(run_id: str, as_json: bool) -> None:
    """Show a RUN: its question, each step with its time, its answer or why it stopped."""
    with Shelf(find_home(os.environ)) as shelf:
        run = shelf.find(run_id)
        steps = run_steps(shelf.steps(run_id))
    if as_json:
        click.echo(json_text(_data(run, steps), indent=2))
    else:
        _show(run, steps)


def _data(run: KeptRun, steps: Sequence[RunStep]) -> dict[str, Any]:
    return {
        **run_data(run),
        "history": [
            {
                "kind": step.kind,
                "name": step.name,
                "status": step.status,
                "began": moment(step.began),
                "seconds": step.seconds,
                "asked": step.asked[:MAX_ANSWER_SHOWN],
                "said": step.said[:MAX_ANSWER_SHOWN],
            }
            for step in steps[-MAX_STEPS_SHOWN:]
        ],
        "answer": str(run.outcome.get("text", ""))[:MAX_ANSWER_SHOWN],
        "reason": run.reason,
        "usage": run.outcome.get("usage"),
    }


def _show(run: KeptRun, steps: Sequence[RunStep]) -> None:
    task = run.task
    click.echo(f"{run.id}  {click.style(run.status, fg=_COLOURS.get(run.status, 'red'))}")
    click.echo(printable(f"{task.agent}  {task.file}"))
    click.echo(f"Began {datetime.fromtimestamp(task.began).astimezone():%Y-%m-%d %H:%M:%S}\n")
    click.echo(_bounded(task.question.text))
    click.echo("")
    hidden = len(steps) - MAX_STEPS_SHOWN
    if hidden > 0:
        click.echo(f"... {hidden} earlier steps")
    for step in steps[-MAX_STEPS_SHOWN:]:
        click.echo(_line(step))
    answer = str(run.outcome.get("text", ""))
    if answer:
        click.echo(f"\n{_bounded(answer)}")
    if run.reason:
        click.echo(f"\n{run.status}: {_bounded(run.reason)}")
    if run.status == "interrupted":
        click.echo(f"\nGo on with: holodeck runs resume {run.id}")


def _line(step: RunStep) -> str:
    title = f"turn {step.name}" if step.kind == "turn" else step.name
    asked = one_line(step.asked, MAX_ARGUMENTS_SHOWN)
    mark = "" if step.status == "done" else f"{step.status}: "
    said = one_line(step.said, MAX_OUTCOME_SHOWN)
    parts = [f"{datetime.fromtimestamp(step.began).astimezone():%H:%M:%S}", f"{duration(step.seconds):>8}"]
    return "  ".join([*parts, printable(title), *([asked] if asked else []), f"{mark}{said}"]).rstrip(" :")


def _bounded(text: str) -> str:
    hidden = len(text) - MAX_ANSWER_SHOWN
    return printable(text[:MAX_ANSWER_SHOWN]) + (f"\n... and {hidden} more characters" if hidden > 0 else "")
