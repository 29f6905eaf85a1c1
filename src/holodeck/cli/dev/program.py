"""The program of `holodeck mcp dev`: which command starts it, and which files it is made of.

A script is started with the interpreter that a person would use: the virtual environment of the project, or what is on
PATH. Nothing is started here.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from holodeck.cli.dev.file_watcher import SOURCE_SUFFIXES, WatchedPath
from holodeck.config.server_names import name_for, name_for_command
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.record import record

_NODE_SUFFIXES = frozenset({".js", ".mjs", ".cjs"})
_TYPESCRIPT_SUFFIXES = frozenset({".ts", ".mts", ".cts"})
_SCRIPT_SUFFIXES = frozenset({".py"}) | _NODE_SUFFIXES | _TYPESCRIPT_SUFFIXES
# Those that run every TypeScript come first: Node.js does so from version 22.18 on.
_TYPESCRIPT_COMMANDS = {"bun": ("bun",), "node": ("node",), "deno": ("deno", "run", "--allow-all")}
_VENV_PYTHON = Path(".venv", "bin", "python")


@record
class Program:
    """A program that serves MCP on its standard input and output."""

    name: str
    """The name of the server in messages."""
    argv: tuple[str, ...]
    watched: WatchedPath
    """What is watched unless the user names other paths."""


def plan_program(words: Sequence[str], folder: Path) -> Program:
    """Return the program that these words name: a script with its arguments, a command in words or in one text.

    `folder`: relative paths start from it. Raises `ConfigError` for a script that does not exist or has no interpreter.
    """
    if len(words) == 1 and not _is_script(words[0]):
        words = _split_command(words[0])
    if _is_script(words[0]):
        return _plan_script(words, folder)
    return Program(name=name_for_command(words), argv=tuple(words), watched=_choose_watched(words, folder))


def _is_script(word: str) -> bool:
    # With a space it is a command line, unless a file is called so.
    return Path(word).suffix in _SCRIPT_SUFFIXES and (" " not in word or Path(word).is_file())


def _split_command(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise _program_error(f"the command line cannot be read: {str(error).lower()}") from None
    if not words:
        raise _program_error("the command line is empty", "For example: holodeck mcp dev server.py")
    return words


def _plan_script(words: Sequence[str], folder: Path) -> Program:
    script = folder / words[0]
    if not script.is_file():
        raise _program_error(f"there is no file '{words[0]}'", "Name the script of the server, or a command.")
    interpreter = _find_interpreter(script, folder)
    watched = WatchedPath(path=script.parent, is_sources_only=True)
    return Program(name=name_for(script.stem), argv=(*interpreter, *words), watched=watched)


def _find_interpreter(script: Path, folder: Path) -> tuple[str, ...]:
    if script.suffix == ".py":
        for project in (script.parent, folder):
            # Not resolved: Python finds its virtual environment by the path that it was started with.
            if os.access(project / _VENV_PYTHON, os.X_OK):
                return (str(project / _VENV_PYTHON),)
        return (_require_command(["python", "python3"], script, "Install Python, or name a command: -- uv run"),)
    if script.suffix in _NODE_SUFFIXES:
        return (_require_command(["node"], script, "Install Node.js, or name a command: -- bun"),)
    fix = "Install one of them, or compile it and name the result: holodeck mcp dev build/index.js. Or: -- npx tsx"
    return _TYPESCRIPT_COMMANDS[_require_command(list(_TYPESCRIPT_COMMANDS), script, fix)]


def _require_command(names: Sequence[str], script: Path, fix: str) -> str:
    """Return the first of these commands that is on PATH. `fix` ends with the beginning of a command."""
    found = next((name for name in names if shutil.which(name)), None)
    if found is None:
        raise _program_error(
            f"'{script.name}' cannot be started: {' or '.join(names)} is not on PATH", f"{fix} {script.name}"
        )
    return found


def _choose_watched(words: Sequence[str], folder: Path) -> WatchedPath:
    """Return the folder of the script among the words, the program itself if it is a file, or the current folder."""
    for word in words:
        if Path(word).suffix in SOURCE_SUFFIXES and (folder / word).is_file():
            return WatchedPath(path=(folder / word).parent, is_sources_only=True)
    if os.sep in words[0] and (folder / words[0]).is_file():
        return WatchedPath(path=folder / words[0])
    return WatchedPath(path=folder, is_sources_only=True)


def _program_error(message: str, fix: str = "") -> ConfigError:
    return ConfigError.of([Problem(message=message, fix=fix)])
