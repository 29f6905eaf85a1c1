"""`reference/exit-codes.md`: how each command says that it succeeded or failed."""

from __future__ import annotations

import inspect
import re

import click

from generate.cli_page import walk_commands
from generate.markdown import NOTICE, code, join_blocks, slug, table
from holodeck.cli.main import cli
from holodeck.cli.output.follow_run import EXIT_CODES

_INTRO = """\
Every command ends with one of these codes, so that a script or a CI job can tell what happened. The error itself is on
standard error."""
_OWN = "Some commands give a code a narrower meaning. `holodeck COMMAND --help` says the same."
_STATUS = "`holodeck run` and `holodeck runs resume` end with the code of the run's status:"

_CODES = re.compile(r"Exit codes: (.*?)\.(?:\s|$)", re.DOTALL)

_COLUMNS = ("0", "1", "2", "3")


def build_page() -> str:
    """Return the page."""
    common = list(_parse_codes(cli).items())
    own = [
        (_link(ctx.command_path), *(codes.get(number, "-") for number in _COLUMNS))
        for ctx in walk_commands()
        if (codes := _parse_codes(ctx.command))
    ]
    statuses = [(code(status), str(number)) for status, number in EXIT_CODES.items()]
    return join_blocks(
        [
            "# Exit codes",
            NOTICE,
            _INTRO,
            table(("Code", "Meaning"), common),
            "## Of one command",
            _OWN,
            table(("Command", *_COLUMNS), own),
            "## Of a run",
            _STATUS,
            table(("Status", "Code"), statuses),
            "See also: [command line](cli.md).",
        ]
    )


def _link(command_path: str) -> str:
    return f"[{code(command_path)}](cli.md#{slug(command_path)})"


def _parse_codes(command: click.Command) -> dict[str, str]:
    """Return the codes with their meanings in the help of a command: `Exit codes: 0 success, 1 ...`."""
    text = " ".join(f"{inspect.cleandoc(command.help or '')}\n{command.epilog or ''}".split())
    found = _CODES.search(text)
    parts = re.findall(r"(\d+) ([^,(]+(?:\([^)]*\))?)", found[1]) if found else []
    return {number: meaning.strip() for number, meaning in parts}
