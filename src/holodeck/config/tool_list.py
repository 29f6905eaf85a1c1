"""Validation of a file with a list of tools: the file as a whole, and each tool by itself.

Tools are validated one by one, so that an error in one does not hide those of others, and so that the valid servers of
a file can be used. Paths become absolute, relative to the folder of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from holodeck.config.checks import server_problems
from holodeck.config.launch_files import LaunchFiles, hash_launch_files
from holodeck.config.lint import tool_warnings
from holodeck.config.problems import problem_at
from holodeck.config.source import Source
from holodeck.config.validation import validate
from holodeck.config.yaml_reader import KeyPath
from holodeck.lib.errors import MCPConfigError, Problem
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.file_model import Substituted, as_written
from holodeck.models.tool import AgentTool, FunctionTool, MCPTool
from holodeck.models.tool_rules import CommandRule

_SERVERS_KEY = "mcp_servers"
"""The key of files that several agents share. These list no functions: a function belongs to an agent's folder."""
Model = TypeVar("Model", bound=pydantic.BaseModel)


@record
class ToolFinding:
    """An error that a check outside this package has found in a tool. `key` is relative to the tool."""

    key: KeyPath
    message: str
    fix: str = ""


ToolCheck = Callable[[MCPTool, Path], Iterable[ToolFinding]]
"""Checks one MCP server of a file, whose folder is the second argument."""


@record
class LoadedTool:
    """A valid tool; `written` is its entry with references instead of values, the form that may be shown."""

    tool: MCPTool | FunctionTool | AgentTool
    written: Mapping[str, Any]
    file: str
    """The file that defines it, as messages name it."""
    folder: Path
    """The folder of that file, which relative paths start from."""
    is_personal: bool = False
    """Whether the user's own settings define it."""
    files: LaunchFiles = field(default_factory=LaunchFiles)
    """The files in `folder` that its command runs."""


class ToolListFile:
    """A file with its problems so far. `checks` are further checks of each MCP server.

    `commands`: programs that may start its servers besides npx, uvx and docker.
    """

    def __init__(
        self, source: Source, tools_key: str, checks: Sequence[ToolCheck], commands: CommandRule | None = None
    ) -> None:
        self.source = source if commands is None else _allow_commands(source, tools_key, commands)
        self.problems: list[Problem] = list(source.problems)
        self._tools_key = tools_key
        self._checks = checks

    def validate(self, model: type[Model]) -> Model | None:
        """Return the whole file as a model, or None when it is invalid; `problems` has the reasons then.

        A key with an unresolved reference has one problem only.
        """
        result, problems = validate(model, self.source.data, self.source.document)
        unresolved = {problem.key for problem in self.problems if problem.severity == "error"}
        self.problems += [problem for problem in problems if problem.key not in unresolved]
        return result

    def load_tools(self) -> list[LoadedTool]:
        """Return every tool that is valid by itself. Problems of names and of checks are added to `problems`."""
        loaded: list[LoadedTool] = []
        listed = self.source.data.get(self._tools_key)
        entries = listed if isinstance(listed, list) else []
        self._check_unique_names(entries)
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict):
                continue
            path: KeyPath = (self._tools_key, index)
            tool = _validate_entry(entry)
            if isinstance(tool, MCPTool):
                self.problems += tool_warnings(self.source, entry, path)
                tool = self._with_absolute_paths(tool, path)
                self._run_checks(tool, path)
            if isinstance(tool, FunctionTool | AgentTool) and self._tools_key == _SERVERS_KEY:
                fix = "List it under 'tools' of the agent that uses it."
                kind = "a function" if isinstance(tool, FunctionTool) else "an agent"
                problem = problem_at(self.source.document, path, f"{kind} is no MCP server", fix=fix)
                self.problems.append(problem)
            elif tool is not None:
                written, file = _restore_references(entry), self.source.document.file
                folder = self.source.folder.absolute()
                files = hash_launch_files(tool, folder) if isinstance(tool, MCPTool) else LaunchFiles()
                loaded.append(LoadedTool(tool=tool, written=written, file=file, folder=folder, files=files))
        return loaded

    def sorted_problems(self) -> list[Problem]:
        """Return the problems in the order of the file, those of other files, such as a `.env`, last."""
        here = self.source.document.file
        return sorted(self.problems, key=lambda problem: (problem.file != here, problem.line or 0))

    def _with_absolute_paths(self, tool: MCPTool, path: KeyPath) -> MCPTool:
        """Return the tool with absolute paths, and with the variables of its `envFile` in its environment."""
        folder = self.source.folder
        update: dict[str, Any] = {"roots": [_absolute_path(folder, root) for root in tool.roots]}
        if tool.starts_process:
            update["cwd"] = _absolute_path(folder, tool.cwd or ".")
            from_file = {name: Secret(value) for name, value in self.source.env_files.get(path, {}).items()}
            update["env"] = from_file | tool.env
            limits = tool.sandbox_limits
            if limits is not None:
                lists = {"read": limits.read, "write": limits.write}
                paths = {key: [_absolute_path(folder, path) for path in listed] for key, listed in lists.items()}
                update["sandbox"] = limits.model_copy(update=paths)
        if tool.env_file:
            update["env_file"] = _absolute_path(folder, tool.env_file)
        return tool.model_copy(update=update)

    def _run_checks(self, tool: MCPTool, path: KeyPath) -> None:
        document = self.source.document
        self.problems += server_problems(tool, path, self.source)
        for check in self._checks:
            for finding in check(tool, self.source.folder):
                where = (*path, *finding.key)
                self.problems.append(problem_at(document, where, finding.message, fix=finding.fix, kind=MCPConfigError))

    def _check_unique_names(self, entries: Sequence[Any]) -> None:
        first: dict[str, int] = {}
        for index, entry in enumerate(entries):
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                continue
            if name in first:
                line = self.source.document.position_of((self._tools_key, first[name], "name")).line
                message = f"two tools have this name (the first in line {line})"
                where: KeyPath = (self._tools_key, index, "name")
                fix = "Give each tool a name of its own."
                self.problems.append(problem_at(self.source.document, where, message, fix=fix))
            first.setdefault(name, index)


def _allow_commands(source: Source, tools_key: str, commands: CommandRule) -> Source:
    listed = source.data.get(tools_key)
    if not isinstance(listed, list):
        return source
    tools = [commands.apply(tool) if isinstance(tool, dict) else tool for tool in listed]
    return replace(source, data={**source.data, tools_key: tools})


def _validate_entry(entry: dict[str, Any]) -> MCPTool | FunctionTool | AgentTool | None:
    models: dict[str, type[MCPTool | FunctionTool | AgentTool]] = {
        "mcp": MCPTool,
        "function": FunctionTool,
        "agent": AgentTool,
    }
    model = models.get(str(entry.get("type")))
    try:
        return model.model_validate(entry) if model is not None else None
    except pydantic.ValidationError:
        return None


def _restore_references(value: Any) -> Any:
    """Return the value as written in the file, with references instead of the values of variables."""
    if isinstance(value, dict):
        return {key: _restore_references(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore_references(item) for item in value]
    return as_written(value) if isinstance(value, Substituted) else value


def _absolute_path(folder: Path, path: str) -> str:
    if path.startswith("file://"):
        return path
    try:
        return str(folder / Path(path).expanduser())
    except RuntimeError:
        # `~name` of a user without a home folder.
        return str(folder / path)
