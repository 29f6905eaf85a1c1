"""The files that an agent file names: instructions, the schema of the response format, Python functions.

They are read and checked, also where other parts of the agent file are invalid. Python files are parsed, and neither
imported nor executed.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.config.files import read_text
from holodeck.config.problems import problem_at, value_at
from holodeck.config.source import Source
from holodeck.config.yaml_reader import KeyPath, parse_document
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.json.schema import SchemaError, check_schema


@dataclass(kw_only=True)
class ProjectFiles:
    """The contents of the files, and the problems with them."""

    instructions: str | None = None
    response_format: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)


def read_project_files(source: Source) -> ProjectFiles:
    """Read and check every file that an agent file names. Raises nothing: `problems` has the errors."""
    project = ProjectFiles()
    project.instructions = _read_instructions(source, project.problems)
    project.response_format = _read_response_format(source, project.problems)
    tools = source.data.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "function":
            _check_function(source, tool, ("tools", index), project.problems)
    return project


def _read_instructions(source: Source, problems: list[Problem]) -> str | None:
    value = source.data.get("instructions")
    if not isinstance(value, dict):
        return value if isinstance(value, str) else None
    if not isinstance(value.get("file"), str):
        return value.get("inline") if isinstance(value.get("inline"), str) else None
    text = _read_named_file(source, ("instructions", "file"), problems)
    if text is not None and not text.strip():
        problems.append(problem_at(source.document, ("instructions", "file"), "the file is empty"))
    return text


def _read_response_format(source: Source, problems: list[Problem]) -> dict[str, Any] | None:
    value = source.data.get("response_format")
    if isinstance(value, str) and value.strip():
        text = _read_named_file(source, ("response_format",), problems)
        if text is None:
            return None
        try:
            value = json.loads(text) if text.lstrip().startswith("{") else parse_document(text, value).value
        except (ValueError, RecursionError):
            problems.append(problem_at(source.document, ("response_format",), "the file is not valid JSON"))
            return None
        except ConfigError as error:
            problems += error.problems
            return None
        if not isinstance(value, dict):
            problems.append(problem_at(source.document, ("response_format",), "the file does not hold a JSON Schema"))
    if not isinstance(value, dict):
        return None
    _check_project_schema(source, ("response_format",), value, problems)
    return value


def _check_project_schema(source: Source, path: KeyPath, schema: dict[str, Any], problems: list[Problem]) -> None:
    try:
        check_schema(schema)
    except SchemaError as error:
        # The reason quotes the schema. That is allowed for a schema as written; the value of a variable may be secret.
        written = value_at(source.document.value, path)
        is_as_written = isinstance(written, str) or written == schema
        reason = str(error) if is_as_written else "this is not a JSON Schema that can be used"
        problems.append(problem_at(source.document, path, reason))


def _check_function(source: Source, tool: dict[str, Any], path: KeyPath, problems: list[Problem]) -> None:
    parameters = tool.get("parameters")
    if isinstance(parameters, dict):
        _check_project_schema(source, (*path, "parameters"), parameters, problems)
        if parameters.get("type", "object") != "object":
            problems.append(
                problem_at(
                    source.document,
                    (*path, "parameters"),
                    "the arguments of a function are an object",
                    fix="Use 'type: object'.",
                )
            )
    file, name = tool.get("file"), tool.get("function")
    if not isinstance(file, str) or not file.strip():
        return
    if not (source.folder / file).resolve().is_relative_to(source.folder.resolve()):
        problems.append(problem_at(source.document, (*path, "file"), "'file' must be inside the agent's folder"))
        return
    if Path(file).suffix != ".py":
        problems.append(problem_at(source.document, (*path, "file"), "a function's file is a Python file (.py)"))
        return
    text = _read_named_file(source, (*path, "file"), problems)
    if text is None or not isinstance(name, str):
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        problems.append(problem_at(source.document, (*path, "file"), f"the file is not valid Python{where}"))
        return
    functions = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    if name not in functions:
        fix = f"It defines: {', '.join(functions[:10])}." if functions else "It defines no function at its top level."
        problems.append(
            problem_at(source.document, (*path, "function"), "the file has no function of this name", fix=fix)
        )


def _read_named_file(source: Source, path: KeyPath, problems: list[Problem]) -> str | None:
    name = str(value_at(source.data, path))
    written = str(value_at(source.document.value, path))
    try:
        return read_text(source.folder / Path(name).expanduser(), written)
    except (ConfigError, RuntimeError) as error:
        reason = error.problems[0].message if isinstance(error, ConfigError) else "the home folder is not known"
        problems.append(problem_at(source.document, path, f"cannot read '{written}': {reason}"))
        return None
