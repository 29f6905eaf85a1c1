"""`holodeck runs`: the durable runs of this user, of all agents and folders, listed, shown, resumed and cancelled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from holodeck.cli.main import CommandGroup, json_option
from holodeck.cli.output.events_json import json_text
from holodeck.cli.output.follow_run import EXIT_CODES, open_screen_for, parse_output_format, plain_option
from holodeck.cli.output.run_lines import format_duration, format_local_time, format_time
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.output.trust_question import trust_option
from holodeck.cli.terminal_agent import approve_option, read_trusted_agent
from holodeck.durable_runs.records import (
    NO_RUNS,
    RunRecord,
    RunStep,
    RunStore,
    build_run_steps,
    find_local_state,
    resume_hint,
)
from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.limits import MAX_ANSWER_SHOWN, MAX_ARGUMENTS_SHOWN, MAX_OUTCOME_SHOWN, MAX_RUNS_LISTED

_GROUP_EPILOG = """\b
Examples:
  holodeck run --durable "Move all of them"    start one
  holodeck runs list                           the newest first
  holodeck runs resume --last                  continue the one that was interrupted last
  holodeck runs show run_0123456789abcdef01234567
  holodeck runs cancel run_0123456789abcdef01234567

\b
Runs are stored in $HOLODECK_STATE, $XDG_STATE_HOME/holodeck or ~/.local/state/holodeck; finished ones for 30 days.
Exit codes: 0 success, 1 error at run time, 2 wrong configuration or usage."""
# Characters of a question in the table: a row stays a line.
MAX_QUESTION_SHOWN = 60
_COLUMNS = ("RUN", "AGENT", "STATUS", "STARTED", "STEPS", "QUESTION")
_LIST_EPILOG = """\b
Examples:
  holodeck runs list
  holodeck runs list --json | jq -r '.[] | select(.status == "interrupted") | .id'

\b
Status: running (its process is alive), interrupted (`holodeck runs resume` continues it), or how it ended."""
# Steps of one run that are shown, the last ones: a few screens.
MAX_STEPS_SHOWN = 200
_SHOW_EPILOG = """\b
Examples:
  holodeck runs show --last
  holodeck runs show run_0123456789abcdef01234567
  holodeck runs show run_0123456789abcdef01234567 --json | jq '.history[] | select(.kind == "call")'"""
_COLOURS = {"completed": "green", "running": "cyan", "interrupted": "yellow", "incomplete": "yellow"}
_RESUME_EPILOG = """\b
Examples:
  holodeck runs resume --last
  holodeck runs resume run_0123456789abcdef01234567 > answer.txt

\b
Finished steps are not repeated. A tool call that was under way when the process died is repeated only if its tool
is in `idempotent_tools`; otherwise the model is told that its outcome is unknown.
Exit codes are those of `holodeck run`."""
_CANCEL_EPILOG = """\b
Example:
  holodeck runs cancel run_0123456789abcdef01234567"""


@click.group("runs", cls=CommandGroup, epilog=_GROUP_EPILOG)
def command() -> None:
    """List, show, resume and cancel durable runs, which survive the end of their process.

    Start one with `holodeck run --durable`.
    """


def _run_data(run: RunRecord) -> dict[str, Any]:
    """Return a run without its steps."""
    return {
        "id": run.id,
        "agent": run.input.agent,
        "file": None if run.input.file is None else str(run.input.file),
        "status": run.status,
        "started": format_time(run.input.started_at),
        "steps": run.steps,
        "question": run.question[:MAX_ANSWER_SHOWN],
    }


@command.command("list", short_help="List the newest durable runs of all agents.", epilog=_LIST_EPILOG)
@json_option("Print the list as JSON.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=MAX_RUNS_LISTED,
    show_default=True,
    help="Largest number of runs.",
)
def list_command(as_json: bool, limit: int) -> None:
    """Show the newest durable runs of all agents."""
    run_state = find_local_state(os.environ)
    runs: list[RunRecord] = []
    if not run_state.is_empty:
        with RunStore(run_state) as store:
            store.delete_old()
            runs = list(store.list_runs(limit))
    if as_json:
        click.echo(json_text([_run_data(run) for run in runs], indent=2))
    elif runs:
        Terminal().table(_COLUMNS, [_run_row(run) for run in runs])
    else:
        click.echo(NO_RUNS, err=True)


def _run_row(run: RunRecord) -> tuple[str, ...]:
    question = one_line(run.question, MAX_QUESTION_SHOWN)
    return (run.id, run.input.agent, run.status, format_local_time(run.input.started_at), str(run.steps), question)


@command.command(
    "show", short_help="Show one run: its question, each step, its answer or why it stopped.", epilog=_SHOW_EPILOG
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--last", is_flag=True, help="Show the newest run.")
@json_option("Print the run as JSON.")
def show_command(run_id: str | None, last: bool, as_json: bool) -> None:
    """Show a RUN: its question, each step with its time, its answer or why it stopped."""
    _require_one(run_id, last=last)
    with RunStore(find_local_state(os.environ)) as store:
        run = store.require_run(run_id) if run_id else store.require_last()
        steps = build_run_steps(store.read_steps(run.id))
    if as_json:
        click.echo(json_text(_run_with_steps_data(run, steps), indent=2))
    else:
        _print_run(run, steps)


def _require_one(run_id: str | None, *, last: bool) -> None:
    if bool(run_id) == last:
        raise click.UsageError("Give the id of a run, or --last. See: holodeck runs list")


def _run_with_steps_data(run: RunRecord, steps: Sequence[RunStep]) -> dict[str, Any]:
    return {
        **_run_data(run),
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
    click.echo(f"{run.id}  {click.style(run.status, fg=_COLOURS.get(run.status, 'red'))}")
    click.echo(escape_unprintable(f"{run.input.agent}  {run.input.file or '(made in code)'}"))
    click.echo(f"Began {format_local_time(run.input.started_at)}\n")
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


@command.command(
    "resume", short_help="Continue an interrupted run after its last finished step.", epilog=_RESUME_EPILOG
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--last", is_flag=True, help="Resume the run that was interrupted last.")
@json_option("Print the result as JSON instead of the answer.")
@click.option("--events", "as_events", is_flag=True, help="Print each event as a JSON line, as it happens.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer and errors.")
@plain_option
@approve_option
@trust_option
def resume_command(
    *,
    run_id: str | None,
    last: bool,
    as_json: bool,
    as_events: bool,
    quiet: bool,
    is_plain: bool,
    approved: tuple[str, ...],
    is_trusted: bool,
) -> int:
    """Continue an interrupted RUN after its last finished step, to its answer."""
    from holodeck.cli.durable_run import resume_run

    output = parse_output_format(as_json=as_json, as_events=as_events)
    _require_one(run_id, last=last)
    run_state, screen = find_local_state(os.environ), open_screen_for(output, is_quiet=quiet, is_plain=is_plain)
    with RunStore(run_state) as store:
        run = store.require_run(run_id) if run_id else store.require_last_interrupted()
    run.require_resumable()
    if run.input.file is None:
        raise ExecutionError(
            f"{run.id} was started by a program, whose agent '{run.agent}' is in no file. Only the program can go on "
            f"with it: {resume_hint(run.id, run.input)}"
        )
    if run.input.has_file_changed:
        screen.note(f"{run.input.file} has changed since this run began; it continues with the new one.", fg="yellow")
    loaded = read_trusted_agent(str(run.input.file), screen, is_trusted=is_trusted)
    if loaded.agent.name != run.input.agent:
        raise ExecutionError(
            f"{run.id} is a run of '{run.input.agent}', and {run.input.file} is '{loaded.agent.name}' now. "
            "Put the agent back to go on with the run, or cancel it."
        )
    return EXIT_CODES[resume_run(run_state, run, loaded, screen, output, approved).status]


@command.command(
    "cancel", short_help="End a run for good, also one that runs in another process.", epilog=_CANCEL_EPILOG
)
@click.argument("run_id", metavar="RUN")
def cancel_command(run_id: str) -> None:
    """End a RUN for good. One that is running, in any terminal of this machine, stops within a second."""
    with RunStore(find_local_state(os.environ)) as store:
        run = store.require_run(run_id)
        store.cancel(run)
    click.echo(f"{run.id} is cancelled{'; its process is stopping' if run.status == 'running' else ''}.", err=True)
