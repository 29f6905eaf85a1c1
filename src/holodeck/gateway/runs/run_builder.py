"""What every way in has in common: the model by its name, the tools of the request, and a run that is ready to go."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import replace

from holodeck.engine.loop import RunRequest
from holodeck.gateway.backends import Backend
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.mcp.connection_pool import CallerConnectionPool
from holodeck.gateway.mcp.request_server_policy import RequestServerPolicy
from holodeck.gateway.mcp.request_servers import RequestServers
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.response.writer import can_answer_approvals
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.types import record
from holodeck.models.gateway import GatewayFile
from holodeck.models.items import FunctionCall, Item
from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest, ToolChoice
from holodeck.tools.arguments import ArgumentChecker
from holodeck.tools.result_reader import ResultReader
from holodeck.tools.toolbox import Toolbox


@record
class PreparedRun:
    """A run that only needs somebody to write it down."""

    backend: Backend
    servers: RequestServers
    toolbox: Toolbox
    request: RunRequest


class RunBuilder:
    """Knows the models and agents of this gateway."""

    def __init__(self, backends: Mapping[str, Backend], config: GatewayFile, budget: ByteBudget) -> None:
        """`budget`: for what models and MCP servers answer, and what runs keep of it."""
        self.config = config
        self._budget = budget
        for backend in backends.values():
            for server in backend.mcp.servers.values():
                server.use_budget(budget)
        self._backends = backends
        rules = RequestServerPolicy(config.request_servers, budget)
        self.pool = CallerConnectionPool(rules, timeout=config.limits.discovery_seconds)
        self.argument_checker = ArgumentChecker()
        """Of the arguments of all runs. Closed, like the pool, with the service."""

    def require_backend(self, name: str | None) -> Backend:
        """The model or agent of this name. Raises the 404 of an unknown one."""
        if name is None and len(self._backends) == 1:
            return next(iter(self._backends.values()))
        if name is None:
            raise APIError(400, "Missing required parameter: 'model'.", kind="invalid_request", param="model")
        if name not in self._backends:
            known = ", ".join(self._backends)
            message = f"The model '{name}' does not exist here. There are: {known}."
            raise APIError(404, message, kind="not_found", code="model_not_found", param="model")
        return self._backends[name]

    async def build(
        self,
        request: ResponseRequest,
        run_id: str,
        *,
        context: tuple[Item, ...] = (),
        pending: tuple[FunctionCall, ...] = (),
        can_wait: bool,
        caller_id: str,
        approved: Collection[str] = (),
        targets: Mapping[str, tuple[str, str]] | None = None,
        calls_with_caller_credentials: Collection[str] = (),
        calls_with_unknown_outcome: Collection[str] = (),
        can_request_approval: bool = False,
    ) -> PreparedRun:
        """Put a run together. `context` came before the request, `pending` are calls of it that may now run.

        `approved`: the ids of those that a person approved. `targets`: the server and the tool of each, by its id.
        `calls_with_caller_credentials`: the ids of those that run only with credentials that the caller brings.
        `calls_with_unknown_outcome`: the ids of those that somebody may have run already.
        `can_request_approval`: the client knows requests for approval.
        """
        backend = self.require_backend(request.model)
        servers = RequestServers(
            backend.mcp,
            request.tools.declarations,
            pool=self.pool,
            caller_id=caller_id,
            can_request_approval=can_request_approval and can_answer_approvals(request, self.config.mcp_output),
            approved=approved,
            calls_with_unknown_outcome=calls_with_unknown_outcome,
        )
        if request.tool_choice.target is not None or request.tool_choice.allowed is not None:
            await servers.specs()  # a choice by server needs to know the names of its tools
        if targets and pending:
            servers.check_caller_credentials(
                targets[call.call_id] for call in pending if call.call_id in calls_with_caller_credentials
            )
            await servers.specs()
            pending = tuple(servers.bind_call(call, targets.get(call.call_id)) for call in pending)
        choice = request.tool_choice.resolve(servers.tool_names)
        toolbox = Toolbox(
            [*backend.functions, servers],
            checker=self.argument_checker,
            client_functions=request.tools.functions,
            reader=ResultReader(budget=self._budget),
            needs_approval=servers.needs_approval_first,
        )
        await _check_tool_choice(choice, toolbox)
        run_request = RunRequest(
            run_id=run_id,
            agent=backend.name,
            provider=str(backend.llm.provider),
            model=_with_backend_defaults(
                request.build_model_request(context, choice, instructions=backend.instructions), backend
            ),
            max_turns=min(backend.max_turns, self.config.limits.max_turns),
            max_tool_calls=request.max_tool_calls,
            max_answer_bytes=self.config.limits.answer_bytes,
            max_response_bytes=self.config.limits.response_bytes,
            budget=self._budget,
            pending=pending,
            can_pause=can_wait,
        )
        return PreparedRun(backend=backend, servers=servers, toolbox=toolbox, request=run_request)


async def _check_tool_choice(choice: ToolChoice, toolbox: Toolbox) -> None:
    """Refuse to force what nobody has; a model would be asked in vain. Raises `BadRequestError`."""
    if choice.mode != "required" or (choice.name is not None and toolbox.is_client_function(choice.name)):
        return
    offered = {spec.name for spec in await toolbox.collect_specs()}
    if choice.name is not None and choice.name not in offered:
        message = f"Tool choice {choice.name!r} is neither in the tools of the request nor in the gateway's own."
        refuse(message, "tool_choice")
    if not offered:
        refuse("Tool choice 'required' needs a tool, and there is none.", "tool_choice")


def _with_backend_defaults(request: ModelRequest, backend: Backend) -> ModelRequest:
    """What the request leaves open is as the operator's file says."""
    llm = backend.llm
    if all(value is None for value in (llm.temperature, llm.top_p, llm.max_tokens, backend.response_format)):
        return request
    return replace(
        request,
        temperature=llm.temperature if request.temperature is None else request.temperature,
        top_p=llm.top_p if request.top_p is None else request.top_p,
        max_tokens=llm.max_tokens if request.max_tokens is None else request.max_tokens,
        response_format=backend.response_format if request.response_format is None else request.response_format,
    )


class NoModel:
    """Says nothing, at no cost."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield ModelAnswer(items=(), finish="stop")

    async def close(self) -> None:
        """There is nothing to let go of."""
