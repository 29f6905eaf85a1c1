"""The backends of a gateway: the model or agent behind each public model name, with the tools that it runs.

`build_backends` builds all of them anew, and starts nothing. When the configuration of a running gateway changes,
`reuse_unchanged` puts those models, servers and functions into them that are defined as before, so that their
connections stay open.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from holodeck.agent_runner import AgentRunner
from holodeck.config.agent_loader import LoadedAgent
from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.auth.scope import CallerScope
from holodeck.lib import log
from holodeck.lib.errors import ExecutionError
from holodeck.lib.record import record
from holodeck.mcp_server.list_changes import ListChanges
from holodeck.models.llm import LLM
from holodeck.models.model_io import ToolSpec
from holodeck.models.price import find_table_currency
from holodeck.models.tool import MCPTool
from holodeck.providers.base import ModelProvider
from holodeck.runtime import build_runner, open_model, open_pass_through, open_server
from holodeck.tools.agents import build_agent_spec
from holodeck.tools.executor import ToolExecutor
from holodeck.tools.function import FunctionExecutor
from holodeck.tools.mcp.executor import MCPExecutor
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.lock.lock_file import LockFile, read_lock
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.server_tools import ServerTools

# Stored with every trace. It tells a text from the one before it, and is no defence.
_DIGEST_BYTES = 8


@record
class AskedBackend:
    """An agent that the model of another one may ask."""

    spec: ToolSpec
    """The tool that asks it."""
    name: str
    """Name of its backend."""
    is_inner: bool
    """Whether it has a file that only its caller names, and is served to nobody else."""


@record
class Backend:
    """A plain model or an agent, under its public model name."""

    name: str
    created: int
    llm: LLM
    provider: ModelProvider
    mcp: MCPExecutor
    max_turns: int
    description: str | None = None
    """What the agent is for; None for a plain model."""
    is_agent: bool = False
    """An agent has servers of its own, which may ask its model. Plain models share those of the gateway."""
    functions: Sequence[ToolExecutor] = ()
    instructions: str | None = None
    instructions_digest: str | None = None
    """By which traces refer to the instructions. None: there are none."""
    response_format: Mapping[str, Any] | None = None
    pass_through: Mapping[str, ModelProvider] = field(default_factory=dict)
    """The other APIs of the model's server, by their paths: `/embeddings` and `/completions`."""
    asks: Sequence[AskedBackend] = ()
    """The agents that its model may ask."""

    def is_allowed_by(self, scope: CallerScope) -> bool:
        """Return whether a caller may use it."""
        return scope.allows_agent(self.name) if self.is_agent else scope.allows_model(self.name)

    def to_resource(self, scope: CallerScope) -> dict[str, Any]:
        """Return the model as `/v1/models` lists it, with the servers that a caller may declare in requests to it."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "holodeck",
            "kind": "agent" if self.is_agent else "model",
            "description": self.description,
            "mcp_servers": [name for name in self.mcp.selected if scope.allows_server(name)],
        }


@record
class Backends:
    """Everything that a gateway serves."""

    by_name: Mapping[str, Backend]
    """The models and agents, by their public names."""
    inner: Mapping[str, Backend]
    """The agents of files that only other agents name, by the name of the one that asks and that of its tool."""
    shared_servers: MCPExecutor
    """The gateway's own MCP servers, also those that no model uses."""
    changes: ListChanges
    """Announces changes of the lists of all MCP servers."""

    @property
    def servers(self) -> MCPExecutor:
        """All MCP servers: the gateway's own, then those of its agents. They belong to the backends."""
        return MCPExecutor.merge(self._list_executors())

    @property
    def server_tools(self) -> list[ServerTools]:
        """Every MCP server once, also two of the same name."""
        return list(dict.fromkeys(offer for each in self._list_executors() for offer in each.server_tools.values()))

    @property
    def all(self) -> list[Backend]:
        """The models and all agents, also those that only other agents ask."""
        return [*self.by_name.values(), *self.inner.values()]

    def find_currency(self) -> str | None:
        """Return the currency of all prices. None: some are of the file, whose currency is that of its operator."""
        models = [llm for each in self.all for llm in (each.llm, *each.llm.stand_ins.values())]
        return None if any(llm.price is not None for llm in models) else find_table_currency()

    def _list_executors(self) -> list[MCPExecutor]:
        return [self.shared_servers, *(backend.mcp for backend in self.all)]


def build_backends(
    loaded: LoadedGateway,
    *,
    environ: Mapping[str, str],
    find_peer: Callable[[], Peer | None] | None = None,
    tells_causes: bool = False,
    changes: ListChanges | None = None,
) -> Backends:
    """Build the backends. Plain models share the gateway's MCP servers; agents have their own.

    `find_peer`: the only MCP client, if there is only one; see `Callbacks`. `tells_causes`: callers are told why a
    call has failed, because they operate the servers. `changes`: of earlier backends, whose listeners are kept.
    """
    changes, created = changes or ListChanges(), int(time.time())
    callbacks = Callbacks(
        has_peers=True,
        find_peer=find_peer,
        on_list_changed=changes.announce,
    )
    timeout = loaded.gateway.limits.discovery_seconds
    servers = _build_shared_servers(loaded, callbacks, tells_causes=tells_causes)
    shared = MCPExecutor(servers, discovery_timeout=timeout, can_revive=True)
    backends: dict[str, Backend] = {}
    for name, served in loaded.models.items():
        backends[name] = Backend(
            name=name,
            created=created,
            llm=served.model,
            provider=open_model(served.model, environ),
            mcp=shared if served.use_mcp else MCPExecutor([]),
            instructions=served.instructions,
            instructions_digest=_digest_instructions(served.instructions),
            pass_through=open_pass_through(served.model, environ),
            max_turns=loaded.gateway.limits.max_turns,
        )
    inner: dict[str, Backend] = {}

    def build_agent(name: str, agent: LoadedAgent) -> Backend:
        for tool, asked in agent.agents.items():
            inner[f"{name}/{tool}"] = build_agent(f"{name}/{tool}", asked)
        wired = build_runner(
            # Those that it asks are backends as well, so that their runs have the rules of all runs.
            replace(agent, agents={}),
            environ=environ,
            callbacks=callbacks,
            discovery_timeout=timeout,
            revives=True,
            tells_causes=tells_causes,
        )
        return _build_agent_backend(name, wired, created, asks=_list_asked(name, agent, loaded.agents))

    backends |= {name: build_agent(name, agent) for name, agent in loaded.agents.items()}
    built = Backends(by_name=backends, inner=inner, shared_servers=shared, changes=changes)
    _name_unpriced(built.all)
    _share_limits(server for backend in built.all for server in backend.mcp.servers.values())
    return built


def _list_asked(name: str, agent: LoadedAgent, served: Mapping[str, LoadedAgent]) -> list[AskedBackend]:
    """Return the agents that an agent may ask. `name`: that of its backend."""
    found = []
    for tool in agent.agent.asked_agents:
        inner = agent.agents.get(tool.name)
        asked = served[tool.agent or ""] if inner is None else inner
        spec = build_agent_spec(
            tool.agent or asked.agent.name,
            asked.agent.description,
            name=tool.name,
            description=tool.description,
        )
        backend = tool.agent if tool.agent is not None else f"{name}/{tool.name}"
        found.append(AskedBackend(spec=spec, name=backend, is_inner=inner is not None))
    return found


def _build_shared_servers(loaded: LoadedGateway, callbacks: Callbacks, *, tells_causes: bool) -> list[MCPPlugin]:
    """Build the gateway's own MCP servers."""
    items = [item for item in loaded.servers if isinstance(item.tool, MCPTool) and item.tool.enabled]
    if loaded.uses_logins:
        return [open_server(item, callbacks=callbacks, tells_causes=tells_causes) for item in items]
    folder = loaded.path.parent
    lock = read_lock(folder) or LockFile()
    return [
        create_mcp_plugin(
            item.tool,
            base_dir=folder,
            callbacks=callbacks,
            lock=lock.find_server(loaded.path.name, item.tool.name),
            may_expose_causes=tells_causes,
        )
        for item in items
        if isinstance(item.tool, MCPTool)
    ]


def _name_unpriced(backends: Iterable[Backend]) -> None:
    """Log the models and stand-ins whose cost will be unknown, each once. No budget may use them.

    Those of this process cost nothing.
    """
    names = {each.name for each in backends if _is_unpriced(each.llm)}
    names |= {label for each in backends for label, llm in each.llm.stand_ins.items() if _is_unpriced(llm)}
    if names:
        fix = "write 'price: {input: ..., output: ...}' in the model, 0 if it costs nothing"
        log.info("gateway.price_unknown", models=", ".join(sorted(names)), fix=fix)


def _is_unpriced(llm: LLM) -> bool:
    return llm.spec.is_service and llm.effective_price is None


def _build_agent_backend(name: str, agent: AgentRunner, created: int, *, asks: Sequence[AskedBackend]) -> Backend:
    config = agent.config
    instructions = config.instructions if isinstance(config.instructions, str) else None
    return Backend(
        name=name,
        created=created,
        llm=config.model,
        provider=agent.model,
        mcp=agent.mcp,
        functions=(agent.functions,),
        is_agent=True,
        instructions=instructions,
        instructions_digest=_digest_instructions(instructions),
        response_format=config.response_format if isinstance(config.response_format, dict) else None,
        max_turns=config.max_turns,
        description=config.description,
        asks=asks,
    )


def _digest_instructions(text: str | None) -> str | None:
    if text is None:
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()


def select_backends(backends: Mapping[str, Backend], scope: CallerScope) -> Mapping[str, Backend]:
    """Return the backends that a caller may use. To that caller the others do not exist."""
    if not scope.is_limited:
        return backends
    return {name: backend for name, backend in backends.items() if backend.is_allowed_by(scope)}


def reuse_unchanged(built: Backends, earlier: Backends) -> Backends:
    """Return the backends with each part of earlier ones that is defined the same: models, MCP servers, functions.

    A server of an agent is kept only with the agent's model, which it may ask. None of the built backends may be in
    use yet.
    """
    shared = _reuse_servers(built.shared_servers, earlier.shared_servers)

    def reuse(backend: Backend, before: Backend | None) -> Backend:
        mcp = shared if backend.mcp is built.shared_servers else backend.mcp
        if before is None or before.is_agent != backend.is_agent or before.llm != backend.llm:
            return replace(backend, mcp=mcp)
        return replace(
            backend,
            created=before.created,
            provider=before.provider,
            pass_through=before.pass_through,
            functions=_reuse_functions(backend.functions, before.functions),
            mcp=_reuse_servers(mcp, before.mcp) if backend.is_agent else mcp,
        )

    new = replace(
        built,
        by_name={name: reuse(backend, earlier.by_name.get(name)) for name, backend in built.by_name.items()},
        inner={name: reuse(backend, earlier.inner.get(name)) for name, backend in built.inner.items()},
        shared_servers=shared,
    )
    in_use = {offer.server for offer in earlier.server_tools}
    # Those that are kept come first: calls are under way within their limits.
    _share_limits(sorted((offer.server for offer in new.server_tools), key=lambda server: server not in in_use))
    return new


def import_functions(backends: Iterable[Backend]) -> None:
    """Import the Python functions of agents before the first request, which would wait for it.

    An agent whose files cannot be imported is logged; the others are served nevertheless.
    """
    for backend in backends:
        for functions in backend.functions:
            try:
                if isinstance(functions, FunctionExecutor):
                    functions.import_files()
            except ExecutionError as error:
                log.error("gateway.functions_failed", model=backend.name, error=error)


def _reuse_functions(built: Sequence[ToolExecutor], earlier: Sequence[ToolExecutor]) -> Sequence[ToolExecutor]:
    is_same = len(built) == len(earlier) and all(
        isinstance(new, FunctionExecutor) and isinstance(old, FunctionExecutor) and new.has_same_definition(old)
        for new, old in zip(built, earlier, strict=True)
    )
    return earlier if is_same else built


def _reuse_servers(built: MCPExecutor, earlier: MCPExecutor) -> MCPExecutor:
    """Return the executor with the earlier servers that are defined the same, or the earlier one if all of them are."""
    kept = {
        name: old
        for name, old in earlier.server_tools.items()
        if (new := built.server_tools.get(name)) is not None and new.server.has_same_definition(old.server)
    }
    merged = {name: kept.get(name, new) for name, new in built.server_tools.items()}
    if list(earlier.server_tools.items()) == list(merged.items()):
        return earlier
    built.use_servers(kept)
    return built


def _share_limits(servers: Iterable[MCPPlugin]) -> None:
    """Let agents that use the same remote server share one limit of concurrent calls, instead of each having it."""
    first: dict[tuple[str, int], MCPPlugin] = {}
    for server in servers:
        # A server without a URL is a process of one agent.
        if server.config.url is not None:
            server.share_limit(first.setdefault((server.config.url, server.config.max_concurrent_calls), server))
