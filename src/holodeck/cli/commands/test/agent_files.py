"""Finds the agent files that `holodeck test` is to run, in the files and folders that a user named.

In a folder, an agent file is one that ends in `.yaml` or `.yml` and has `test_cases:` at the beginning of a line.
Hidden folders, packages, caches and virtual environments are not searched, and links to folders are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from holodeck.cli.dev.file_watcher import IGNORED_FOLDERS, VENV_MARK
from holodeck.config.agent_loader import DEFAULT_AGENT_FILE
from holodeck.config.files import MAX_FILE_BYTES
from holodeck.lib.system.files import NotRegularFileError, read_regular_file

# Folders that are read below one that was named: more is a home folder, named by mistake.
MAX_SEARCHED_FOLDERS = 10_000

_HAS_CASES = re.compile(rb"""^["']?test_cases["']?[ \t]*:""", re.MULTILINE)


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
