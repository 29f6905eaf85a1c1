"""Environment variables from the process and from `.env` files, and placeholders for those that are not set.

The three public functions are part of the documented Python API.
"""

from __future__ import annotations

import io
import os
from collections import UserDict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from holodeck.config.files import read_text
from holodeck.config.interpolation import malformed_reference_problem, missing_variable_problem, substitute
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.limits import MIB

# Largest `.env` file. A list of variables is far smaller; a larger file was named by mistake.
MAX_ENV_FILE_BYTES = 1 * MIB


def substitute_env_vars(text: str) -> str:
    """Replace `${VAR}` and `${VAR:-default}` from the process environment.

    Raises `ConfigError` naming every variable that is not set. `$${` stands for a literal `${`.
    """
    done = substitute(text, os.environ.get, {})
    problems = [missing_variable_problem(name) for name in done.missing] + [
        malformed_reference_problem(written) for written in done.malformed
    ]
    if problems:
        raise ConfigError.of(problems)
    return done.text


def load_env_file(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the variables of a `.env` file. Raises `ConfigError` for a file that cannot be read or has a bad line."""
    shown = str(path)
    text = read_text(Path(path), shown, MAX_ENV_FILE_BYTES)
    return _parse_variables(text.replace("\r\n", "\n"), shown)


def get_env_var(key: str, default: Any = None) -> Any:
    """Return one variable of the process environment, or the default."""
    return os.environ.get(key, default)


def _parse_variables(text: str, shown: str) -> dict[str, str]:
    from dotenv.parser import parse_stream

    values: dict[str, str] = {}
    problems: list[Problem] = []
    for binding in parse_stream(io.StringIO(text)):
        bad_name = binding.key is not None and ("\0" in binding.key or "=" in binding.key)
        if binding.error or bad_name or "\0" in (binding.value or ""):
            lead = len(binding.original.string) - len(binding.original.string.lstrip("\n"))
            problems.append(
                Problem(
                    message="this line is not NAME=value",
                    file=shown,
                    line=binding.original.line + lead,
                    fix="Write NAME=value, or start a comment with '#'.",
                )
            )
        elif binding.key is not None and binding.value is not None:
            values[binding.key] = binding.value
    if problems:
        raise ConfigError.of(problems)
    return values


class PlaceholderVariables(UserDict[str, str]):
    """The given variables, and a text for every other name, except for `without`.

    For reading a file whose variables are not set. The text is never shown or used.
    """

    def __init__(self, environ: Mapping[str, str], *, without: Collection[str] = ()) -> None:
        super().__init__(environ)
        self._without = frozenset(without)

    def __contains__(self, name: object) -> bool:
        return name in self.data or name not in self._without

    def __missing__(self, name: str) -> str:
        if name in self._without:
            raise KeyError(name)
        return "placeholder"
