"""Loader of the MCP servers of an agent file, for commands that need no model.

Errors in other parts of the file do not prevent the use of its servers, and an error in one server does not prevent
the use of the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import pydantic

from holodeck.config.agent_loader import read_shared_files
from holodeck.config.problems import problem_at
from holodeck.config.source import FileRead, Source, read_source
from holodeck.config.tool_list import LoadedTool, ToolCheck, ToolListFile
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.record import record
from holodeck.models.agent import Agent
from holodeck.models.tool import MCPTool

_ENTRY = re.compile(r"(\w+)\[(\d+)\]")


@record
class LoadedServers:
    """The valid servers of a file, and the problems of all."""

    tools: tuple[LoadedTool, ...]
    problems: tuple[Problem, ...] = ()
    """Errors of single servers, and warnings, in the order of the file."""
    refused: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    """The errors of each invalid server, by its name."""
    reads: tuple[FileRead, ...] = ()
    """The `.env` files that values were taken from."""


def load_agent_servers(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    checks: Sequence[ToolCheck] = (),
) -> LoadedServers:
    """Read the MCP servers of an agent file, and the shared ones.

    Raises `ConfigError` for a file that is not a mapping, and for errors of its tools that belong to no single server.
    """
    environ = os.environ if environ is None else environ
    return load_servers_of_agent(
        read_source(Path(path), str(path), environ, tools_key="tools"), Path(path), environ, home, checks
    )


def load_servers_of_agent(
    source: Source,
    path: Path,
    environ: Mapping[str, str],
    home: Path | None,
    checks: Sequence[ToolCheck],
    allowed_commands: Sequence[str] = (),
) -> LoadedServers:
    """Return the MCP servers of an agent file that was read, and the shared ones. `path` is as the user wrote it.

    `allowed_commands`: see `load_agent_file`.
    """
    shared = read_shared_files(source, path, home, environ, checks, allowed_commands)
    listed = load_listed_servers(ToolListFile(source, "tools", checks, shared.commands), Agent, ("tools",))
    used_names = {item.tool.name for item in listed.tools} | set(listed.refused)
    tools = [*listed.tools, *(item for item in shared.tools if item.tool.name not in used_names)]
    return LoadedServers(
        tools=tuple(item for item in tools if isinstance(item.tool, MCPTool)),
        problems=(*listed.problems, *shared.problems),
        refused=listed.refused,
        reads=(*listed.reads, *shared.reads),
    )


def load_listed_servers(file: ToolListFile, model: type[pydantic.BaseModel], keys: tuple[str, ...]) -> LoadedServers:
    """Return every valid tool of a file, and the problems of `keys`, which are the lists that concern its servers.

    Errors of other keys become one warning. Raises `ConfigError` for errors that belong to no entry of a list.
    """
    file.validate(model)
    tools, found, elsewhere = file.load_tools(), [], 0
    for problem in file.sorted_problems():
        if not problem.key or problem.key.startswith(keys):
            found.append(problem)
        else:
            elsewhere += problem.severity == "error"
    if elsewhere:
        message = "other parts of this file have errors, which do not concern its servers"
        fix = "'holodeck validate' shows them."
        found.append(problem_at(file.source.document, (), message, fix=fix, severity="warning"))
    refused = _errors_by_entry(found, file.source.data)
    valid = [item for item in tools if item.tool.name not in refused]
    return LoadedServers(tools=tuple(valid), problems=tuple(found), refused=refused, reads=file.source.reads)


def _errors_by_entry(found: Sequence[Problem], data: Mapping[str, Any]) -> dict[str, tuple[Problem, ...]]:
    """Return the errors of each entry of a list by its name.

    Raises `ConfigError` for errors that belong to no entry.
    """
    refused: dict[str, tuple[Problem, ...]] = {}
    other_errors: list[Problem] = []
    for problem in found:
        match = _ENTRY.match(problem.key)
        if problem.severity != "error":
            continue
        if match is None:
            other_errors.append(problem)
            continue
        entry = data[match[1]][int(match[2])]
        name = entry.get("name") if isinstance(entry, dict) else None
        label = str(name) if isinstance(name, str) and name else match[0]
        refused[label] = (*refused.get(label, ()), problem)
    if other_errors:
        raise ConfigError.of(other_errors)
    return refused
