"""Tables of untrusted text, and numbers of things.

Apart from `terminal`, which loads an event loop: `validate` needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holodeck.lib.escape import escape_unprintable

if TYPE_CHECKING:
    from rich.console import Console


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 tool`, `2 tools`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of untrusted text under bold column names; control characters are escaped."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape_unprintable(cell) for cell in row))
    console.print(table)
