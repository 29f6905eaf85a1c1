"""Building of a run from a parsed request, for all endpoints: its backend, its servers and tools, its limits.

A run is built with the configuration of that moment, and keeps it. `RunBuilder.build` reads tool lists only where the
request needs them before the run: for a tool choice, and to bind pending calls to their targets. It owns the checker of
arguments, which all runs share and the service closes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from holodeck.engine.loop import Run, RunRequest
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
from holodeck.gateway.runs.asked_agents import AskedAgents
from holodeck.gateway.runs.live_run import LiveRun, RunFinisher, RunListener, W
from holodeck.gateway.runs.run_trace import OfferedTools, RunTrace, ToolNames, TraceSettings
from holodeck.gateway.sealing import Seal
from holodeck.gateway.usage.accounts import Accounts
from holodeck.gateway.usage.budgets import BudgetedModel, Budgets
from holodeck.gateway.wire.request.body import ExtraParameters, ResponseRequest
from holodeck.gateway.wire.request.json_fields import refuse, refuse_unsupported
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.record import record
from holodeck.models.gateway import BuiltinTools
from holodeck.models.items import FunctionCall, Item
from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest, ToolChoice, find_unsupported
from holodeck.providers.base import ModelProvider
from holodeck.tools.calls import ArgumentChecker
from holodeck.tools.mcp.executor import MCPExecutor
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.resource_reader import ResourceReader
from holodeck.tools.result_reader import ResultReader
from holodeck.tools.toolbox import Toolbox

# Selections of tools for callers with a scope that are remembered: one for each scope and backend in use. Requests of
# the same scope then offer the same tuple of tools, which providers encode once.
_MAX_SELECTIONS = 256


_NOTHING_BEFORE = Continuation()


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
    caller_id: str
    trace_settings: TraceSettings
    listener: RunListener | None = None
    recorder: RunRecorder | None = None
    """Records the calls of the run. None: the gateway has no audit log."""

    def start(
        self,
        writer: W,
        finisher: RunFinisher[W] | None = None,
        *,
        model: ModelProvider | None = None,
        trace: RunTrace | None = None,
        sent_events: Sequence[bytes] = (),
    ) -> LiveRun[W]:
        """Return the run, which starts when it is run. The caller owns it, and closes it in any case.

        `model`: in place of the prepared one. `trace`, `sent_events`: those of a run that goes on.
        """
        return LiveRun(
            Run(self.request, model or self.model, self.toolbox),
            writer,
            caller_id=self.caller_id,
            finisher=finisher,
            listener=self.listener,
            wire_events=sent_events,
            uses=self.configuration.uses,
            trace=trace or RunTrace(self.trace_settings),
        )


class RunBuilder:
    """Builds runs with the current configuration of this gateway."""

    def __init__(
        self,
        configurations: ConfigurationHolder,
        budget: ByteBudget,
        audit: AuditLog,
        accounts: Accounts,
        *,
        listener: RunListener | None = None,
        budgets: Budgets | None = None,
        elicitations: Elicitations | None = None,
    ) -> None:
        """`budget`: bytes for the answers of models and MCP servers, and for what runs hold of them.

        `accounts`: records the turns of models. `listener`: is told of the runs. `budgets` stop callers that have spent
        theirs; None: there are none. `elicitations` asks the questions of MCP servers; None: they are declined.
        """
        self._elicitations = elicitations
        self._accounts = accounts
        self._listener = listener
        self._budgets = budgets
        self.configurations = configurations
        self._audit = audit
        self._budget = budget
        self.argument_checker = ArgumentChecker()
        """Checks the arguments of all runs. The service closes it."""
        self._tool_names = ToolNames()
        self._select_allowed = lru_cache(_MAX_SELECTIONS)(_select_allowed)

    def require_backend(self, name: str | None, caller: Caller) -> Backend:
        """Return the backend of this public name; None is the only one, if there is one. Raises `APIError` 400 or 404.

        A backend out of the caller's scope is as one that does not exist.
        """
        configuration = self.configurations.current
        backend = configuration.backends.get(name or "")
        if backend is None or caller.scope.is_limited:
            backend = _find_backend(configuration, name, caller)
        if backend is not None:
            return backend
        if name is None:
            raise APIError(400, "Missing required parameter: 'model'.", kind="invalid_request", param="model")
        known = ", ".join(select_backends(configuration.backends, caller.scope))
        message = f"The model '{name}' does not exist here. {f'There are: {known}.' if known else 'There are none.'}"
        raise APIError(404, message, kind="not_found", code="model_not_found", param="model")

    def _build_trace_settings(
        self, backend: Backend, model: ModelProvider, caller_id: str, toolbox: Toolbox, sent: ModelRequest
    ) -> TraceSettings:
        """Build the settings of a run's trace, by which it counts the times and the cost of turns."""
        return TraceSettings(
            model=backend.name,
            is_priced=backend.llm.effective_price is not None,
            on_turn=partial(self._accounts.record_turn, caller_id, is_charged=isinstance(model, BudgetedModel)),
            offered=OfferedTools(toolbox, sent.tool_choice.allowed, self._tool_names),
            # The instructions of a request are sent in place of the operator's.
            instructions_digest=backend.instructions_digest if sent.instructions == backend.instructions else None,
        )

    def build_model(self, request: ResponseRequest, prepared: PreparedRun, seal: Seal, caller: Caller) -> ModelProvider:
        """Return the model of one run, which truncates or compacts its context where the request says so."""
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
        compactor = self.build_compactor(backend, caller, has_started=not is_triggered)
        return CompactingModel(model, compactor, seal, threshold=threshold, is_triggered=is_triggered)

    def build_compactor(self, backend: Backend, caller: Caller, *, has_started: bool = False) -> Compactor:
        """Return the compactor of a request: with the operator's model for summaries, or else with that of the request.

        `has_started`: see `Budgets.wrap_model`.
        """
        configuration = self.configurations.current
        settings = configuration.gateway.compaction
        backend = backend if settings.model is None else configuration.backends[settings.model]
        model = backend.provider
        if self._budgets is not None:
            model = self._budgets.wrap_model(model, caller, backend.llm.prices, has_started=has_started)
        return Compactor(
            model,
            target_tokens=settings.target_tokens,
            context_tokens=backend.llm.context_tokens,
            prices=backend.llm.prices,
        )

    def extra_parameters_for(self, caller: Caller) -> ExtraParameters:
        """Return a function from a public name to the parameters that its requests may add; none if unknown."""

        def find_parameters(name: str | None) -> Collection[str]:
            backend = _find_backend(self.configurations.current, name, caller)
            return () if backend is None else backend.llm.allow_extra_parameters

        return find_parameters

    async def build(
        self,
        request: ResponseRequest,
        run_id: str,
        *,
        caller: Caller,
        door: Door,
        can_wait: bool,
        continuation: Continuation = _NOTHING_BEFORE,
        peer: Peer | None = None,
        backend: Backend | None = None,
    ) -> PreparedRun:
        """Build a run, which first runs the decided pending calls of its continuation.

        `door`: the API of the request. `can_wait`: the run may pause for the client. `peer`: the MCP client that asks.
        `backend`: in place of that of the request. Raises `BadRequestError` and `APIError`.
        """
        configuration = self.configurations.current
        backend = backend or self.require_backend(request.model, caller)
        servers = self._build_servers(request, run_id, backend, continuation, caller=caller, door=door, peer=peer)
        if request.tool_choice.target is not None or request.tool_choice.allowed is not None:
            # A choice by server needs the names of its tools.
            await servers.specs()
        context = await configuration.file_fetcher.fetch_input(request.input, continuation.context)
        pending = continuation.decisions.run and await _bind_pending_calls(servers, continuation)
        choice = request.tool_choice.resolve(servers.tool_names)
        recorder = self._build_recorder(backend, run_id, caller.id, door) if self._audit.is_enabled else None
        asked = AskedAgents(self, configuration, backend, caller, door, peer) if backend.asks else None
        toolbox = self._build_toolbox(request, backend, servers, recorder, asked, has_pending=bool(pending))
        if choice.mode == "required":
            await _check_required_choice(choice, toolbox)
        model_request = _build_model_request(request, backend, context, choice, run_id=run_id, caller_id=caller.id)
        model, limits = backend.provider, configuration.gateway.limits
        if self._budgets is not None:
            model = self._budgets.wrap_model(model, caller, backend.llm.prices)
        return PreparedRun(
            configuration=configuration,
            backend=backend,
            servers=servers,
            toolbox=toolbox,
            request=RunRequest(
                run_id=run_id,
                agent=backend.name,
                provider=str(backend.llm.provider),
                model=model_request,
                prices=backend.llm.prices,
                max_turns=min(backend.max_turns, limits.max_turns),
                max_tool_calls=request.max_tool_calls,
                max_answer_bytes=limits.answer_bytes,
                max_response_bytes=limits.response_bytes,
                budget=self._budget,
                pending=pending,
                can_pause=can_wait,
            ),
            model=model,
            caller_id=caller.id,
            trace_settings=self._build_trace_settings(backend, model, caller.id, toolbox, model_request),
            listener=self._listener,
            recorder=recorder,
        )

    def _build_servers(
        self,
        request: ResponseRequest,
        run_id: str,
        backend: Backend,
        continuation: Continuation,
        *,
        caller: Caller,
        door: Door,
        peer: Peer | None,
    ) -> RequestServers:
        """Return the servers and tools of a run, as far as its caller may use them."""
        configuration, hosted = self.configurations.current, {}
        if request.tools.hosted:
            hosted = _map_hosted_tools(request, backend, caller.scope, configuration.gateway.builtin_tools)
        return RequestServers(
            self._select_allowed(backend.mcp, caller.scope) if caller.scope.is_limited else backend.mcp,
            request.tools.declarations,
            pool=configuration.pool,
            caller=caller,
            # Only this API has approval requests.
            can_request_approval=door == "responses" and request.has_mcp_declarations,
            approved=continuation.decisions.approved,
            calls_with_unknown_outcome=continuation.calls_with_unknown_outcome,
            hosted=hosted,
            peer=peer,
            elicitations=self._follow_elicitations(request, run_id, caller) if request.elicitation == "ask" else None,
        )

    def _follow_elicitations(self, request: ResponseRequest, run_id: str, caller: Caller) -> RunElicitations | None:
        """Build the asker of the servers' questions in a run that lets them ask. None: they are declined."""
        if self._elicitations is None:
            return None
        has_mcp_items = request.has_mcp_declarations or self.configurations.current.gateway.mcp_output == "openai"
        return self._elicitations.follow_run(run_id, caller.id, has_mcp_items=has_mcp_items)

    def _build_recorder(self, backend: Backend, run_id: str, caller_id: str, door: Door) -> RunRecorder:
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
        self,
        request: ResponseRequest,
        backend: Backend,
        servers: RequestServers,
        recorder: RunRecorder | None,
        asked: AskedAgents | None,
        *,
        has_pending: bool,
    ) -> Toolbox:
        """Return the tools of a run. One that can run none here has no executors, and no readers of their results."""
        runs_tools = has_pending or bool(backend.functions) or servers.has_servers
        own = backend.functions if asked is None else (*backend.functions, asked)
        return Toolbox(
            [*own, servers] if runs_tools else (),
            checker=self.argument_checker,
            client_functions=request.tools.functions,
            reader=ResultReader(budget=self._budget) if runs_tools else None,
            resources=ResourceReader(servers) if runs_tools else None,
            needs_approval=servers.needs_approval_first if runs_tools else None,
            is_valid_call=request.tools.is_valid_action if request.tools.aliases else None,
            recorder=recorder,
            approver=servers.approver,
            scope=servers.scope,
        )


def _find_backend(configuration: Configuration, name: str | None, caller: Caller) -> Backend | None:
    if name is None:
        allowed = select_backends(configuration.backends, caller.scope)
        return next(iter(allowed.values())) if len(allowed) == 1 else None
    backend = configuration.backends.get(name)
    if backend is None or (caller.scope.is_limited and not backend.is_allowed_by(caller.scope)):
        return None
    return backend


def _map_hosted_tools(
    request: ResponseRequest, backend: Backend, scope: CallerScope, builtin_tools: BuiltinTools
) -> dict[str, MappedTool]:
    """Return the MCP tools behind the hosted tools of a request, by name. Raises `BadRequestError` for one without.

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
    """Return an executor of the servers and tools that a scope allows, under the names that all callers see."""
    allowed = [name for name in executor.server_tools if scope.allows_server(name)]
    return executor.select(allowed, allows_tool=scope.allows_tool)


async def _bind_pending_calls(servers: RequestServers, continuation: Continuation) -> tuple[FunctionCall, ...]:
    """Return the pending calls to run, each bound to the server and the tool that it was made for."""
    calls, targets = continuation.decisions.run, continuation.targets
    if not targets:
        return calls
    servers.check_caller_credentials(
        targets[call.call_id] for call in calls if call.call_id in continuation.calls_with_caller_credentials
    )
    await servers.specs()
    definitions = continuation.decisions.definitions
    return tuple(servers.bind_call(call, targets.get(call.call_id), definitions.get(call.call_id)) for call in calls)


async def _check_required_choice(choice: ToolChoice, toolbox: Toolbox) -> None:
    """Refuse to force a tool that does not exist, before a model is paid. Raises `BadRequestError`."""
    if choice.name is not None and toolbox.is_client_function(choice.name):
        return
    offered = {spec.name for spec in await toolbox.collect_specs()}
    if choice.name is not None and choice.name not in offered:
        message = f"Tool choice {choice.name!r} is neither in the tools of the request nor in the gateway's own."
        refuse(message, "tool_choice")
    if not offered:
        refuse("Tool choice 'required' needs a tool, and there is none.", "tool_choice")


def _build_model_request(
    body: ResponseRequest,
    backend: Backend,
    context: tuple[Item, ...],
    choice: ToolChoice,
    *,
    run_id: str,
    caller_id: str,
) -> ModelRequest:
    """Build the first request of a run, with the operator's settings for fields that the body does not set.

    Raises `BadRequestError`.
    """
    request = body.build_model_request(
        context, choice, instructions=backend.instructions, run_id=run_id, caller_id=caller_id
    )
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
        """Do nothing."""
