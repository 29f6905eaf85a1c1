"""`holodeck runs cancel`: a run is over for good, in whichever process it is."""

from __future__ import annotations

import os

import click

from holodeck.runs.home import find_home
from holodeck.runs.shelf import Shelf

_EPILOG = """\b
Example:
  holodeck runs cancel run_0123456789abcdef01234567"""


@click.command("cancel", epilog=_EPILOG)
@click.argument("run_id", metavar="RUN")
def command(run_id: str) -> None:
    """End a RUN for good. One that is running, in any terminal of this machine, stops within a second."""
    with Shelf(find_home(os.environ)) as shelf:
        run = shelf.find(run_id)
        shelf.cancel(run)
    click.echo(f"{run.id} is cancelled{'; its process is stopping' if run.status == 'running' else ''}.", err=True)
