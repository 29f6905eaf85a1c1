"""The suites of a command: each agent file that was named, with each model, and the cases that were chosen.

In a folder, an agent file is one that ends in `.yaml` or `.yml` and has `test_cases:` at the beginning of a line.
Hidden folders, packages, caches and virtual environments are not searched, and links to folders are not followed.

Each agent file has cassettes: its cases are recorded with `--record`, and replayed with `--replay` and in CI.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.dev.file_watcher import IGNORED_FOLDERS, VENV_MARK
from holodeck.cli.output.terminal import Terminal
from holodeck.cli.terminal_agent import describe_model, read_trusted_agent, use_model
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE
from holodeck.config.files import MAX_FILE_BYTES
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_DESCRIPTION_SHOWN
from holodeck.lib.record import record
from holodeck.lib.system.files import NotRegularFileError, read_regular_file
from holodeck.models.test_case import TestCase

if TYPE_CHECKING:
    from holodeck.cassettes.opened_cassette import OpenedCassette, RecordMode
    from holodeck.evaluation.suite_report import Suite

# Tools that are named after a recording: a server that was replaced has hundreds.
_MAX_DRIFT_LINES = 20
# Folders that are read below one that was named: more is a home folder, named by mistake.
MAX_SEARCHED_FOLDERS = 10_000
_HAS_CASES = re.compile(rb"""^["']?test_cases["']?[ \t]*:""", re.MULTILINE)


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


def find_agent_files(paths: Sequence[str]) -> list[Path]:
    """Return the agent files, each once, in the order in which they were named. Raises `click.UsageError`.

    In a folder, its `agent.yaml` comes first, then the others by their paths. A folder without a file that has cases
    stands for its `agent.yaml`: the loader says what is wrong with it.
    """
    found: dict[Path, Path] = {}
    for path in [Path(each) for each in paths] or [Path(DEFAULT_AGENT_FILE)]:
        for file in _list_folder(path) if path.is_dir() else [path]:
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _list_folder(folder: Path) -> list[Path]:
    default = folder / DEFAULT_AGENT_FILE
    files = sorted(file for file in _walk(folder) if _has_cases(file))
    if default in files or not files:
        return [default, *(file for file in files if file != default)]
    return files


def _walk(top: Path) -> Iterator[Path]:
    for count, (folder, folders, names) in enumerate(os.walk(top)):
        if count >= MAX_SEARCHED_FOLDERS:
            raise click.UsageError(f"{top} has over {MAX_SEARCHED_FOLDERS:,} folders. Name a smaller one, or files.")
        if count and VENV_MARK in names:
            folders.clear()
            continue
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in IGNORED_FOLDERS)
        yield from (Path(folder, name) for name in names if name.endswith((".yaml", ".yml")))


def _has_cases(file: Path) -> bool:
    try:
        return _HAS_CASES.search(read_regular_file(file, MAX_FILE_BYTES)) is not None
    # A file that was not named and cannot be read is none of ours.
    except (OSError, NotRegularFileError):
        return False


def read_suites(
    files: Sequence[Path],
    models: Sequence[str],
    pattern: str,
    cassettes: CassetteOptions,
    terminal: Terminal,
    *,
    is_trusted: bool,
) -> list[Suite]:
    """Read the files, ask whether the user trusts them, and return a suite for each file and model.

    `models`: as typed; empty: the model of each file. Files without a case that has `pattern` are left out. Raises
    `ConfigError`, and `click.UsageError` when no case remains.
    """
    from holodeck.evaluation.suite_report import Suite

    suites: list[Suite] = []
    names: list[str] = []
    for file in files:
        cassette = open_case_cassette(file, cassettes, terminal)
        # What a replayed file may do without, such as keys, it may also be read without.
        with nullcontext() if cassette is None else cassette.track(""):
            loaded = read_trusted_agent(str(file), terminal, is_trusted=is_trusted)
        cases = [(case.name or one_line(case.input, MAX_DESCRIPTION_SHOWN), case) for case in loaded.agent.test_cases]
        if not cases:
            raise click.UsageError(f"{file} has no 'test_cases'. 'holodeck test --help' shows how they look.")
        names += [name for name, _ in cases]
        chosen = tuple((name, case) for name, case in cases if _is_chosen(pattern, name, case))
        if not chosen:
            continue
        for name in models or [describe_model(loaded.agent.model)]:
            tested = use_model(loaded, name)
            suites.append(Suite(file=str(file), model=name, loaded=tested, cases=chosen, cassette=cassette))
    if not suites:
        raise click.UsageError(f"No test case has '{pattern}'. There are: {', '.join(names)}.")
    return suites


def _is_chosen(pattern: str, name: str, case: TestCase) -> bool:
    return any(pattern.lower() in text.lower() or fnmatch(text.lower(), pattern.lower()) for text in (name, case.input))
