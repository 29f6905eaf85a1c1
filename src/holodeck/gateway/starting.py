"""What every way in has in common: the model by its name, the tools of the request, and a run that is ready to go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from holodeck.engine.loop import RunRequest
from holodeck.gateway.backends import Backend
from holodeck.gateway.dialling import DialRules
from holodeck.gateway.mcp_view import RequestServers
from holodeck.gateway.pool import ServerPool
from holodeck.gateway.problems import WireError
from holodeck.gateway.wire.fields import refuse
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.writer import can_be_asked
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.record import record
from holodeck.models.exchange import ModelRequest, ToolChoice
from holodeck.models.gateway import GatewayFile
from holodeck.models.items import FunctionCall, Item
from holodeck.tools.arguments import ArgumentChecker
from holodeck.tools.registry import Toolbox
from holodeck.tools.results import ResultReader


@record
class Start:
    """A run that only needs somebody to write it down."""

    backend: Backend
    servers: RequestServers
    toolbox: Toolbox
    request: RunRequest


class Starter:
    """Knows the models and agents of this gateway."""

    def __init__(self, backends: Mapping[str, Backend], config: GatewayFile, budget: ByteBudget) -> None:
        """`budget`: for what models and MCP servers answer, and what runs keep of it."""
        self.config = config
        self._budget = budget
        for backend in backends.values():
            for server in backend.mcp.servers.values():
                server.use_budget(budget)
        self._backends = backends
        rules = DialRules(config.request_servers, budget)
        self.pool = ServerPool(rules, patience=config.limits.discovery_seconds)
        self.checker = ArgumentChecker()
        """Of the arguments of all runs. Closed, like the pool, with the service."""

    def backend(self, name: str | None) -> Backend:
        """The model or agent of this name. Raises the 404 of an unknown one."""
        if name is None and len(self._backends) == 1:
            return next(iter(self._backends.values()))
        if name is None:
            raise WireError(400, "Missing required parameter: 'model'.", kind="invalid_request", param="model")
        if name not in self._backends:
            known = ", ".join(self._backends)
            message = f"The model '{name}' does not exist here. There are: {known}."
            raise WireError(404, message, kind="not_found", code="model_not_found", param="model")
        return self._backends[name]

    async def start(
        self,
        request: ResponseRequest,
        run_id: str,
        *,
        items: tuple[Item, ...] = (),
        pending: tuple[FunctionCall, ...] = (),
        can_wait: bool,
        caller: str,
        approved: Collection[str] = (),
        places: Mapping[str, tuple[str, str]] | None = None,
        own: Collection[str] = (),
        unknown: Collection[str] = (),
        can_ask: bool = False,
    ) -> Start:
        """Put a run together. `items` came before the request, `pending` are calls of it that may now run.

        `approved`: the ids of those that a person approved. `places`: the server and the tool of each, by its id.
        `own`: the ids of those that run only with credentials that the caller brings.
        `unknown`: the ids of those that somebody may have run already.
        `can_ask`: the client knows requests for approval.
        """
        backend = self.backend(request.model)
        servers = RequestServers(
            backend.mcp,
            request.tools.declarations,
            pool=self.pool,
            caller=caller,
            can_ask=can_ask and can_be_asked(request, self.config.mcp_output),
            approved=approved,
            unknown=unknown,
        )
        if request.tool_choice.server is not None or request.tool_choice.allowed is not None:
            await servers.specs()  # a choice by server needs to know the names of its tools
        if places and pending:
            servers.check_own(places[call.call_id] for call in pending if call.call_id in own)
            await servers.specs()
            pending = tuple(servers.bound(call, places.get(call.call_id)) for call in pending)
        choice = request.tool_choice.resolved(servers.names)
        toolbox = Toolbox(
            [*backend.functions, servers],
            checker=self.checker,
            client=request.tools.functions,
            reader=ResultReader(budget=self._budget),
            hold=servers.holds,
        )
        await _check_choice(choice, toolbox)
        run_request = RunRequest(
            run_id=run_id,
            agent=backend.name,
            provider=str(backend.llm.provider),
            model=_with_defaults(request.model_request(items, choice, instructions=backend.instructions), backend),
            max_turns=min(backend.max_turns, self.config.limits.max_turns),
            max_tool_calls=request.max_tool_calls,
            answer_bytes=self.config.limits.answer_bytes,
            response_bytes=self.config.limits.response_bytes,
            budget=self._budget,
            pending=pending,
            can_wait=can_wait,
        )
        return Start(backend=backend, servers=servers, toolbox=toolbox, request=run_request)


async def _check_choice(choice: ToolChoice, toolbox: Toolbox) -> None:
    """Refuse to force what nobody has; a model would be asked in vain. Raises `BadRequestError`."""
    if choice.mode != "required" or (choice.name is not None and toolbox.is_client(choice.name)):
        return
    offered = {spec.name for spec in await toolbox.offer()}
    if choice.name is not None and choice.name not in offered:
        message = f"Tool choice {choice.name!r} is neither in the tools of the request nor in the gateway's own."
        refuse(message, "tool_choice")
    if not offered:
        refuse("Tool choice 'required' needs a tool, and there is none.", "tool_choice")


def _with_defaults(asked: ModelRequest, backend: Backend) -> ModelRequest:
    """What the request leaves open is as the operator's file says."""
    llm = backend.llm
    if all(value is None for value in (llm.temperature, llm.top_p, llm.max_tokens, backend.response_format)):
        return asked
    return replace(
        asked,
        temperature=llm.temperature if asked.temperature is None else asked.temperature,
        top_p=llm.top_p if asked.top_p is None else asked.top_p,
        max_tokens=llm.max_tokens if asked.max_tokens is None else asked.max_tokens,
        response_format=backend.response_format if asked.response_format is None else asked.response_format,
    )
