"""The agent loop: ask the model, run the tools that it calls, ask again with their outputs, until it has an answer.

A `Run` executes one `RunRequest`. It appends `RunStarted` to its event log, then the events of every turn and call in
the order in which they happen, and `RunFinished` last, however the run ends: completed, incomplete at a limit, waiting
for the client or for an approval, failed or cancelled. Turns and calls of a durable run are carried out by a `Steps`
object, so that another process can continue the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Protocol

from holodeck.engine import tracing
from holodeck.engine.event_log import EventLog, EventSink
from holodeck.engine.server_wait import ServerWait
from holodeck.engine.steps import AppendEvent, ModelTurn, Steps
from holodeck.engine.tool_calls import ToolCallRunner
from holodeck.engine.transcript import TurnMessages
from holodeck.engine.turn import ItemIds, answer_size, stream_turn
from holodeck.lib import log as holodeck_log
from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.errors import (
    BAD_QUESTION,
    BUDGET_EXCEEDED,
    HOOK_FAILED,
    SERVER_UNAVAILABLE,
    STORAGE_FAILED,
    HoloDeckError,
    HookError,
    ModelError,
    ServerUnavailableError,
    StorageError,
)
from holodeck.lib.ids import MakeId, new_id
from holodeck.lib.limits import DEFAULT_ANSWER_BYTES, DEFAULT_MAX_TURNS, DEFAULT_RESPONSE_BYTES
from holodeck.lib.record import copy_record, record
from holodeck.lib.tasks import ScopedTask
from holodeck.lib.tracing import Span, tracers
from holodeck.models.events import (
    Cause,
    Event,
    Failure,
    RunFinished,
    RunResult,
    RunStarted,
    Status,
    TurnCut,
    TurnFinished,
    TurnStarted,
)
from holodeck.models.items import (
    FunctionCall,
    Item,
    Message,
    Usage,
    apply_compaction,
    place_outputs_after_calls,
)
from holodeck.models.model_io import CUT_SHORT, ModelAnswer, ModelRequest, ToolChoice
from holodeck.models.price import NO_PRICES, ModelPrices
from holodeck.providers.base import ModelProvider
from holodeck.providers.wrappers.retry import LongRetrying
from holodeck.tools.executor import CallingRun
from holodeck.tools.toolbox import Toolbox


class RunProgress(Protocol):
    """The progress of a run so far. The loop keeps it current."""

    @property
    def turns(self) -> int:
        """How many times the model was asked."""
        ...

    @property
    def usage(self) -> Usage:
        """Tokens of the turns that have ended."""
        ...

    @property
    def items(self) -> Sequence[Item]:
        """What the run has added to the conversation."""
        ...


@record
class RunRequest:
    """One run: the first request to the model, and the limits of the run."""

    run_id: str
    model: ModelRequest
    """The first turn's request; its tools come from the toolbox."""
    max_turns: int = DEFAULT_MAX_TURNS
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    """Tokens of all turns together. Checked after each turn, before its calls."""
    max_cost: float | None = None
    """Cost of all turns by `prices`. Checked as `max_tokens` is."""
    max_seconds: float | None = None
    """Duration; the turn or the calls in progress are cancelled then."""
    prices: ModelPrices = NO_PRICES
    """Prices of the model and of its stand-ins."""
    pending: tuple[FunctionCall, ...] = ()
    """Pending calls of an earlier run; they run before the first turn."""
    agent: str = ""
    """The public name of the agent, for logs and traces."""
    provider: str = ""
    """The name of the provider that runs the model, for traces."""
    max_answer_bytes: int = DEFAULT_ANSWER_BYTES
    """Limit for the answer of one turn; a longer one is cut there, and the run is incomplete."""
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    """Limit for the answers of all turns together."""
    budget: ByteBudget = field(default_factory=ByteBudget)
    """Shared with other runs; the answers of this run count in it until the run has ended."""
    make_id: MakeId = new_id
    """Makes the ids of items, from their prefix."""
    can_pause: bool = True
    """False when no later request can continue this run: only calls that need approval stay pending then."""
    server_wait: float = 0.0
    """Seconds for which a durable run waits for servers of tools that it needs and that are away: see `ServerWait`."""
    on_start: Callable[[RunProgress], Awaitable[None]] | None = None
    """Awaited before the first turn. What it raises fails the run."""
    caller: CallingRun | None = None
    """The run that waits for this one, whose limits hold as well. None: nothing has asked the agent."""


class Run:
    """One run that has not started: a request, and the model and the tools that answer it. Executed once.

    `execute` runs it in the current task; `stream` runs it in a task of its own, and yields its events.
    """

    __slots__ = ("model", "request", "steps", "toolbox")

    def __init__(self, request: RunRequest, model: ModelProvider, toolbox: Toolbox, steps: Steps | None = None) -> None:
        """Prepare a run. `steps`: carries out the turns and calls of a durable one."""
        self.request = request
        self.model = model
        self.toolbox = toolbox
        self.steps = steps

    def retry_model_for(self, seconds: float, *, can_restart: bool) -> None:
        """Retry a failing model for so long, as no request waits for this run.

        `can_restart`: also one that breaks off in the middle of an answer, and wait as long for servers of tools. The
        run must be durable: only then nothing of an answer is finished before all of it is there.
        """
        self.model = LongRetrying(self.model, seconds=seconds, can_restart=can_restart)
        if can_restart:
            self.request = replace(self.request, server_wait=seconds)

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Execute and yield the events, `RunFinished` last. Closing the iterator cancels the run and waits for it."""
        log, position = EventLog(), 0
        async with ScopedTask(self.execute(log), name=self.request.run_id):
            while batch := await log.wait_events(position):
                position += len(batch)
                for event in batch:
                    yield event

    def execute(
        self, log: EventSink, *, before_calls: Callable[[], Awaitable[None]] | None = None
    ) -> Coroutine[Any, Any, RunResult]:
        """Run to the end and return the result, which is also in the last event of the log.

        `before_calls` is awaited before the calls of each turn run. What it raises fails the run, and none of them
        runs. A `HoloDeckError` becomes a result with the status `failed`. Any other exception is a bug: it becomes such
        a result in the log, and is raised again. A cancelled run has its `RunFinished`, too.
        """
        execution = _Execution(self, log, before_calls)
        return execution.execute_traced() if tracers else execution.execute()


class _Execution:
    """State of a run that is executed: the items, usage and counts so far."""

    def __init__(self, run: Run, log: EventSink, before_calls: Callable[[], Awaitable[None]] | None) -> None:
        self._request = request = run.request
        self._before_calls = before_calls
        self._model = run.model
        self._toolbox = run.toolbox
        self._log = log
        self._steps = run.steps
        self._run = CallingRun(
            request.agent,
            run.toolbox.pipeline,
            log.append,
            is_streamed=request.model.is_streamed,
            max_tokens=request.max_tokens,
            max_cost=request.max_cost,
            max_calls=request.max_tool_calls,
            caller=request.caller,
        )
        self._choice = choice = request.model.tool_choice
        # The model learns of the mode "none", but may call a tool all the same: then none is allowed.
        self._call_runner = self._build_call_runner(() if choice.mode == "none" else choice.allowed)
        self._memory = Reservation(request.budget)
        self._server_wait = ServerWait(run.toolbox, request.server_wait, log) if request.server_wait else None
        self._items: list[Item] = []
        self._messages: TurnMessages | None = None
        self._turns = 0
        self._calls = 0
        self._answer_bytes = 0
        self._service_tier: str | None = None
        self._answered_by: str | None = None
        self._started_at = time.monotonic()

    @property
    def turns(self) -> int:
        return self._turns

    @property
    def usage(self) -> Usage:
        return self._run.usage

    @property
    def items(self) -> Sequence[Item]:
        return self._items

    async def execute_traced(self) -> RunResult:
        with tracing.start_run_span(self._request, self._model.name) as span:
            return await self.execute(span)

    async def execute(self, span: Span | None = None) -> RunResult:
        self._log.append(RunStarted(run_id=self._request.run_id, model=self._model.name))
        result: RunResult | None = None
        try:
            has_deadline = self._request.max_seconds is not None
            result = await (self._run_until_deadline() if has_deadline else self._run_turns())
        except Exception as error:
            # Steps that run side by side raise an `ExceptionGroup`.
            cause = _first_cause(error)
            if isinstance(cause, ModelError) and cause.code == BUDGET_EXCEEDED and self._calls:
                # Not a failure, which a client repeats as a whole: tools have acted.
                result = self._build_result("incomplete", reason=str(cause), cause=BUDGET_EXCEEDED)
            elif isinstance(cause, HoloDeckError):
                result = self._build_result("failed", error=_failure_of(cause, has_run_tools=self._calls > 0))
            else:
                message = f"HoloDeck itself failed ({type(cause).__name__}). This is a bug."
                result = self._build_result("failed", error=Failure(code="run_error", message=message))
                raise
        finally:
            result = result or self._build_result("cancelled", reason="The run was cancelled.")
            self._memory.release()
            self._log.append(RunFinished(result=result))
            if span is not None:
                tracing.record_run_end(span, result)
        return result

    async def _run_until_deadline(self) -> RunResult:
        clock, messages = asyncio.timeout(self._request.max_seconds), TurnMessages()
        self._messages = messages
        try:
            async with clock:
                return await self._run_turns()
        except TimeoutError:
            if not clock.expired():
                raise
        self._items += messages.cut(self._log.append)
        return self._build_deadline_result()

    async def _run_turns(self) -> RunResult:
        request = self._request
        if request.on_start is not None:
            await request.on_start(self)
        if request.pending:
            await self._collect_pending_specs(request.pending)
            # They were allowed when the model made them: a mode "none" is about the turns of this run.
            runner = self._build_call_runner(request.model.tool_choice.allowed)
            await self._execute_calls(list(request.pending), runner)
        while True:
            limit = min(request.max_answer_bytes, request.max_response_bytes - self._answer_bytes)
            ask = await self._build_model_request(limit)
            self._turns += 1
            if self._steps is None:
                turn = await self._ask_model(ask, limit, self._log.append)
            else:
                turn = await self._steps.run_turn(self._turns, self._log, partial(self._ask_model, ask, limit))
            if self._server_wait is not None:
                self._server_wait.note_turn(turn)
            calls = self._add_answer(turn.answer)
            if not calls:
                return self._build_answered_result(turn.answer.finish, limit)
            own = [call for call in calls if self._is_own_call(call)]
            if len(own) < len(calls) or not turn.needs_approval.isdisjoint([call.call_id for call in own]):
                return await self._pause(own, turn.needs_approval)
            if self._turns >= request.max_turns:
                turns = f"{request.max_turns} turn{'' if request.max_turns == 1 else 's'}"
                return self._build_limit_result("max_turns", turns, len(calls))
            if (spent := self._run.find_spent_limit()) is not None:
                return self._build_limit_result(*spent, len(calls))
            await self._execute_calls(own, self._call_runner)
            if self._run.has_asked and (spent := self._run.find_spent_limit()) is not None:
                return self._build_limit_result(*spent, 0)
            is_last = self._run.count_calls_left() == 0 or request.model.tool_choice.mode == "none"
            self._choice = ToolChoice(mode="none" if is_last else "auto", allowed=self._choice.allowed)

    async def _build_model_request(self, limit: int) -> ModelRequest:
        first, choice = self._request.model, self._choice
        collect = self._toolbox.collect_specs if self._server_wait is None else self._server_wait.collect_specs
        specs = await collect()
        if self._toolbox.notices:
            self._log.append(*self._toolbox.take_notices())
        items = place_outputs_after_calls(apply_compaction((*first.items, *self._items)))
        changes: dict[str, Any] = {}
        if not (items == first.items and specs == first.tools and choice is first.tool_choice):
            changes = {"items": items, "tools": specs, "tool_choice": choice, "answered_by": self._answered_by}
        if not first.is_streamed:
            changes |= {"answer_bytes": limit, "memory": self._memory}
        return copy_record(first, **changes) if changes else first

    async def _collect_pending_specs(self, calls: Sequence[FunctionCall]) -> None:
        if self._server_wait is None:
            await self._toolbox.collect_specs()
        else:
            await self._server_wait.collect_specs(calls)

    async def _ask_model(self, request: ModelRequest, limit: int, append: AppendEvent) -> ModelTurn:
        if self._turns == 1 and self._toolbox.missing:
            _check_required(self._toolbox)
        if self._messages is not None:
            append = self._messages.follow(append)
        started = TurnStarted(turn=self._turns, tools=len(request.tools))
        append(started)
        asked = stream_turn(
            self._model,
            request,
            append,
            ItemIds(self._request.make_id),
            limit=limit,
            memory=self._memory,
            prices=self._request.prices,
            on_restart=lambda: append(replace(started, is_restarted=True)),
            on_cut=lambda usage, cost: append(self._add_cut_turn(usage, cost)),
        )
        if tracers:
            with tracing.start_turn_span(self._request.provider, self._model.name, request) as span:
                answer = await asked
                tracing.record_answer(span, answer)
        else:
            answer = await asked
        append(TurnFinished(turn=self._turns, usage=answer.usage, cost=answer.cost))
        needs_approval = [call.call_id for call in _calls_of(answer) if self._toolbox.needs_approval(call)]
        return ModelTurn(answer=answer, needs_approval=frozenset(needs_approval))

    def _add_answer(self, answer: ModelAnswer) -> list[FunctionCall]:
        """Add an answer to the run and return the calls in it that are complete."""
        self._service_tier = answer.service_tier or self._service_tier
        self._answered_by = answer.answered_by
        self._run.spend(answer.usage, answer.cost)
        self._answer_bytes += sum([answer_size(item) for item in answer.items])
        if answer.finish in CUT_SHORT:
            # The last call may be half of one: none of them is run.
            self._items += [item for item in answer.items if not isinstance(item, FunctionCall)]
            return []
        self._items += answer.items
        return _calls_of(answer)

    def _add_cut_turn(self, usage: Usage, cost: float | None) -> TurnCut:
        """Add the tokens of a turn that ends without an answer."""
        self._run.spend(usage, cost)
        return TurnCut(turn=self._turns, usage=usage, cost=cost)

    def _is_own_call(self, call: FunctionCall) -> bool:
        """Return True unless the client runs the call. One that is not allowed is refused here, not by the client."""
        return not self._toolbox.is_client_call(call) or not self._call_runner.is_allowed(call.name)

    async def _pause(self, own: list[FunctionCall], needs_approval: frozenset[str]) -> RunResult:
        """End the run before its calls: the client must run some calls of the turn, or a person approve some."""
        unapproved = [call for call in own if call.call_id in needs_approval]
        pending = own
        if not self._request.can_pause:
            await self._execute_calls([call for call in own if call not in unapproved], self._call_runner)
            pending = unapproved
        return self._build_result(
            "requires_action" if pending else "completed",
            pending=tuple(pending),
            needs_approval=frozenset(call.call_id for call in unapproved),
        )

    async def _execute_calls(self, calls: list[FunctionCall], runner: ToolCallRunner) -> None:
        if calls and self._before_calls is not None:
            await self._before_calls()
        left = self._run.count_calls_left()
        count = len(calls) if left is None else min(len(calls), left)
        self._run.count_calls(count)
        self._items += await runner.run(calls, max_calls=left)
        self._calls += count

    def _build_call_runner(self, allowed: tuple[str, ...] | None) -> ToolCallRunner:
        is_parallel = self._request.model.parallel_tool_calls
        return ToolCallRunner(
            self._toolbox,
            self._log,
            self._steps,
            run=self._run,
            allowed=allowed,
            is_parallel=is_parallel,
            server_wait=self._request.server_wait,
        )

    def _build_limit_result(self, cause: Cause, limit: str, call_count: int) -> RunResult:
        stopped = f"{call_count} more tool call{' was' if call_count == 1 else 's were'} not run"
        reason = f"The limit of {limit} is reached; {stopped if call_count else 'the model was not asked again'}."
        return self._build_result("incomplete", reason=reason, cause=cause)

    def _build_deadline_result(self) -> RunResult:
        names = ", ".join(self._call_runner.unfinished.values())
        stopped = "the turn in progress was cancelled"
        if names:
            stopped = f"calls in progress were cancelled, and it is unknown what they have done: {names}"
        reason = f"The limit of {self._request.max_seconds:g} seconds is reached; {stopped}."
        return self._build_result("incomplete", reason=reason, cause="max_seconds")

    def _build_answered_result(self, finish: str, limit: int) -> RunResult:
        if finish in ("size", "memory"):
            reason = f"The answer was cut at the limit of {limit} bytes."
            if finish == "memory":
                reason = "The answer was cut: all requests and answers together are at the limit of bytes in memory."
            holodeck_log.warning("run.answer_cut", turn=self._turns, limit=limit)
            # The nearest of the reasons that clients of the Responses API know.
            return self._build_result("incomplete", reason=reason, cause="max_output_tokens")
        if finish == "length":
            reason = "The answer was cut at the limit of tokens."
            return self._build_result("incomplete", reason=reason, cause="max_output_tokens")
        if finish == "content_filter":
            reason = "The provider's content filter stopped the answer."
            return self._build_result("incomplete", reason=reason, cause="content_filter")
        return self._build_result("completed")

    def _build_result(
        self,
        status: Status,
        *,
        reason: str = "",
        cause: Cause | None = None,
        error: Failure | None = None,
        pending: tuple[FunctionCall, ...] = (),
        needs_approval: frozenset[str] = frozenset(),
    ) -> RunResult:
        texts = [item.text for item in self._items if isinstance(item, Message) and item.role == "assistant"]
        return RunResult(
            status=status,
            text=texts[-1] if texts else "",
            items=tuple(self._items),
            reason=reason,
            cause=cause,
            error=error,
            pending=pending,
            held=needs_approval,
            turns=self._turns,
            tool_calls=self._calls,
            usage=self._run.usage,
            seconds=time.monotonic() - self._started_at,
            missing_servers=tuple(self._toolbox.missing.values()),
            service_tier=self._service_tier,
            cost=self._run.cost if self._answered_by is not None or self._request.prices.usual is not None else None,
            answered_by=self._answered_by or "",
            history=(*self._request.model.items, *self._items),
        )


def _calls_of(answer: ModelAnswer) -> list[FunctionCall]:
    return [item for item in answer.items if isinstance(item, FunctionCall)]


def _check_required(toolbox: Toolbox) -> None:
    for server in toolbox.missing.values():
        if server.required:
            raise ServerUnavailableError(f"The server '{server.name}' is required and missing. {server.reason}")


def _first_cause(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _failure_of(error: HoloDeckError, *, has_run_tools: bool) -> Failure:
    if isinstance(error, ServerUnavailableError):
        return Failure(code=SERVER_UNAVAILABLE, message=str(error), public_message=error.public_text)
    if isinstance(error, StorageError):
        return Failure(code=STORAGE_FAILED, message=str(error), public_message=error.public_text)
    if isinstance(error, HookError):
        return Failure(code=HOOK_FAILED, message=str(error), is_retryable=False)
    if not isinstance(error, ModelError):
        return Failure(code="run_error", message=str(error), public_message=error.public_text)
    # After tools have run, the question that the model refuses has their outputs in it: the client cannot correct it.
    is_tool_output_refused = has_run_tools and error.code == BAD_QUESTION
    return Failure(
        code="model_error" if is_tool_output_refused else error.code or "model_error",
        message=str(error),
        public_message=error.public_text,
        is_retryable=error.is_retryable,
        retry_after=error.retry_after,
    )
