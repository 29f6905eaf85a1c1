"""`holodeck runs resume`: show the finished steps of an interrupted run again, and run the rest."""

from __future__ import annotations

import os

import click

from holodeck.cli.durable_run import resume_run
from holodeck.cli.output.run_printer import EXIT_CODES, parse_output_format
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.output.trust_question import trust_option
from holodeck.cli.terminal_agent import read_trusted_agent
from holodeck.durable_runs.local_state import find_local_state
from holodeck.durable_runs.records import RunStore, resume_hint
from holodeck.lib.errors import ExecutionError

_RESUME_EPILOG = """\b
Examples:
  holodeck runs resume --last
  holodeck runs resume run_0123456789abcdef01234567 > answer.txt

\b
Finished steps are not repeated. A tool call that was under way when the process died is repeated only if its tool
is in `idempotent_tools`; otherwise the model is told that its outcome is unknown.
Exit codes are those of `holodeck run`."""


@click.command("resume", epilog=_RESUME_EPILOG)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--last", is_flag=True, help="Resume the run that was interrupted last.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of the answer.")
@click.option("--events", "as_events", is_flag=True, help="Print each event as a JSON line, as it happens.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer and errors.")
@trust_option
def command(run_id: str | None, last: bool, as_json: bool, as_events: bool, quiet: bool, is_trusted: bool) -> int:
    """Continue an interrupted RUN after its last finished step, to its answer."""
    output = parse_output_format(as_json=as_json, as_events=as_events)
    if bool(run_id) == last:
        raise click.UsageError("Give the id of a run, or --last. See: holodeck runs list")
    run_state, terminal = find_local_state(os.environ), Terminal(is_quiet=quiet)
    with RunStore(run_state) as store:
        run = store.require_run(run_id) if run_id else store.require_last_interrupted()
    run.require_resumable()
    if run.input.file is None:
        raise ExecutionError(
            f"{run.id} was started by a program, whose agent '{run.agent}' is in no file. Only the program can go on "
            f"with it: {resume_hint(run.id, run.input)}"
        )
    if run.input.has_file_changed:
        terminal.note(f"{run.input.file} has changed since this run began; it continues with the new one.", fg="yellow")
    loaded = read_trusted_agent(str(run.input.file), terminal, is_trusted=is_trusted)
    if loaded.agent.name != run.input.agent:
        raise ExecutionError(
            f"{run.id} is a run of '{run.input.agent}', and {run.input.file} is '{loaded.agent.name}' now. "
            "Put the agent back to go on with the run, or cancel it."
        )
    return EXIT_CODES[resume_run(run_state, run, loaded, terminal, output).status]
