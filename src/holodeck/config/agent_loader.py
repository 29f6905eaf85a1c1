"""Loader of agent files: reads `agent.yaml` with the files that it names, and returns a validated agent.

References to variables are resolved, the models validate, each tool is checked, and shared servers are added from
`config.yaml` beside the file and in the user's folder. Files that the agent file names (instructions, the schema of the
response format, Python functions) are read and checked, also where other parts of it are invalid. Every problem is
reported at once. Nothing is started, imported or executed, and the network is not used.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from holodeck.config.checks import agent_problems, find_case_problems
from holodeck.config.files import read_text, record_path
from holodeck.config.known_keys import closest_match
from holodeck.config.launch_files import hash_code_files
from holodeck.config.lint import model_warnings
from holodeck.config.problems import problem_at, value_at
from holodeck.config.source import (
    FileRead,
    ModelDefinition,
    Source,
    list_agent_model_paths,
    list_definitions,
    list_model_paths,
    read_source,
    resolve_models,
)
from holodeck.config.tool_list import LoadedTool, ToolCheck, ToolFinding, ToolListFile
from holodeck.config.yaml_reader import KeyPath, parse_document
from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.schema import SchemaError, check_schema
from holodeck.lib.limits import MAX_AGENT_DEPTH
from holodeck.lib.record import record
from holodeck.models.agent import Agent, SharedSettings
from holodeck.models.llm import LLM
from holodeck.models.tool_rules import USER_SETTINGS, CommandRule

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


@record
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
    reads: tuple[FileRead, ...] = ()
    """The `.env` files that values were taken from, and the files outside the folder that were read."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each Python file that the functions may import, by its path in the folder."""
    models: Mapping[str, LLM] = field(default_factory=dict)
    """The models of the user's own settings, by their names."""
    agents: Mapping[str, LoadedAgent] = field(default_factory=dict)
    """The agents of other files that it may ask, by the names of the tools."""

    def list_all(self) -> list[LoadedAgent]:
        """Return the agent, and all of other files that may be asked while it works."""
        return [self, *(each for asked in self.agents.values() for each in asked.list_all())]


def load_agent_file(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    checks: Sequence[ToolCheck] = (),
    has_model: bool = False,
    allowed_commands: Sequence[str] = (),
    models: Mapping[str, ModelDefinition] | None = None,
    served_agents: Collection[str] | None = None,
    callers: Sequence[Path] = (),
) -> LoadedAgent:
    """Read and validate an agent file. Raises `ConfigError` with every problem.

    `home` is the folder of the user's shared settings, `checks` are further checks of each MCP server.
    `allowed_commands`: those of the gateway that serves the agent, in addition to the user's own.
    `models`, `served_agents`: those of that gateway, which the file may name. `has_model`: the model of the file is not
    used, so that its start checks are skipped. `callers`: the files of the agents that ask this one.
    """
    environ = os.environ if environ is None else environ
    source = read_source(Path(path), str(path), environ, tools_key="tools")
    shared = read_shared_files(source, Path(path), home, environ, checks, allowed_commands)
    source = resolve_models(source, list_agent_model_paths(source), {**shared.models, **(models or {})})
    file = ToolListFile(source, "tools", checks, shared.commands)
    agent = file.validate(Agent)
    tools = file.load_tools()
    project = read_project_files(source)
    file.problems += [*project.problems, *model_warnings(source, environ)]
    if agent is not None:
        file.problems += find_case_problems(agent, source, has_model=has_model)
    if agent is not None and not has_model:
        file.problems += agent_problems(agent, source)
    asked = AskedAgents(source, Path(path), served_agents, callers)
    asked.load(
        partial(
            load_agent_file,
            environ=environ,
            home=home,
            checks=checks,
            allowed_commands=allowed_commands,
            models=models,
            served_agents=served_agents,
        )
    )
    found = [*file.sorted_problems(), *asked.problems, *shared.problems]
    tools += shared.list_others(tools)
    errors = [problem for problem in found if problem.severity == "error"]
    if errors or agent is None:
        raise ConfigError.of([*errors, *(problem for problem in found if problem.severity == "warning")])
    return LoadedAgent(
        agent=project.add_to(agent, tools),
        path=source.path,
        tools=tuple(tools),
        warnings=tuple(found),
        written=source.document.value,
        reads=(*source.reads, *project.reads, *shared.reads),
        code=project.code,
        models=shared.own_models,
        agents=asked.loaded,
    )


class AskedAgents:
    """The agents of other files that an agent file lists among its tools, and the problems with them."""

    def __init__(
        self, source: Source, path: Path, served_agents: Collection[str] | None, callers: Sequence[Path]
    ) -> None:
        """`path`: of the agent file, as the user wrote it. For the others see `load_agent_file`."""
        self.loaded: dict[str, LoadedAgent] = {}
        self.problems: list[Problem] = []
        self._source = source
        self._path = path
        self._served_agents = served_agents
        self._files = (*callers, source.path)

    def load(self, load_file: Callable[..., LoadedAgent]) -> None:
        """Load the files with `load_file`. Raises nothing: `problems` has the errors and the warnings."""
        listed = self._source.data.get("tools")
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            if not isinstance(entry, dict) or entry.get("type") != "agent":
                continue
            name, file, agent = (entry.get(key) for key in ("name", "file", "agent"))
            if isinstance(agent, str) and file is None:
                self._check_served(agent, ("tools", index, "agent"))
            elif isinstance(file, str) and file and isinstance(name, str):
                self._load_file(name, file, ("tools", index, "file"), load_file)

    def _check_served(self, agent: str, key: KeyPath) -> None:
        served = self._served_agents
        if served is None:
            message = f"'{agent}' names an agent of a gateway, and no gateway serves this file here"
            self._add(key, message, "Write 'file' with the path of its agent file, or serve both in one gateway.")
        elif agent not in served:
            close = closest_match(agent, list(served))
            fix = f"Did you mean '{close}'?" if close else f"Its agents: {', '.join(served)}."
            self._add(key, f"the gateway has no agent '{agent}'", fix)

    def _load_file(self, name: str, file: str, key: KeyPath, load_file: Callable[..., LoadedAgent]) -> None:
        path = self._source.folder / file
        known = [each.resolve() for each in self._files]
        if path.resolve() in known:
            circle = [each.name for each in self._files[known.index(path.resolve()) :]]
            message = f"the agents ask each other in a circle: {' -> '.join([*circle, path.name])}"
            self._add(key, message, "Let one of them have the tools that it needs itself.")
        elif len(self._files) >= MAX_AGENT_DEPTH:
            self._add(key, f"agents ask agents more than {MAX_AGENT_DEPTH} deep", "Use fewer levels.")
        elif not path.is_file():
            self._add(key, f"cannot read '{file}': there is no such file")
        else:
            try:
                self.loaded[name] = loaded = load_file(os.path.normpath(self._path.parent / file), callers=self._files)
            except ConfigError as error:
                self.problems += error.problems
            else:
                self.problems += loaded.warnings

    def _add(self, key: KeyPath, message: str, fix: str = "") -> None:
        self.problems.append(problem_at(self._source.document, key, message, fix=fix))


def user_settings_file(home: Path | None = None) -> Path:
    """Return the path of the user's own settings."""
    return (home or Path.home()) / ".holodeck" / SHARED_FILE


def read_user_registry(home: Path | None = None) -> str | None:
    """Return the registry that the user's own settings name. Raises `ConfigError` for settings that are invalid.

    The path of a snapshot is relative to the folder of the settings.
    """
    path = user_settings_file(home)
    if not path.is_file():
        return None
    source = read_source(path, USER_SETTINGS, os.environ, tools_key="mcp_servers")
    value = source.data.get("registry")
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise ConfigError.of([problem_at(source.document, ("registry",), "'registry' must be a URL or a path")])
    if value is None or "://" in value:
        return value
    return str(path.parent / Path(value).expanduser())


@record
class SharedServers:
    """The additions of files of shared settings to an agent. All of it is empty where there is none."""

    tools: tuple[LoadedTool, ...] = ()
    """One for each name: those of the file beside the agent come before the user's own."""
    problems: tuple[Problem, ...] = ()
    reads: tuple[FileRead, ...] = ()
    """The `.env` files that values were taken from, except for the user's own settings."""
    commands: CommandRule = field(default_factory=CommandRule)
    """Which programs the agent file may name, by the user's own settings."""
    models: Mapping[str, ModelDefinition] = field(default_factory=dict)
    """The models that the agent file may name, by the user's own settings."""
    own_models: Mapping[str, LLM] = field(default_factory=dict)
    """The same, validated."""

    def list_others(self, tools: Sequence[LoadedTool]) -> list[LoadedTool]:
        """Return those whose names are not among the names of an agent's own tools."""
        used_names = {item.tool.name for item in tools}
        return [item for item in self.tools if item.tool.name not in used_names]


def read_shared_files(
    source: Source,
    path: Path,
    home: Path | None,
    environ: Mapping[str, str],
    checks: Sequence[ToolCheck],
    allowed_commands: Sequence[str] = (),
) -> SharedServers:
    """Read the shared settings beside an agent file, and the user's own. Raises nothing: `problems` has the errors.

    `path` is that of the agent file, as the user wrote it.
    """
    user_file = user_settings_file(home)
    # In their own settings, users may name any program.
    user = _read_shared(user_file, USER_SETTINGS, environ, checks, CommandRule(allows_all=True))
    commands = CommandRule(allowed=(*allowed_commands, *user.commands.allowed))
    shown = str(path.parent / SHARED_FILE)
    beside = _read_shared(source.folder / SHARED_FILE, shown, environ, checks, commands)
    used_names = {item.tool.name for item in beside.tools}
    return SharedServers(
        tools=(
            *beside.tools,
            *(replace(item, is_personal=True) for item in user.tools if item.tool.name not in used_names),
        ),
        problems=(*beside.problems, *user.problems),
        reads=beside.reads,
        commands=commands,
        models=user.models,
        own_models=user.own_models,
    )


def _read_shared(
    path: Path, shown: str, environ: Mapping[str, str], checks: Sequence[ToolCheck], commands: CommandRule
) -> SharedServers:
    record_path(path)
    if not path.is_file():
        return SharedServers()
    try:
        source = read_source(path, shown, environ, tools_key="mcp_servers")
    except ConfigError as error:
        return SharedServers(problems=error.problems)
    # Many other programs have a config.yaml as well.
    ours = SharedSettings.model_fields.keys() - ({"models"} if shown != USER_SETTINGS else set())
    if not ours & source.data.keys():
        message = "the file has no 'mcp_servers', so it is not HoloDeck's and is not used"
        return SharedServers(problems=(problem_at(source.document, (), message, severity="warning"),))
    for server in source.data["mcp_servers"] if isinstance(source.data.get("mcp_servers"), list) else ():
        if isinstance(server, dict):
            server.setdefault("type", "mcp")
    definitions = list_definitions(source)
    source = resolve_models(source, list_model_paths(source), definitions)
    file = ToolListFile(source, "mcp_servers", checks, commands)
    settings = file.validate(SharedSettings)
    tools = tuple(file.load_tools())
    allowed = tuple(settings.allowed_commands) if settings is not None else ()
    # Only the user's own settings allow all programs.
    if allowed and not commands.allows_all:
        message = "a file of a project cannot allow itself more commands"
        fix = f"Write 'allowed_commands' in {USER_SETTINGS}, or in a gateway file."
        file.problems.append(problem_at(source.document, ("allowed_commands",), message, fix=fix))
    if settings is not None and settings.registry and shown != USER_SETTINGS:
        message = "a file of a project cannot choose your registry"
        fix = f"Write 'registry' in {USER_SETTINGS}."
        file.problems.append(problem_at(source.document, ("registry",), message, fix=fix))
    if settings is not None and settings.models and shown != USER_SETTINGS:
        message = "a file of a project cannot define models for 'use'"
        fix = f"Write 'models' in {USER_SETTINGS}, or the model in the agent file."
        file.problems.append(problem_at(source.document, ("models",), message, fix=fix))
    return SharedServers(
        tools=tools,
        problems=tuple(file.sorted_problems()),
        reads=source.reads,
        commands=CommandRule(allowed=allowed),
        models=definitions,
        own_models={} if settings is None else {each.name: each.model for each in settings.models},
    )


@dataclass(kw_only=True)
class ProjectFiles:
    """The contents of the files, and the problems with them."""

    instructions: str | None = None
    response_format: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)
    reads: list[FileRead] = field(default_factory=list)
    """The files outside the folder."""
    code: dict[str, str] = field(default_factory=dict)
    """See `LoadedAgent.code`."""

    def add_to(self, agent: Agent, tools: Sequence[LoadedTool]) -> Agent:
        """Return the agent with the contents of its files, and with these tools."""
        resolved = {"instructions": self.instructions, "response_format": self.response_format}
        return agent.model_copy(update={**resolved, "tools": [item.tool for item in tools]})


def read_project_files(source: Source) -> ProjectFiles:
    """Read and check every file that an agent file names. Raises nothing: `problems` has the errors."""
    project = ProjectFiles()
    project.instructions = _read_instructions(source, project)
    project.response_format = _read_response_format(source, project)
    tools = source.data.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == "function":
            _check_function(source, tool, ("tools", index), project)
    return project


def _read_instructions(source: Source, project: ProjectFiles) -> str | None:
    value = source.data.get("instructions")
    if not isinstance(value, dict):
        return value if isinstance(value, str) else None
    if not isinstance(value.get("file"), str):
        return value.get("inline") if isinstance(value.get("inline"), str) else None
    text = _read_named_file(source, ("instructions", "file"), project)
    if text is not None and not text.strip():
        project.problems.append(problem_at(source.document, ("instructions", "file"), "the file is empty"))
    return text


def _read_response_format(source: Source, project: ProjectFiles) -> dict[str, Any] | None:
    problems = project.problems
    value = source.data.get("response_format")
    if isinstance(value, str) and value.strip():
        text = _read_named_file(source, ("response_format",), project)
        if text is None:
            return None
        try:
            value = parse_json(text) if text.lstrip().startswith("{") else parse_document(text, value).value
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


def _check_function(source: Source, tool: dict[str, Any], path: KeyPath, project: ProjectFiles) -> None:
    problems = project.problems
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
    text = _read_named_file(source, (*path, "file"), project)
    if text is None or not isinstance(name, str):
        return
    try:
        hashes = hash_code_files((source.folder / file).parent)
    except ConfigError as error:
        problem = error.problems[0]
        problems.append(problem_at(source.document, (*path, "file"), problem.message, fix=problem.fix))
        return
    project.code |= {os.path.relpath(code, source.folder): digest for code, digest in hashes.items()}
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


def _read_named_file(source: Source, path: KeyPath, project: ProjectFiles) -> str | None:
    name = str(value_at(source.data, path))
    written = str(value_at(source.document.value, path))
    try:
        file = source.folder / Path(name).expanduser()
        text = read_text(file, written)
    except (ConfigError, RuntimeError) as error:
        reason = error.problems[0].message if isinstance(error, ConfigError) else "the home folder is not known"
        project.problems.append(problem_at(source.document, path, f"cannot read '{written}': {reason}"))
        return None
    # The file of a function is among the code.
    if path[0] != "tools":
        is_inside = file.resolve().is_relative_to(source.folder.resolve())
        digest = sha256(text.encode()).hexdigest()
        project.reads.append(FileRead(path=written, sha256=digest, is_inside=is_inside))
    return text
