"""Loader of gateway files: reads `gateway.yaml` and the environment, and returns a validated gateway.

The steps, in this order: references to variables are resolved, variables of the environment override values, secrets
are read from their files and literal secrets refused, the models validate, start checks run, and the agent files are
loaded. Every problem of all steps is reported at once. Nothing is started, and the network is not used.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from holodeck.config.agent_loader import DEFAULT_GATEWAY_FILE, LoadedAgent, load_agent_file
from holodeck.config.checks import gateway_problems
from holodeck.config.env_overrides import apply_overrides
from holodeck.config.lint import environment_key_problems, find_unmatched_patterns, find_unpriced_models
from holodeck.config.problems import problem_at
from holodeck.config.secret_refs import SecretResolver
from holodeck.config.server_loader import LoadedServers, load_listed_servers, load_servers_of_agent
from holodeck.config.source import (
    FileRead,
    ModelDefinition,
    Source,
    list_definitions,
    list_model_paths,
    read_source,
    resolve_models,
)
from holodeck.config.tool_list import LoadedTool, ToolCheck, ToolListFile
from holodeck.config.validation import validate
from holodeck.config.yaml_reader import Document, KeyPath, read_document
from holodeck.lib.errors import ConfigError, MCPConfigError, Problem
from holodeck.lib.limits import MAX_AGENT_DEPTH, MIN_SEAL_KEY_BYTES
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.agent import Agent
from holodeck.models.file_model import quote_value
from holodeck.models.gateway import GatewayFile, ServedModel, Storage
from holodeck.models.tool import MCPTool
from holodeck.models.tool_rules import CommandRule

# Values of variables in them change nothing that a gateway does: callers and their limits are no actions.
_INERT_KEYS = ("keys", "groups", "limits")
_OWN_KEY = "Make one for each with 'holodeck keys create NAME': a caller sees what its key has stored."


@record
class LoadedGateway:
    """A gateway that passed every check."""

    gateway: GatewayFile
    path: Path
    agents: Mapping[str, LoadedAgent]
    """The agents by their public model name."""
    servers: tuple[LoadedTool, ...]
    """The gateway's own MCP servers."""
    warnings: tuple[Problem, ...]
    written: Mapping[str, Any] = field(default_factory=dict)
    """The file as written, with references instead of the values of variables. Empty for the gateway of one agent."""
    reads: tuple[FileRead, ...] = ()
    """The `.env` files that the gateway file took values from."""
    uses_logins: bool = False
    """Whether the user's stored logins are used for the gateway's own MCP servers, because it is the user's alone."""

    @property
    def models(self) -> Mapping[str, ServedModel]:
        return {model.name: model for model in self.gateway.models}


def load_gateway_file(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    checks: Sequence[ToolCheck] = (),
    text: str | None = None,
) -> LoadedGateway:
    """Read and validate a gateway file and its agent files. Raises `ConfigError` with every problem.

    `home` is the folder of the user's shared settings, `checks` are further checks of each MCP server. `text`: taken in
    place of what the file has, to check it before it is written.
    """
    environ = os.environ if environ is None else environ
    source = _read_gateway_source(path, environ, text)
    definitions, allowed = list_definitions(source), _allowed_commands(source)
    source = resolve_models(source, list_model_paths(source), definitions)
    file = ToolListFile(source, "mcp_servers", checks, _command_rule(source))
    gateway = file.validate(GatewayFile)
    servers = file.load_tools()
    file.problems += [*_process_problems(source, servers), *_environment_key_problems(source, environ)]
    if gateway is not None:
        file.problems += gateway_problems(gateway, source)
    agents, problems = _load_agents(source, environ, home, checks, allowed, definitions)
    found = [*file.sorted_problems(), *problems, *_name_problems(source, agents)]
    if gateway is not None:
        found += find_unmatched_patterns(gateway, agents, source)
        found += find_unpriced_models(gateway, agents, source)
    errors = [problem for problem in found if problem.severity == "error"]
    if errors or gateway is None:
        raise ConfigError.of([*errors, *(problem for problem in found if problem.severity == "warning")])
    return LoadedGateway(
        gateway=gateway,
        path=source.path,
        agents=agents,
        servers=tuple(servers),
        warnings=tuple(found),
        written=source.document.value,
        reads=source.reads,
    )


def load_gateway_servers(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    checks: Sequence[ToolCheck] = (),
) -> LoadedServers:
    """Read the MCP servers of a gateway file and of its agent files, for commands that need no model.

    An agent's server is named `agent/server` when another server of the gateway has its name. `allow_stdio` does not
    matter. An agent file that cannot be read is among the refused. Raises `ConfigError` as `load_agent_servers` does.
    """
    environ = os.environ if environ is None else environ
    source = _read_gateway_source(path, environ)
    allowed = _allowed_commands(source)
    file = ToolListFile(source, "mcp_servers", checks, _command_rule(source))
    own = load_listed_servers(file, GatewayFile, ("mcp_servers", "agents"))
    groups = [("", own)]
    for _, entry in _agent_entries(source):
        groups.append(_load_servers_of_entry(entry, source.folder / entry["file"], environ, home, checks, allowed))
    tools: dict[tuple[str, str], tuple[str, LoadedTool]] = {}
    for agent, group in groups:
        for item in group.tools:
            # Agents that share a file of servers have the same servers.
            tools.setdefault((item.file, item.tool.name), (agent, item))
    uses = Counter([name for _, name in tools] + [name for _, group in groups for name in group.refused])

    def label(agent: str, name: str) -> str:
        return f"{agent}/{name}" if agent and uses[name] > 1 else name

    return LoadedServers(
        tools=tuple(_rename(item, label(agent, item.tool.name)) for agent, item in tools.values()),
        problems=tuple(dict.fromkeys(problem for _, group in groups for problem in group.problems)),
        refused={label(agent, name): found for agent, group in groups for name, found in group.refused.items()},
        reads=tuple(dict.fromkeys(each for _, group in groups for each in group.reads)),
    )


def _load_servers_of_entry(
    entry: Mapping[str, Any],
    path: Path,
    environ: Mapping[str, str],
    home: Path | None,
    checks: Sequence[ToolCheck],
    allowed_commands: Sequence[str],
) -> tuple[str, LoadedServers]:
    """Return the public name of an agent of the gateway, and its servers.

    An agent file with errors is refused as a whole.
    """
    name = entry.get("name")
    try:
        source = read_source(path, str(path), environ, tools_key="tools")
        name = name or source.data.get("name")
        return str(name or entry["file"]), load_servers_of_agent(source, path, environ, home, checks, allowed_commands)
    except ConfigError as error:
        name = str(name or entry["file"])
        return name, LoadedServers(tools=(), problems=error.problems, refused={name: error.problems})


def _rename(item: LoadedTool, name: str) -> LoadedTool:
    return replace(item, tool=item.tool.model_copy(update={"name": name}))


def gateway_of_agent(loaded: LoadedAgent, *, environ: Mapping[str, str] | None = None) -> LoadedGateway:
    """Return the gateway that serves one agent, as for `holodeck serve agent.yaml`. Raises `ConfigError`.

    The agent file belongs to the user that starts the gateway, so stdio servers are allowed.
    """
    data, problems, origins = apply_overrides(
        {}, os.environ if environ is None else environ, set(GatewayFile.model_fields)
    )
    document = Document(file=str(loaded.path), value={}, variables=origins)
    secrets = SecretResolver(document, loaded.path.parent)
    data = {**secrets.resolve(data), "allow_stdio": True}
    gateway, more = validate(GatewayFile, data, document)
    problems += [*secrets.problems, *more]
    if gateway is not None:
        source = Source(path=loaded.path, document=document, data=data, problems=(), env_files={})
        problems += gateway_problems(gateway, source)
        problems += find_unpriced_models(gateway, {loaded.agent.name: loaded}, source)
    if gateway is None or any(problem.severity == "error" for problem in problems):
        raise ConfigError.of(problems)
    warnings = (*loaded.warnings, *problems)
    agents = {loaded.agent.name: loaded}
    return LoadedGateway(gateway=gateway, path=loaded.path, agents=agents, servers=(), warnings=warnings)


def gateway_of_servers(loaded: LoadedServers, path: Path) -> LoadedGateway:
    """Return the gateway that serves only MCP servers, as for `holodeck mcp serve mcp.json`.

    They belong to the user that starts the gateway, so stdio servers are allowed, and stored logins are used.
    """
    return LoadedGateway(
        gateway=GatewayFile(
            allow_stdio=True,
            storage=Storage(url="sqlite://:memory:"),
            # Nothing outlives the process, so what it seals needs no key that does.
            seal_key=[Secret(token_hex(MIN_SEAL_KEY_BYTES))],
        ),
        path=path,
        agents={},
        servers=loaded.tools,
        warnings=loaded.problems,
        uses_logins=True,
    )


def is_gateway(path: Path, shown_as: str) -> bool:
    """Return whether a file has more keys of a gateway than of an agent; the file name decides a tie.

    Reads the file. Raises `ConfigError` when it cannot be parsed.
    """
    value = read_document(path, shown_as).value
    if not isinstance(value, dict):
        return False
    gateway_keys, agent_keys = set(GatewayFile.model_fields), set(Agent.model_fields)
    surplus = len(set(value) & (gateway_keys - agent_keys)) - len(set(value) & (agent_keys - gateway_keys))
    return surplus > 0 or (surplus == 0 and path.name == DEFAULT_GATEWAY_FILE)


def _read_gateway_source(path: str | os.PathLike[str], environ: Mapping[str, str], text: str | None = None) -> Source:
    """Read a gateway file with the variables of the environment. Raises `ConfigError`."""
    source = read_source(Path(path), str(path), environ, tools_key="mcp_servers", inert_keys=_INERT_KEYS, text=text)
    return _apply_environment(source, environ)


def _apply_environment(source: Source, environ: Mapping[str, str]) -> Source:
    """Apply variables of the environment, then read secrets from their files and refuse literal ones."""
    data, problems, origins = apply_overrides(dict(source.data), environ, set(GatewayFile.model_fields))
    source = replace(source, document=replace(source.document, variables=origins))
    for server in data["mcp_servers"] if isinstance(data.get("mcp_servers"), list) else ():
        if isinstance(server, dict):
            server.setdefault("type", "mcp")
    secrets = SecretResolver(source.document, source.folder)
    resolved = secrets.resolve(data)
    return replace(source, data=resolved, problems=(*source.problems, *problems, *secrets.problems))


def _command_rule(source: Source) -> CommandRule:
    """Return the rule for the gateway's own servers. The user's settings allow programs to agent files only."""
    return CommandRule(allowed=_allowed_commands(source), allowed_in=source.document.file)


def _allowed_commands(source: Source) -> tuple[str, ...]:
    listed = source.data.get("allowed_commands")
    return tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()


def _process_problems(source: Source, servers: Sequence[LoadedTool]) -> list[Problem]:
    if source.data.get("allow_stdio") is True:
        return []
    problems = []
    for item in servers:
        if isinstance(item.tool, MCPTool) and item.tool.starts_process and item.tool.enabled:
            message = "a gateway starts no process unless its file says so"
            fix = "Use transport: http, or write 'allow_stdio: true' at the top level of this file."
            path: KeyPath = ("mcp_servers", _server_index(source, item.tool.name))
            problems.append(problem_at(source.document, path, message, fix=fix, kind=MCPConfigError))
    return problems


def _environment_key_problems(source: Source, environ: Mapping[str, str]) -> list[Problem]:
    entries = source.data.get("models")
    models = [
        (index, entry["model"])
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("model"), dict)
    ]
    return [
        problem
        for index, model in models
        for problem in environment_key_problems(source, model, ("models", index, "model"), environ)
    ]


def _server_index(source: Source, name: str) -> int:
    """Return the index of a server in the list, which may contain invalid entries as well."""
    entries = enumerate(source.data["mcp_servers"])
    return next(index for index, entry in entries if isinstance(entry, dict) and entry.get("name") == name)


def _agent_entries(source: Source) -> list[tuple[int, dict[str, Any]]]:
    """Return the entries of `agents` that name a file, each with its index."""
    entries = source.data.get("agents")
    return [
        (index, entry)
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("file"), str)
    ]


def _load_agents(
    source: Source,
    environ: Mapping[str, str],
    home: Path | None,
    checks: Sequence[ToolCheck],
    allowed_commands: Sequence[str],
    models: Mapping[str, ModelDefinition],
) -> tuple[dict[str, LoadedAgent], list[Problem]]:
    agents: dict[str, LoadedAgent] = {}
    problems: list[Problem] = []
    entries = _agent_entries(source)
    names = [str(entry.get("name") or _read_agent_name(source.folder / entry["file"])) for _, entry in entries]
    for index, entry in entries:
        try:
            loaded = load_agent_file(
                source.folder / entry["file"],
                environ=environ,
                home=home,
                checks=checks,
                allowed_commands=allowed_commands,
                models=models,
                served_agents=names,
            )
        except ConfigError as error:
            problems += error.problems
            continue
        problems += loaded.warnings
        if source.data.get("allow_stdio") is not True and _starts_processes(loaded):
            message = "this agent starts processes, and the gateway's file does not say 'allow_stdio: true'"
            problems.append(problem_at(source.document, ("agents", index, "file"), message, kind=MCPConfigError))
        name = entry.get("name") or loaded.agent.name
        if name in agents:
            problems.append(problem_at(source.document, ("agents", index), f"two agents are served as '{name}'"))
        agents[str(name)] = loaded
    return agents, [*problems, *_find_circles(source, agents)]


def _read_agent_name(path: Path) -> str:
    """Return the name that an agent file gives itself; empty if the file cannot be read, which is said elsewhere."""
    try:
        value = read_document(path, str(path)).value
    except ConfigError:
        return ""
    return str(value.get("name") or "") if isinstance(value, dict) else ""


def _starts_processes(loaded: LoadedAgent) -> bool:
    tools = [tool for each in loaded.list_all() for tool in each.agent.tools]
    return any(isinstance(t, MCPTool) and t.enabled and t.starts_process for t in tools)


def _find_circles(source: Source, agents: Mapping[str, LoadedAgent]) -> list[Problem]:
    """Return the problem of agents that ask themselves by way of others, or that ask too many levels deep."""

    def follow(name: str, agent: LoadedAgent, callers: tuple[str, ...]) -> str | None:
        chain = (*callers, name)
        if name in callers:
            return f"the agents ask each other in a circle: {' -> '.join(chain[callers.index(name) :])}"
        if len(chain) > MAX_AGENT_DEPTH:
            return f"agents ask agents more than {MAX_AGENT_DEPTH} deep: {' -> '.join(chain)}"
        asked = [(f"{name}/{tool}", each) for tool, each in agent.agents.items()]
        named = [tool.agent for tool in agent.agent.asked_agents if tool.agent]
        asked += [(each, agents[each]) for each in named if each in agents]
        return next(filter(None, (follow(*each, chain) for each in asked)), None)

    found = next(filter(None, (follow(name, agent, ()) for name, agent in agents.items())), None)
    if found is None:
        return []
    return [problem_at(source.document, ("agents",), found, fix="Let one of them have the tools that it needs itself.")]


def _name_problems(source: Source, agents: Mapping[str, LoadedAgent]) -> list[Problem]:
    problems: list[Problem] = []
    hashes: set[object] = set()
    for area in ("models", "keys", "groups"):
        entries = source.data.get(area)
        others = set(agents) if area == "models" else set()
        seen: set[str] = set()
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            name = entry.get("name") if isinstance(entry, dict) else None
            if isinstance(name, str) and name in seen | others:
                message = "this name is taken above" if name in seen else "an agent is served by this name, too"
                problems.append(problem_at(source.document, (area, index, "name"), message))
            seen.add(str(name))
            for field_name in ("hash", "old_hash") if area == "keys" and isinstance(entry, dict) else ():
                key = entry.get(field_name)
                if isinstance(key, str) and key in hashes:
                    where: KeyPath = (area, index, field_name)
                    problems.append(problem_at(source.document, where, "two callers have the same key", fix=_OWN_KEY))
                hashes.add(key)
    problems += _compaction_problems(source, agents)
    if not agents and not any(source.data.get(key) for key in ("models", "agents", "mcp_servers")):
        message = "the file serves nothing: it has neither 'models' nor 'agents' nor 'mcp_servers'"
        problems.append(problem_at(source.document, (), message, fix="Add a model, an agent or an MCP server."))
    return problems


def _compaction_problems(source: Source, agents: Mapping[str, LoadedAgent]) -> list[Problem]:
    settings, models = source.data.get("compaction"), source.data.get("models")
    name = settings.get("model") if isinstance(settings, dict) else None
    served = [entry.get("name") for entry in models if isinstance(entry, dict)] if isinstance(models, list) else []
    if not isinstance(name, str) or name in served or name in agents:
        return []
    message = f"no model or agent is served as {quote_value(name)}"
    return [problem_at(source.document, ("compaction", "model"), message, fix="Name one of 'models' or 'agents'.")]
