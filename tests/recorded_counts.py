"""Counts that a change may move on purpose only: they are in a file of the repository, and a test compares.

`make counts` writes the files anew. A count that grows fails. One that falls by more than a few fails as well, so that
it is recorded and cannot grow back unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

HOW_TO_RECORD = "If that is meant, run 'make counts' and commit the file that it writes."


def find_change(name: str, recorded: int, found: int, *, slack: float) -> str | None:
    """A sentence about a count that grew, or that fell by more than `slack`; None for any other."""
    if found > recorded:
        return f"{name}: {found}, recorded are {recorded}."
    if found < recorded - slack:
        return f"{name}: {found}, recorded are {recorded}. That is good: record it, so that it stays."
    return None


def read_counts(file: Path) -> Any:
    return orjson.loads(file.read_bytes())


def write_counts(file: Path, counts: Mapping[str, Any]) -> None:
    """Write sections of counts, one count per line, so that a change shows as the lines that it is about."""
    sections = (f" {_json(section)}: {{\n{_lines(entries)}\n }}" for section, entries in counts.items())
    file.write_text("{\n" + ",\n".join(sections) + "\n}\n")


def _lines(entries: Mapping[str, Any]) -> str:
    return ",\n".join(f"  {_json(name)}: {_json(value)}" for name, value in entries.items())


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
