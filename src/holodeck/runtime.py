"""Composition root: reads configuration files and builds agents, MCP servers and models from them.

`read_*` functions load and check a file; `build_runner`, `open_server` and `open_model` build objects from what was
loaded. None of them starts a process or opens a connection. Invalid configuration raises `ConfigError`. Modules that
only a built agent needs are imported inside the functions, so that reading a file stays fast. Models and servers that
are built while a cassette is open are recorded, or replayed from it: see `cassettes`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holodeck.cassettes.active import find_track
from holodeck.config.agent_loader import LoadedAgent, LoadedTool, ToolCheck, ToolFinding, load_agent_file
from holodeck.config.server_loader import LoadedServers, load_agent_servers
from holodeck.config.yaml_reader import read_document
from holodeck.lib.errors import ConfigError
from holodeck.lib.ids import new_id
from holodeck.lib.record import record
from holodeck.models.llm import LLM
from holodeck.models.tool import FunctionTool, MCPTool
from holodeck.tools.mcp.launch.plan import find_mount_refusals, find_refusals

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.config.gateway_loader import LoadedGateway
    from holodeck.providers.base import ModelProvider
    from holodeck.providers.wrappers.output_format import FindProblem
    from holodeck.tools.calls import AskPerson
    from holodeck.tools.mcp.discovery import MCPToolInfo
    from holodeck.tools.mcp.lint.finding import Finding
    from holodeck.tools.mcp.plugin import MCPPlugin
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

Elicitor = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Asks a person the question of the server of this name, with the parameters of its request, and returns the answer."""


@record
class People:
    """Callbacks that ask a person while an agent runs. A question without its callback is answered with no."""

    approve: AskPerson | None = None
    approved: tuple[str, ...] = ()
    """Names or globs of tools whose calls are approved without a question."""
    elicit: Elicitor | None = None


def read_agent(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    has_model: bool = False,
) -> LoadedAgent:
    """Read an agent file with every check that starts nothing. `has_model`: see `load_agent_file`.

    While a cassette is replayed, the file may refer to secrets that are not there: no model and no server gets them.
    """
    track = find_track()
    if track is not None and track.is_replay:
        from holodeck.cassettes.missing_secrets import add_missing_secrets

        environ, has_model = add_missing_secrets(Path(path), os.environ if environ is None else environ, home), True
    return load_agent_file(path, environ=environ, home=home, checks=_TOOL_CHECKS, has_model=has_model)


def read_gateway(
    path: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> LoadedGateway:
    """Read a gateway file, or an agent file as a gateway would serve it, with every check that starts nothing."""
    from holodeck.config.gateway_loader import gateway_of_agent, is_gateway, load_gateway_file

    if is_gateway(Path(path), str(path)):
        return load_gateway_file(path, environ=environ, home=home, checks=_TOOL_CHECKS)
    return gateway_of_agent(read_agent(path, environ=environ, home=home), environ=environ)


def read_agent_or_gateway(path: str | os.PathLike[str]) -> LoadedAgent | LoadedGateway:
    """Read an agent file or a gateway file. An agent file also has the warnings that `holodeck serve` would give."""
    from holodeck.config.gateway_loader import gateway_of_agent, is_gateway

    if is_gateway(Path(path), str(path)):
        return read_gateway(path)
    loaded = read_agent(path)
    return replace(loaded, warnings=gateway_of_agent(loaded).warnings)


def build_runner(
    loaded: LoadedAgent,
    *,
    model: ModelProvider | None = None,
    environ: Mapping[str, str] | None = None,
    people: People | None = None,
    callbacks: Callbacks | None = None,
    discovery_timeout: float | None = None,
    revives: bool = False,
    tells_causes: bool = True,
    find_output_problem: FindProblem | None = None,
) -> AgentRunner:
    """Build what runs an agent, with its model and servers; nothing is started. `model` replaces that of the file.

    `find_output_problem`: a further check of answers that match the response format. `callbacks`: for all servers,
    beside those that ask the model and people. `discovery_timeout`, `revives`: see `MCPExecutor`, where the latter is
    `can_revive`. `tells_causes`: see `create_mcp_plugin`, where it is `may_expose_causes`.
    """
    from holodeck.agent_runner import AgentRunner
    from holodeck.engine.sampling import create_sampling_handler
    from holodeck.tools.calls import TerminalApprover
    from holodeck.tools.function import FunctionExecutor
    from holodeck.tools.mcp.executor import MCPExecutor
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

    agent, folder = loaded.agent, loaded.path.parent
    people = people or People()
    environ = os.environ if environ is None else environ
    track = find_track()
    if track is not None:
        track.set_agent(loaded.path)
    if model is None:
        provider = open_model(agent.model, environ, find_problem=find_output_problem)
    else:
        provider = _enforce_format(model, find_output_problem)
    build = partial(
        build_runner,
        environ=environ,
        people=people,
        callbacks=callbacks,
        discovery_timeout=discovery_timeout,
        revives=revives,
        tells_causes=tells_causes,
    )
    callbacks = replace(callbacks or Callbacks(), sampling=create_sampling_handler(lambda: runner.model))
    servers = _open_servers(loaded, callbacks, people.elicit, tells_causes=tells_causes)
    functions = [tool for tool in agent.tools if isinstance(tool, FunctionTool)]
    runner = AgentRunner(
        agent,
        model=provider,
        functions=FunctionExecutor(functions, folder, {folder / path: digest for path, digest in loaded.code.items()}),
        approver=TerminalApprover(people.approve, people.approved) if people.approve or people.approved else None,
        mcp=MCPExecutor(servers, discovery_timeout=discovery_timeout, can_revive=revives),
        asked=[(each, build(loaded.agents[each.name])) for each in agent.asked_agents if each.name in loaded.agents],
        folder=folder,
        make_id=new_id if track is None else track.make_id,
        is_offline=track is not None and track.is_replay,
    )
    return runner


def _open_servers(
    loaded: LoadedAgent, callbacks: Callbacks, elicit: Elicitor | None, *, tells_causes: bool
) -> list[MCPPlugin]:
    """Build the MCP servers of an agent. `elicit`: answers their questions."""
    return [
        open_server(
            item,
            callbacks=replace(callbacks, elicitation=partial(elicit, item.tool.name) if elicit else None),
            tells_causes=tells_causes,
        )
        for item in loaded.tools
        if isinstance(item.tool, MCPTool) and item.tool.enabled
    ]


def read_servers(
    target: str | os.PathLike[str],
    *,
    kind: Literal["file", "url", "command"] | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> LoadedServers:
    """Read the MCP servers of an agent or gateway file or any program's `mcp.json`, or one from a URL or command line.

    `kind`: what the target is; None derives it from the form of the target. `env` is for a command line, `headers`
    for a URL.
    """
    from holodeck.config.mcp_json.loader import load_mcp_servers
    from holodeck.config.mcp_json.transport import is_command, is_url, load_server_at_url, load_server_of_command

    text = os.fspath(target)
    if kind == "url" or (kind is None and is_url(text)):
        return load_server_at_url(text, headers=headers or {}, shown_as="the URL")
    if kind == "command" or (kind is None and is_command(text)):
        folder = str(cwd or Path.cwd())
        return _allow_unsafe_args(load_server_of_command(text, env=env or {}, folder=folder, shown_as="the command"))
    if is_other_program_file(Path(text)):
        return _allow_unsafe_args(load_mcp_servers(text, environ=environ, cwd=cwd))
    from holodeck.config.gateway_loader import is_gateway, load_gateway_servers

    if is_gateway(Path(text), text):
        return load_gateway_servers(text, environ=environ, home=home, checks=_TOOL_CHECKS)
    return load_agent_servers(text, environ=environ, home=home, checks=_TOOL_CHECKS)


def read_server_dictionary(servers: Mapping[str, Any], folder: Path) -> LoadedServers:
    """Read the MCP servers of a program's dictionary, in the form of `mcp.json`. `folder`: where paths start."""
    from holodeck.config.mcp_json.loader import load_server_entries
    from holodeck.config.yaml_reader import Document

    value = dict(servers) if "mcpServers" in servers or "servers" in servers else {"mcpServers": dict(servers)}
    document = Document(file="the dictionary", value=value)
    return _allow_unsafe_args(load_server_entries(document, folder / "mcp.json", os.environ, folder))


def _allow_unsafe_args(loaded: LoadedServers) -> LoadedServers:
    """Allow the arguments that are refused in our own files: a person has typed them, or trusts the file as a whole."""
    return replace(
        loaded,
        tools=tuple(
            replace(item, tool=item.tool.model_copy(update={"allow_unsafe_args": True}))
            if isinstance(item.tool, MCPTool) and item.tool.starts_process
            else item
            for item in loaded.tools
        ),
    )


def open_server(
    loaded: LoadedTool, *, callbacks: Callbacks | None = None, tells_causes: bool = True, is_locked: bool = True
) -> MCPPlugin:
    """Build the plugin for an operator's server, with the stored login of that server, if any. Nothing is started.

    `is_locked`: tools that differ from `holodeck.lock` are withheld, if there is one beside the file of the server.
    Raises `ConfigError` for a tool that is not an MCP server, and for a damaged lock.
    """
    from holodeck.tools.mcp.factory import create_mcp_plugin
    from holodeck.tools.mcp.lock.lock_file import read_server_lock

    tool = loaded.tool
    if not isinstance(tool, MCPTool):
        raise ConfigError(f"'{tool.name}' is not an MCP server")
    folder = loaded.folder
    lock = read_server_lock(folder / Path(loaded.file).name, tool.name) if is_locked else None
    track, auth = find_track(), None
    is_offline = track is not None and track.is_replay
    if tool.url and not is_offline:
        from holodeck.tools.mcp.auth.factory import build_auth_provider

        auth = build_auth_provider(tool, base_dir=folder, use_logins=True)
    return create_mcp_plugin(
        tool,
        base_dir=folder,
        callbacks=callbacks,
        auth=auth,
        lock=lock,
        may_expose_causes=tells_causes,
        build_transport=None if track is None else track.build_transport,
        is_offline=is_offline,
    )


def lint_servers(
    servers: Sequence[LoadedTool], tools: Mapping[str, Sequence[MCPToolInfo]], names: Sequence[str]
) -> list[Finding]:
    """Return the findings of lint in the entries of servers and in their tools, errors first. Nothing is started.

    `tools`: by the name of the server, what it lists; empty for servers that were not asked. `names`: all servers of
    the file, also those that are not examined.
    """
    from holodeck.tools.mcp.lint.servers import LintSubject, check_servers

    subjects = []
    for item in servers:
        args = item.written.get("args")
        if isinstance(item.tool, MCPTool):
            written = [str(arg) for arg in args] if isinstance(args, list) else []
            listed = tools.get(item.tool.name, ())
            subjects.append(LintSubject(entry=item.tool, written_args=written, tools=listed))
    return check_servers(subjects, names)


def open_model(llm: LLM, environ: Mapping[str, str], *, find_problem: FindProblem | None = None) -> ModelProvider:
    """Build the model provider of a file, wrapped so that its answers fit the response format."""
    model = _build_fallback(llm, environ, find_problem) if llm.fallback else _build_model(llm, environ, find_problem)
    track = find_track()
    return model if track is None else track.open_model(model)


def _build_fallback(llm: LLM, environ: Mapping[str, str], find_problem: FindProblem | None) -> ModelProvider:
    """Build a model with its stand-ins."""
    from holodeck.providers.wrappers.fallback import Fallback, Member

    usual = llm.model_copy(update={"fallback": []})
    members = {"": usual, **llm.stand_ins}
    return Fallback(
        [
            Member(_build_model(each, environ, find_problem, has_alternatives=True), each, label)
            for label, each in members.items()
        ]
    )


def _build_deployments(
    llm: LLM, environ: Mapping[str, str], find_problem: FindProblem | None, *, has_alternatives: bool
) -> ModelProvider:
    """Build a model with several deployments."""
    from holodeck.providers.wrappers.deployments import DeploymentMember, Deployments

    has_alternatives = has_alternatives or len(llm.deployments) > 1
    members = []
    for each, settings in zip(llm.list_deployments(), llm.deployments, strict=True):
        model = _build_model(each, environ, find_problem, has_alternatives=has_alternatives)
        members.append(DeploymentMember(model, each, settings))
    return Deployments(members)


def _build_model(
    llm: LLM, environ: Mapping[str, str], find_problem: FindProblem | None, *, has_alternatives: bool = False
) -> ModelProvider:
    """Build one model. `has_alternatives`: see `build_model_provider`."""
    if llm.deployments:
        return _build_deployments(llm, environ, find_problem, has_alternatives=has_alternatives)
    from holodeck.providers.factory import build_model_provider
    from holodeck.providers.wrappers.output_format import (
        FormatEnforcer,
        ObjectFormat,
        format_guarantee_of,
        is_json_guaranteed_by,
    )

    provider = build_model_provider(llm, environ, has_alternatives=has_alternatives)
    return FormatEnforcer(
        # Only the types of a program, whose answers have a further check, may be other than an object.
        provider if find_problem is None else ObjectFormat(provider),
        is_guaranteed=format_guarantee_of(llm),
        is_json_guaranteed=is_json_guaranteed_by(llm),
        find_problem=find_problem,
    )


def open_pass_through(llm: LLM, environ: Mapping[str, str]) -> dict[str, ModelProvider]:
    """Build what hands on bodies to the other APIs of a model's server, by their paths; empty where it has none."""
    from holodeck.providers.factory import build_pass_through

    llm = llm.list_deployments()[0]
    built = {path: build_pass_through(llm, environ, path) for path in ("/embeddings", "/completions")}
    return {path: model for path, model in built.items() if model is not None}


def is_other_program_file(path: Path) -> bool:
    from holodeck.config.mcp_json.find_servers import has_servers

    if path.suffix in {".json", ".jsonc", ".toml"}:
        return True
    return path.is_file() and has_servers(read_document(path, str(path)).value)


def _enforce_format(model: ModelProvider, find_problem: FindProblem | None) -> ModelProvider:
    # A provider of the caller guarantees no format, so every answer is checked.
    from holodeck.providers.wrappers.output_format import FormatEnforcer

    checked = FormatEnforcer(model, find_problem=find_problem)
    track = find_track()
    return checked if track is None else track.open_model(checked)


def _launch_findings(tool: MCPTool, folder: Path) -> Iterator[ToolFinding]:
    refusals = {refusal.key: refusal for refusal in (*find_mount_refusals(tool, folder), *find_refusals(tool))}
    for refusal in refusals.values():
        yield ToolFinding(key=refusal.key, message=refusal.message, fix=refusal.fix)


def _auth_findings(tool: MCPTool, _folder: Path) -> Iterator[ToolFinding]:
    if tool.auth is None or not tool.enabled:
        return
    from holodeck.tools.mcp.auth.factory import find_auth_problems

    for problem in find_auth_problems(tool):
        yield ToolFinding(key=("auth",), message=problem.message, fix=problem.fix)


_TOOL_CHECKS: Sequence[ToolCheck] = (_launch_findings, _auth_findings)
