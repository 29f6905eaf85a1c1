"""References of files of other programs: those with a meaning outside an editor, and the problems of the others.

The environment has the answers to the `inputs` of a file: `${input:api-key}` is the variable `INPUT_API_KEY`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holodeck.config.interpolation import Vocabulary, malformed_reference_problem, missing_variable_problem
from holodeck.lib.errors import Problem
from holodeck.models.file_model import quote_value

_EDITOR_WORDS = frozenset(
    {"file", "fileBasename", "fileBasenameNoExtension", "fileExtname", "fileDirname", "fileDirnameBasename"}
    | {"fileWorkspaceFolder", "fileWorkspaceFolderBasename", "relativeFile", "relativeFileDirname", "lineNumber"}
    | {"columnNumber", "selectedText", "selectedPosition", "execPath", "defaultBuildTask", "extensionInstallFolder"}
)
_EDITOR_KINDS: Mapping[str, str] = {
    "command": "runs a command of the editor",
    "config": "reads a setting of the editor",
    "workspaceFolder": "names one of several folders of the editor",
}


def build_vocabulary(
    workspace: Path, environ: Mapping[str, str], inputs: Iterable[Mapping[str, Any]], cwd: Path
) -> Vocabulary:
    """The vocabulary of a file: folders, separators, and the answers to its `inputs` from the environment."""
    fixed_values = {
        "workspaceFolder": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "userHome": str(Path.home()),
        "cwd": str(cwd),
        "pathSeparator": os.sep,
        "/": os.sep,
    }
    known = {str(item.get("id")): item for item in inputs}
    answers = {f"input:{name}": _find_input_answer(name, item, environ) for name, item in known.items()}
    fixed_values |= {name: answer for name, answer in answers.items() if answer is not None}

    def malformed_problem(written: str) -> Problem:
        kind, colon, name = written.removeprefix("${").removesuffix("}").partition(":")
        if kind == "input" and colon:
            return _unanswered_input_problem(name, known.get(name), environ)
        if kind in _EDITOR_KINDS and colon:
            return _editor_only_problem(written, _EDITOR_KINDS[kind])
        return malformed_reference_problem(written)

    return Vocabulary(
        fixed_values=fixed_values, missing_problem=_missing_variable_problem, malformed_problem=malformed_problem
    )


def input_variable(name: str) -> str:
    """The environment variable with the answer to an input: `INPUT_API_KEY` for `api-key`."""
    return "INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", name).upper()


def _find_input_answer(name: str, item: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    answer = environ.get(input_variable(name))
    default = item.get("default")
    return answer if answer is not None else default if isinstance(default, str) and default else None


def _unanswered_input_problem(name: str, item: Mapping[str, Any] | None, environ: Mapping[str, str]) -> Problem:
    variable = input_variable(name)
    about = f" ({item['description']})" if item and isinstance(item.get("description"), str) else ""
    if item is None and variable in environ:
        return Problem(
            message=f"the input {quote_value(name)} is not listed in 'inputs'", fix="List it, or use ${env:NAME}."
        )
    return Problem(message=f"the input {quote_value(name)} has no answer{about}", fix=f"Set it: export {variable}=...")


def _missing_variable_problem(name: str) -> Problem:
    if name in _EDITOR_WORDS:
        return _editor_only_problem(f"${{{name}}}", "speaks of what is open in the editor")
    missing = missing_variable_problem(name)
    return Problem(
        message=missing.message,
        fix=f"Set it (export {name}=...), put it in a .env file beside this file, or write ${{{name}:-default}}.",
    )


def _editor_only_problem(written: str, what: str) -> Problem:
    return Problem(
        message=f"{quote_value(written)} {what}, which does not exist here",
        fix="Write the value, ${workspaceFolder}, or a variable: ${env:NAME}.",
    )
