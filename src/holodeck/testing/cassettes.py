"""Cassettes for tests: a recorded run of an agent, replayed without its model and its servers."""

from __future__ import annotations

import os
from pathlib import Path

from holodeck.cassettes.opened_cassette import OpenedCassette, RecordMode

__all__ = ["OpenedCassette", "cassette"]


def cassette(path: str | os.PathLike[str], *, record: RecordMode = "auto") -> OpenedCassette:
    """Open a cassette, for `with` or `async with`: agents that run in the block are recorded, or replayed from it.

    `record`: `auto` replays a file that exists and records one that does not, except where the variable `CI` is set;
    `always` records; `never` replays. Raises `ConfigError` for a file that is missing or damaged, and
    `CassetteMismatchError` at the end of a block whose agent asked something else than what was recorded.
    """
    return OpenedCassette(Path(path), record)
