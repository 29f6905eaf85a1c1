"""The cassettes of agent files: test cases are recorded with `--record`, and replayed with `--replay` and in CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.output.terminal import Terminal
from holodeck.lib.record import record

if TYPE_CHECKING:
    from holodeck.cassettes.opened_cassette import OpenedCassette, RecordMode

# Tools that are named after a recording: a server that was replaced has hundreds.
_MAX_DRIFT_LINES = 20


@record
class CassetteOptions:
    """The options for the use of cassettes."""

    is_record: bool
    is_replay: bool
    keeps_other_cases: bool
    """Cases of a file that do not run stay in its cassette."""
    live_option: str
    """An option that has a meaning only for live runs, if the user gave one; else empty."""


def find_cassette_path(file: Path) -> Path:
    """Return the path of the cassette of an agent file: `agent.cassette.yaml` beside `agent.yaml`."""
    return file.with_name(f"{file.stem}.cassette.yaml")


def open_case_cassette(file: Path, options: CassetteOptions, terminal: Terminal) -> OpenedCassette | None:
    """Open the cassette of an agent file, and tell its age; None if the options, and `CI`, ask for none.

    The caller ends it with `finish_cassette`. Raises `ConfigError`, and `click.UsageError` for options that exclude it.
    """
    path = find_cassette_path(file)
    mode = _choose_mode(path, options)
    if mode is None:
        return None
    from holodeck.cassettes.cassette import describe_age
    from holodeck.cassettes.opened_cassette import OpenedCassette

    opened = OpenedCassette(
        path, mode, how_to_record="holodeck test --record", keeps_other_tracks=options.keeps_other_cases
    )
    if opened.is_replay and opened.age is not None:
        terminal.note(f"{path.name} is replayed; it was recorded {describe_age(opened.age)}.", dim=True)
    return opened


def _choose_mode(path: Path, options: CassetteOptions) -> RecordMode | None:
    is_ci = bool(os.environ.get("CI")) and path.exists()
    if not (options.is_record or options.is_replay or is_ci):
        return None
    if options.live_option:
        is_asked = options.is_record or options.is_replay
        fix = "" if is_asked else f" {path.name} is replayed because CI is set: unset it to run the cases live."
        raise click.UsageError(
            f"{options.live_option} cannot be used with a cassette, which has one run of each case, on the model of "
            f"the file.{fix}"
        )
    return "always" if options.is_record else "never"


def finish_cassette(opened: OpenedCassette, terminal: Terminal) -> None:
    """Write what was recorded, and tell what has changed."""
    from holodeck.cassettes.cassette import describe_drift

    opened.finish()
    if opened.is_replay:
        return
    terminal.note(f"{opened.path.name} is recorded.", dim=True)
    lines = describe_drift(opened.drift)
    if lines:
        terminal.note("Tools that have changed since the last recording:", always=True)
    for line in lines[:_MAX_DRIFT_LINES]:
        terminal.note(f"  {line}", always=True, fg="yellow")
    if len(lines) > _MAX_DRIFT_LINES:
        terminal.note(f"  ... and {len(lines) - _MAX_DRIFT_LINES} more", always=True, fg="yellow")


def build_cassette_data(opened: OpenedCassette) -> dict[str, Any]:
    """Return what a report says about the cassette."""
    from holodeck.cassettes.cassette import describe_drift

    age = opened.age
    return {
        "file": str(opened.path),
        "is_replay": opened.is_replay,
        "age_seconds": None if age is None else round(age.total_seconds()),
        "changed_tools": describe_drift(opened.drift),
    }
