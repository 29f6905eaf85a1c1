"""`holodeck runs cancel`: end a run for good, also one that runs in another process."""

from __future__ import annotations

import os

import click

from holodeck.durable_runs.local_state import find_local_state
from holodeck.durable_runs.records import RunStore

_CANCEL_EPILOG = """\b
Example:
  holodeck runs cancel run_0123456789abcdef01234567"""


@click.command("cancel", epilog=_CANCEL_EPILOG)
@click.argument("run_id", metavar="RUN")
def command(run_id: str) -> None:
    """End a RUN for good. One that is running, in any terminal of this machine, stops within a second."""
    with RunStore(find_local_state(os.environ)) as store:
        run = store.require_run(run_id)
        store.cancel(run)
    click.echo(f"{run.id} is cancelled{'; its process is stopping' if run.status == 'running' else ''}.", err=True)
