"""`holodeck runs list`: one line for each durable run of this user, of all agents and folders."""

from __future__ import annotations

import os
from datetime import datetime

import click

from holodeck.cli.commands.runs.run_json import run_data
from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.terminal import Terminal
from holodeck.durable_runs.local_state import find_local_state
from holodeck.durable_runs.records import NO_RUNS, RunRecord, RunStore
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_RUNS_LISTED

# Characters of a question in the table: a row stays a line.
MAX_QUESTION_SHOWN = 60

_COLUMNS = ("RUN", "AGENT", "STATUS", "STARTED", "STEPS", "QUESTION")
_LIST_EPILOG = """\b
Examples:
  holodeck runs list
  holodeck runs list --json | jq -r '.[] | select(.status == "interrupted") | .id'

\b
Status: running (its process is alive), interrupted (`holodeck runs resume` continues it), or how it ended."""


@click.command("list", epilog=_LIST_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=MAX_RUNS_LISTED,
    show_default=True,
    help="Largest number of runs.",
)
def command(as_json: bool, limit: int) -> None:
    """Show the newest durable runs of all agents."""
    run_state = find_local_state(os.environ)
    runs: list[RunRecord] = []
    if not run_state.is_empty:
        with RunStore(run_state) as store:
            store.delete_old()
            runs = list(store.list_runs(limit))
    if as_json:
        click.echo(json_text([run_data(run) for run in runs], indent=2))
    elif runs:
        Terminal().table(_COLUMNS, [_run_row(run) for run in runs])
    else:
        click.echo(NO_RUNS, err=True)


def _run_row(run: RunRecord) -> tuple[str, ...]:
    started = datetime.fromtimestamp(run.input.started_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    question = one_line(run.question, MAX_QUESTION_SHOWN)
    return (run.id, run.input.agent, run.status, started, str(run.steps), question)
