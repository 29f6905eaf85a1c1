"""Tables on a rich console. A module of its own, because the live view imports twice as much, for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from holodeck.lib.escape import escape_unprintable


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of untrusted text under bold column names; control characters are escaped."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape_unprintable(cell) for cell in row))
    console.print(table)
