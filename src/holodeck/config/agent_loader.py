"""Loader of agent files: reads `agent.yaml` with the files that it names, and returns a validated agent.

References to variables are resolved, the models validate, each tool is checked, and shared servers are added from
`config.yaml` beside the file and in the user's folder. Every problem is reported at once. Nothing is started, and the
network is not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.config.lint import model_warnings
from holodeck.config.problems import problem_at
from holodeck.config.project_files import read_project_files
from holodeck.config.source import Source, read_source
from holodeck.config.start_checks import agent_problems
from holodeck.config.tool_list import LoadedTool, ToolCheck, ToolFinding, ToolListFile
from holodeck.lib.errors import ConfigError, Problem
from holodeck.models.agent import Agent, SharedSettings

__all__ = [
    "DEFAULT_AGENT_FILE",
    "DEFAULT_GATEWAY_FILE",
    "LoadedAgent",
    "LoadedTool",
    "ToolCheck",
    "ToolFinding",
    "load_agent_file",
]

DEFAULT_AGENT_FILE = "agent.yaml"
DEFAULT_GATEWAY_FILE = "gateway.yaml"
SHARED_FILE = "config.yaml"


@dataclass(frozen=True, kw_only=True)
class LoadedAgent:
    """An agent that passed every check, with the warnings about its file."""

    agent: Agent
    """`instructions` and `response_format` have the contents of their files."""
    path: Path
    tools: tuple[LoadedTool, ...]
    """The agent's tools in order, then those that it shares with other agents."""
    warnings: tuple[Problem, ...]
    written: Mapping[str, Any] = field(default_factory=dict)
    """The file as written, with references instead of the values of variables: the form that may be shown."""


def load_agent_file(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    checks: Sequence[ToolCheck] = (),
    has_model: bool = False,
) -> LoadedAgent:
    """Read and validate an agent file. Raises `ConfigError` with every problem.

    `home` is the folder of the user's shared settings, `checks` are further checks of each MCP server.
    `has_model`: the model of the file is not used, so that its start checks are skipped.
    """
    environ = os.environ if environ is None else environ
    source = read_source(Path(path), str(path), environ, tools_key="tools")
    file = ToolListFile(source, "tools", checks)
    agent = file.validate(Agent)
    tools = file.load_tools()
    project = read_project_files(source)
    file.problems += [*project.problems, *model_warnings(source, environ)]
    if agent is not None and not has_model:
        file.problems += agent_problems(agent, source)
    found = file.sorted_problems()
    for settings_path, shown in shared_files(source, Path(path), home):
        shared, problems = read_shared(settings_path, shown, environ, checks)
        found += problems
        used_names = {item.tool.name for item in tools}
        tools += [item for item in shared if item.tool.name not in used_names]
    errors = [problem for problem in found if problem.severity == "error"]
    if errors or agent is None:
        raise ConfigError.of([*errors, *(problem for problem in found if problem.severity == "warning")])
    resolved = {
        "tools": [item.tool for item in tools],
        "instructions": project.instructions,
        "response_format": project.response_format,
    }
    return LoadedAgent(
        agent=agent.model_copy(update=resolved),
        path=source.path,
        tools=tuple(tools),
        warnings=tuple(found),
        written=source.document.value,
    )


def shared_files(source: Source, path: Path, home: Path | None) -> list[tuple[Path, str]]:
    """The paths of shared settings, with the name that each has in errors: beside the agent file, then the user's."""
    user_file = (home or Path.home()) / ".holodeck" / SHARED_FILE
    return [(source.folder / SHARED_FILE, str(path.parent / SHARED_FILE)), (user_file, f"~/.holodeck/{SHARED_FILE}")]


def read_shared(
    path: Path, shown: str, environ: Mapping[str, str], checks: Sequence[ToolCheck]
) -> tuple[list[LoadedTool], list[Problem]]:
    """The servers of a file of shared settings, and its problems. Both are empty for a file that does not exist."""
    if not path.is_file():
        return [], []
    try:
        source = read_source(path, shown, environ, tools_key="mcp_servers")
    except ConfigError as error:
        return [], list(error.problems)
    # Many other programs have a config.yaml as well.
    if "mcp_servers" not in source.data:
        message = "the file has no 'mcp_servers', so it is not HoloDeck's and is not used"
        return [], [problem_at(source.document, (), message, severity="warning")]
    for server in source.data["mcp_servers"] if isinstance(source.data["mcp_servers"], list) else ():
        if isinstance(server, dict):
            server.setdefault("type", "mcp")
    file = ToolListFile(source, "mcp_servers", checks)
    file.validate(SharedSettings)
    return file.load_tools(), file.sorted_problems()
