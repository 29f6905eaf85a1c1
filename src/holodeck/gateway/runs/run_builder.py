"""Building of a run from a parsed request, for all endpoints: its backend, its servers and tools, its limits.

A run is built with the configuration of that moment, and keeps it. `RunBuilder.build` reads tool lists only where the
request needs them before the run: for a tool choice, and to bind pending calls to their targets. It owns the checker of
arguments, which all runs share and the service closes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from dataclasses import replace
from functools import lru_cache, partial

from holodeck.engine.loop import RunRequest
from holodeck.gateway.audit.entry import Door
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.audit.run_recorder import RunRecorder
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.auth.scope import CallerScope
from holodeck.gateway.backends import Backend, select_backends
from holodeck.gateway.configuration import Configuration, ConfigurationHolder
from holodeck.gateway.context.compaction import CompactingModel, Compactor, find_threshold
from holodeck.gateway.context.truncation import TruncatingModel
from holodeck.gateway.continuation.resolve import Continuation
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.mcp.elicitations import Elicitations, RunElicitations
from holodeck.gateway.mcp.request_servers import MappedTool, RequestServers
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.runs.offered_tools import OfferedTools, ToolNames
from holodeck.gateway.runs.run_trace import RunTrace, TraceSettings
from holodeck.gateway.sealing import Seal
from holodeck.gateway.usage.budgets import BudgetedModel, Budgets
from holodeck.gateway.usage.meter import UsageMeter
from holodeck.gateway.wire.request.body import ExtraParameters, ResponseRequest
from holodeck.gateway.wire.request.json_fields import refuse, refuse_unsupported
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.record import record
from holodeck.models.gateway import BuiltinTools, GatewayLimits
from holodeck.models.items import FunctionCall, Item
from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest, ToolChoice
from holodeck.models.request_fields import find_unsupported
from holodeck.providers.base import ModelProvider
from holodeck.storage.base import StoredResponse
from holodeck.tools.arguments import ArgumentChecker
from holodeck.tools.mcp.executor import MCPExecutor
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.resource_reader import ResourceReader
from holodeck.tools.result_reader import ResultReader
from holodeck.tools.toolbox import Toolbox

# Selections of tools for callers with a scope that are remembered: one for each scope and backend in use. Requests of
# the same scope then offer the same tuple of tools, which providers encode once.
_MAX_SELECTIONS = 256


@record
class PreparedRun:
    """The parts of a run that are the same for all endpoints. Only the writer is missing."""

    configuration: Configuration
    backend: Backend
    servers: RequestServers
    toolbox: Toolbox
    request: RunRequest
    model: ModelProvider
    """The provider of the backend, which checks the budget of the caller if it has one."""
    recorder: RunRecorder | None = None
    """Records the calls of the run. None: the gateway has no audit log."""


class RunBuilder:
    """Builds runs with the current configuration of this gateway."""

    def __init__(
        self,
        configurations: ConfigurationHolder,
        budget: ByteBudget,
        audit: AuditLog,
        metrics: Metrics,
        *,
        meter: UsageMeter | None = None,
        budgets: Budgets | None = None,
        elicitations: Elicitations | None = None,
    ) -> None:
        """`budget`: bytes for the answers of models and MCP servers, and for what runs hold of them.

        `metrics`: counts the turns of models. `meter` counts what each turn costs, and `budgets` stop callers that have
        spent theirs; None: neither is done. `elicitations` asks the questions of MCP servers; None: they are declined.
        """
        self._elicitations = elicitations
        self._metrics = metrics
        self._meter = meter
        self._budgets = budgets
        self.configurations = configurations
        self._audit = audit
        self._budget = budget
        self.argument_checker = ArgumentChecker()
        """Checks the arguments of all runs. The service closes it."""
        self._tool_names = ToolNames()
        self._select_allowed = lru_cache(_MAX_SELECTIONS)(_select_allowed)

    def require_backend(self, name: str | None, caller: Caller) -> Backend:
        """The backend with this public name; None is the only one, if there is one. Raises `APIError` 400 or 404.

        A backend out of the caller's scope is as one that does not exist.
        """
        return _require_backend(self.configurations.current, name, caller)

    def build_trace(self, prepared: PreparedRun, caller: Caller, stored: StoredResponse | None = None) -> RunTrace:
        """What records a run, and counts the times and the cost of its turns. `stored`: that of an earlier process."""
        backend, sent = prepared.backend, prepared.request.model
        settings = TraceSettings(
            price=backend.llm.price,
            on_turn=partial(
                self._count_turn, backend.name, caller.id, is_charged=isinstance(prepared.model, BudgetedModel)
            ),
            offered=OfferedTools(prepared.toolbox, sent.tool_choice.allowed, self._tool_names),
            # The instructions of a request are sent in place of the operator's.
            instructions_digest=backend.instructions_digest if sent.instructions == backend.instructions else None,
        )
        if stored is None or stored.trace is None:
            return RunTrace(settings, created_at=None if stored is None else stored.created_at)
        return RunTrace.restore(stored.trace, settings)

    def _count_turn(
        self,
        model: str,
        caller_id: str,
        seconds: float,
        first_token_seconds: float | None,
        cost: float | None,
        *,
        is_charged: bool,
    ) -> None:
        self._metrics.count_turn(model, seconds, first_token_seconds)
        if cost and self._meter is not None and not is_charged:
            self._meter.spend(caller_id, cost)

    def build_model(self, request: ResponseRequest, prepared: PreparedRun, seal: Seal, caller: Caller) -> ModelProvider:
        """The model of one run, which truncates or compacts its context where the request says so."""
        backend, model, is_triggered = prepared.backend, prepared.model, request.input.compaction_trigger is not None
        if not request.needs_model:
            return NoModel(model.name)
        if is_triggered:
            model = NoModel(model.name)
        elif request.truncation == "auto":
            model = TruncatingModel(model, context_tokens=backend.llm.context_tokens)
        if not is_triggered and request.context_management is None:
            return model
        threshold = None
        if request.context_management is not None:
            threshold = find_threshold(request.context_management.compact_threshold, backend.llm.context_tokens)
        compactor = self.build_compactor(backend, caller)
        return CompactingModel(model, compactor, seal, threshold=threshold, is_triggered=is_triggered)

    def build_compactor(self, backend: Backend, caller: Caller) -> Compactor:
        """The compactor of a request: with the operator's model for summaries, or else with that of the request."""
        configuration = self.configurations.current
        settings = configuration.gateway.compaction
        backend = backend if settings.model is None else configuration.backends[settings.model]
        model = backend.provider
        if self._budgets is not None:
            model = self._budgets.wrap_model(model, caller.id, backend.llm.price)
        return Compactor(model, target_tokens=settings.target_tokens, context_tokens=backend.llm.context_tokens)

    def extra_parameters_for(self, caller: Caller) -> ExtraParameters:
        """A function from a public name to the parameters that requests for this model may add; none if unknown."""

        def find_parameters(name: str | None) -> Collection[str]:
            backend = _find_backend(self.configurations.current, name, caller)
            return () if backend is None else backend.llm.allow_extra_parameters

        return find_parameters

    async def build(
        self,
        request: ResponseRequest,
        run_id: str,
        *,
        context: tuple[Item, ...] = (),
        can_wait: bool,
        caller: Caller,
        door: Door,
        peer: Peer | None = None,
    ) -> PreparedRun:
        """Build a run that starts without pending calls and never pauses for an approval.

        `context`: the items before the request. `peer`: the MCP client that asks. See `build_continued` for the rest.
        """
        continuation = Continuation(context=context)
        return await self.build_continued(
            request,
            run_id,
            continuation,
            can_wait=can_wait,
            caller=caller,
            door=door,
            can_request_approval=False,
            peer=peer,
        )

    async def build_continued(
        self,
        request: ResponseRequest,
        run_id: str,
        continuation: Continuation,
        *,
        can_wait: bool,
        caller: Caller,
        door: Door,
        can_request_approval: bool = True,
        peer: Peer | None = None,
    ) -> PreparedRun:
        """Build a run that first runs the decided pending calls of its continuation.

        `can_wait`: the run may pause for outputs and approvals of the client. `door`: the API of the request.
        `can_request_approval`: the API of the client has approval requests.
        Raises `BadRequestError` and `APIError` for tools, credentials or a choice that cannot be used.
        """
        configuration = self.configurations.current
        backend = _require_backend(configuration, request.model, caller)
        servers = RequestServers(
            self._select_allowed(backend.mcp, caller.scope) if caller.scope.is_limited else backend.mcp,
            request.tools.declarations,
            pool=configuration.pool,
            caller=caller,
            can_request_approval=can_request_approval and request.has_mcp_declarations,
            approved=continuation.decisions.approved,
            calls_with_unknown_outcome=continuation.calls_with_unknown_outcome,
            hosted=_map_hosted_tools(request, backend, caller.scope, configuration.gateway.builtin_tools),
            peer=peer,
            elicitations=self._follow_elicitations(request, run_id, caller, configuration),
        )
        if request.tool_choice.target is not None or request.tool_choice.allowed is not None:
            # A choice by server needs the names of its tools.
            await servers.specs()
        context = await configuration.file_fetcher.fetch_input(request.input, continuation.context)
        pending = await _bind_pending_calls(servers, continuation)
        choice = request.tool_choice.resolve(servers.tool_names)
        recorder = self._build_recorder(backend, run_id, caller.id, door)
        toolbox = self._build_toolbox(request, backend, servers, recorder)
        await _check_tool_choice(choice, toolbox)
        model_request = request.build_model_request(context, choice, instructions=backend.instructions)
        limits = configuration.gateway.limits
        return PreparedRun(
            configuration=configuration,
            backend=backend,
            servers=servers,
            toolbox=toolbox,
            request=self._build_run_request(
                request, run_id, backend, model_request, pending, limits=limits, can_wait=can_wait
            ),
            model=backend.provider
            if self._budgets is None
            else self._budgets.wrap_model(backend.provider, caller.id, backend.llm.price),
            recorder=recorder,
        )

    def _follow_elicitations(
        self, request: ResponseRequest, run_id: str, caller: Caller, configuration: Configuration
    ) -> RunElicitations | None:
        """What asks the questions of servers in a run. None: they are declined."""
        if self._elicitations is None or request.elicitation != "ask":
            return None
        has_mcp_items = request.has_mcp_declarations or configuration.gateway.mcp_output == "openai"
        return self._elicitations.follow_run(run_id, caller.id, has_mcp_items=has_mcp_items)

    def _build_run_request(
        self,
        request: ResponseRequest,
        run_id: str,
        backend: Backend,
        model_request: ModelRequest,
        pending: tuple[FunctionCall, ...],
        *,
        limits: GatewayLimits,
        can_wait: bool,
    ) -> RunRequest:
        return RunRequest(
            run_id=run_id,
            agent=backend.name,
            provider=str(backend.llm.provider),
            model=_with_backend_defaults(model_request, backend),
            max_turns=min(backend.max_turns, limits.max_turns),
            max_tool_calls=request.max_tool_calls,
            max_answer_bytes=limits.answer_bytes,
            max_response_bytes=limits.response_bytes,
            budget=self._budget,
            pending=pending,
            can_pause=can_wait,
        )

    def _build_recorder(self, backend: Backend, run_id: str, caller_id: str, door: Door) -> RunRecorder | None:
        if not self._audit.is_enabled:
            return None
        return RunRecorder(
            self._audit,
            door=door,
            caller=caller_id,
            # The same as in the log, so that entries and log lines of a request can be matched.
            request_id=str(log.current_fields().get("request", "")),
            response_id=run_id,
            model=backend.name,
        )

    def _build_toolbox(
        self, request: ResponseRequest, backend: Backend, servers: RequestServers, recorder: RunRecorder | None
    ) -> Toolbox:
        return Toolbox(
            [*backend.functions, servers],
            checker=self.argument_checker,
            client_functions=request.tools.functions,
            reader=ResultReader(budget=self._budget),
            resources=ResourceReader(servers),
            needs_approval=servers.needs_approval_first,
            is_valid_call=request.tools.is_valid_action if request.tools.aliases else None,
            recorder=recorder,
        )


def _require_backend(configuration: Configuration, name: str | None, caller: Caller) -> Backend:
    backend = _find_backend(configuration, name, caller)
    if backend is not None:
        return backend
    if name is None:
        raise APIError(400, "Missing required parameter: 'model'.", kind="invalid_request", param="model")
    known = ", ".join(select_backends(configuration.backends, caller.scope))
    message = f"The model '{name}' does not exist here. {f'There are: {known}.' if known else 'There are none.'}"
    raise APIError(404, message, kind="not_found", code="model_not_found", param="model")


def _find_backend(configuration: Configuration, name: str | None, caller: Caller) -> Backend | None:
    if name is None:
        allowed = select_backends(configuration.backends, caller.scope)
        return next(iter(allowed.values())) if len(allowed) == 1 else None
    backend = configuration.backends.get(name)
    return backend if backend is not None and backend.is_allowed_by(caller.scope) else None


def _map_hosted_tools(
    request: ResponseRequest, backend: Backend, scope: CallerScope, builtin_tools: BuiltinTools
) -> dict[str, MappedTool]:
    """The MCP tools behind the hosted tools of a request, by name. Raises `BadRequestError` for one without.

    A hosted tool whose MCP tool is out of scope is refused as one that the operator has not mapped.
    """
    mapped = {}
    for tool in request.tools.hosted:
        target = builtin_tools.find_target(tool.name)
        if target is None or not scope.allows_tool(*target):
            tool.refuse_unmapped()
        if target[0] not in backend.mcp.servers:
            tool.refuse_unmapped(
                f"The model '{backend.name}' does not have the MCP server '{target[0]}', which runs it."
            )
        mapped[tool.name] = MappedTool(target=target, settings=tool.settings)
    return mapped


def _select_allowed(executor: MCPExecutor, scope: CallerScope) -> MCPExecutor:
    """An executor of the servers and tools that a scope allows, under the names that all callers see."""
    allowed = [name for name in executor.server_tools if scope.allows_server(name)]
    return executor.select(allowed, allows_tool=scope.allows_tool)


async def _bind_pending_calls(servers: RequestServers, continuation: Continuation) -> tuple[FunctionCall, ...]:
    """The pending calls to run, each bound to the server and the tool that it was made for."""
    calls, targets = continuation.decisions.run, continuation.targets
    if not targets or not calls:
        return calls
    servers.check_caller_credentials(
        targets[call.call_id] for call in calls if call.call_id in continuation.calls_with_caller_credentials
    )
    await servers.specs()
    definitions = continuation.decisions.definitions
    return tuple(servers.bind_call(call, targets.get(call.call_id), definitions.get(call.call_id)) for call in calls)


async def _check_tool_choice(choice: ToolChoice, toolbox: Toolbox) -> None:
    """Refuse to force a tool that does not exist, before a model is paid. Raises `BadRequestError`."""
    if choice.mode != "required" or (choice.name is not None and toolbox.is_client_function(choice.name)):
        return
    offered = {spec.name for spec in await toolbox.collect_specs()}
    if choice.name is not None and choice.name not in offered:
        message = f"Tool choice {choice.name!r} is neither in the tools of the request nor in the gateway's own."
        refuse(message, "tool_choice")
    if not offered:
        refuse("Tool choice 'required' needs a tool, and there is none.", "tool_choice")


def _with_backend_defaults(request: ModelRequest, backend: Backend) -> ModelRequest:
    """The request, with the operator's settings for fields that it does not set. Raises `BadRequestError`."""
    unsupported = find_unsupported(request, backend.llm.api)
    if unsupported is not None:
        provider = f"The provider of model '{backend.name}' ({backend.llm.provider}) does not have it."
        refuse_unsupported(unsupported, provider)
    if backend.response_format is not None and request.response_format is None and not request.json_mode:
        request = replace(request, response_format=backend.response_format)
    return backend.llm.complete_request(request)


class NoModel:
    """A model with an empty answer, for requests that need none."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield ModelAnswer(items=(), finish="stop")

    async def close(self) -> None:
        """Does nothing."""
