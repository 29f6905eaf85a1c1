"""The composition root: the only place that knows every concrete part and puts them together."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holodeck.config.agent_loader import LoadedAgent, LoadedTool, ToolCheck, ToolFinding, load_agent_file
from holodeck.config.server_loader import LoadedServers, load_agent_servers
from holodeck.config.yaml_reader import read_document
from holodeck.lib.errors import ConfigError
from holodeck.models.llm import LLM
from holodeck.models.tool import FunctionTool, MCPTool
from holodeck.tools.mcp import launch

if TYPE_CHECKING:
    from holodeck.agent import Agent
    from holodeck.config.gateway_loader import LoadedGateway
    from holodeck.providers.base import ModelProvider
    from holodeck.tools.mcp.executor import Approver
    from holodeck.tools.mcp.plugin import MCPPlugin
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

Elicitor = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Asks a person what the server of this name wants to know."""


@dataclass(frozen=True, kw_only=True)
class People:
    """How a person can be asked while an agent runs. Absent: nobody is there, and the answer is no."""

    approve: Approver | None = None
    elicit: Elicitor | None = None


def read_agent(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    has_model: bool = False,
) -> LoadedAgent:
    """Read an agent file with every check that can be made without starting anything. `has_model`: see the loader."""
    return load_agent_file(path, environ=environ, home=home, checks=_TOOL_CHECKS, has_model=has_model)


def read_gateway(
    path: str | os.PathLike[str], *, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> LoadedGateway:
    """Read a gateway file, or an agent file that is to be served, with every check that starts nothing."""
    from holodeck.config.gateway_loader import gateway_of_agent, is_gateway, load_gateway_file

    if is_gateway(Path(path), str(path)):
        return load_gateway_file(path, environ=environ, home=home, checks=_TOOL_CHECKS)
    return gateway_of_agent(read_agent(path, environ=environ, home=home), environ=environ)


def read_agent_or_gateway(path: str | os.PathLike[str]) -> LoadedAgent | LoadedGateway:
    """Read a file of ours, whichever it is. An agent file is also checked as `holodeck serve` would."""
    from holodeck.config.gateway_loader import gateway_of_agent, is_gateway

    if is_gateway(Path(path), str(path)):
        return read_gateway(path)
    loaded = read_agent(path)
    return replace(loaded, warnings=gateway_of_agent(loaded).warnings)


def load_agent(
    path: str | os.PathLike[str],
    *,
    model: ModelProvider | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    people: People | None = None,
) -> Agent:
    """An agent that can run, from its file. Raises `ConfigError`. `model` stands in for the one in the file."""
    loaded = read_agent(path, environ=environ, home=home, has_model=model is not None)
    return build_agent(loaded, model=model, environ=environ, people=people)


def build_agent(
    loaded: LoadedAgent,
    *,
    model: ModelProvider | None = None,
    environ: Mapping[str, str] | None = None,
    people: People | None = None,
    discovery_timeout: float | None = None,
    revives: bool = False,
    tells_causes: bool = True,
) -> Agent:
    """Put the parts of a loaded agent together. Nothing is started. `discovery_timeout`, `revives`: see `MCPExecutor`.

    `tells_causes`: see `create_mcp_plugin`.
    """
    from holodeck.agent import Agent
    from holodeck.engine.sampling import create_sampling_handler
    from holodeck.tools.function import FunctionExecutor
    from holodeck.tools.mcp.executor import MCPExecutor
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

    agent, folder, asked = loaded.agent, loaded.path.parent, people or People()
    provider = _enforce_format(model) if model else open_model(agent.model, os.environ if environ is None else environ)
    sampling = create_sampling_handler(provider)

    def callbacks_for(server: str) -> Callbacks:
        return Callbacks(sampling=sampling, elicitation=partial(asked.elicit, server) if asked.elicit else None)

    servers = [
        open_server(item, callbacks=callbacks_for(item.tool.name), tells_causes=tells_causes)
        for item in loaded.tools
        if isinstance(item.tool, MCPTool) and item.tool.enabled
    ]
    functions = [tool for tool in agent.tools if isinstance(tool, FunctionTool)]
    return Agent(
        agent,
        model=provider,
        functions=FunctionExecutor(functions, folder),
        mcp=MCPExecutor(servers, approve=asked.approve, discovery_timeout=discovery_timeout, can_revive=revives),
        folder=folder,
    )


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
    """The MCP servers of an agent file, of an `mcp.json` of any program, or the one at a URL or behind a command line.

    `kind` says what the target is; absent, its form does. `env` and `headers` are for a command line and a URL.
    """
    from holodeck.config.mcp_json import load_mcp_servers
    from holodeck.config.mcp_json.command_line import is_command, is_url, load_server_at_url, load_server_of_command

    text = os.fspath(target)
    if kind == "url" or (kind is None and is_url(text)):
        return load_server_at_url(text, headers=headers or {}, shown_as="the URL")
    if kind == "command" or (kind is None and is_command(text)):
        folder = str(cwd or Path.cwd())
        return load_server_of_command(text, env=env or {}, checks=_TOOL_CHECKS, folder=folder, shown_as="the command")
    if _is_other_program_file(Path(text)):
        return load_mcp_servers(text, environ=environ, checks=_TOOL_CHECKS, cwd=cwd)
    return load_agent_servers(text, environ=environ, home=home, checks=_TOOL_CHECKS)


def open_server(loaded: LoadedTool, *, callbacks: Callbacks | None = None, tells_causes: bool = True) -> MCPPlugin:
    """The plugin for a server that a person named, with the login that they made for it. Nothing is started yet."""
    from holodeck.tools.mcp.factory import create_mcp_plugin

    tool = loaded.tool
    if not isinstance(tool, MCPTool):
        raise ConfigError(f"'{tool.name}' is not an MCP server")
    folder = Path(loaded.file).absolute().parent
    if not tool.url:
        return create_mcp_plugin(tool, base_dir=folder, callbacks=callbacks, may_expose_causes=tells_causes)
    from holodeck.tools.mcp.auth.factory import build_auth_provider

    auth = build_auth_provider(tool, base_dir=folder, use_logins=True)
    return create_mcp_plugin(tool, base_dir=folder, callbacks=callbacks, auth=auth, may_expose_causes=tells_causes)


def _is_other_program_file(path: Path) -> bool:
    """Whether a file was written for another program."""
    from holodeck.config.mcp_json.find_servers import has_servers

    if path.suffix in {".json", ".jsonc"}:
        return True
    return path.is_file() and has_servers(read_document(path, str(path)).value)


def open_model(llm: LLM, environ: Mapping[str, str]) -> ModelProvider:
    """The model of a file, ready to be asked."""
    from holodeck.providers.factory import build_model_provider
    from holodeck.providers.wrappers.output_format import FormatEnforcer, format_guarantee_of

    return FormatEnforcer(build_model_provider(llm, environ), is_guaranteed=format_guarantee_of(llm))


def _enforce_format(model: ModelProvider) -> ModelProvider:
    """A model of the caller's own, which promises nothing."""
    from holodeck.providers.wrappers.output_format import FormatEnforcer

    return FormatEnforcer(model)


def _launch_findings(tool: MCPTool) -> Iterator[ToolFinding]:
    for refusal in launch.find_refusals(tool):
        yield ToolFinding(key=refusal.key, message=refusal.message, fix=refusal.fix)


def _auth_findings(tool: MCPTool) -> Iterator[ToolFinding]:
    if tool.auth is None or not tool.enabled:
        return
    from holodeck.tools.mcp.auth.factory import find_auth_problems

    for problem in find_auth_problems(tool):
        yield ToolFinding(key=("auth",), message=problem.message, fix=problem.fix)


_TOOL_CHECKS: Sequence[ToolCheck] = (_launch_findings, _auth_findings)
