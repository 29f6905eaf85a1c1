"""The agent loop: ask the model, run the tools that it asks for, tell it what came of them, until it has an answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from holodeck.engine import tracing
from holodeck.engine.event_log import EventLog
from holodeck.engine.steps import AppendEvent, DirectSteps, ModelTurn, Steps
from holodeck.engine.tool_calls import ToolCallRunner
from holodeck.engine.turn import answer_size, stream_turn
from holodeck.lib import log as holodeck_log
from holodeck.lib.byte_budget import ByteBudget, Reservation
from holodeck.lib.errors import (
    BAD_QUESTION,
    SERVER_UNAVAILABLE,
    HoloDeckError,
    ModelError,
    ServerUnavailableError,
)
from holodeck.lib.limits import DEFAULT_ANSWER_BYTES, DEFAULT_MAX_TURNS, DEFAULT_RESPONSE_BYTES
from holodeck.lib.types import record
from holodeck.models.events import (
    Cause,
    Failure,
    MissingServer,
    RunFinished,
    RunResult,
    RunStarted,
    Status,
    TurnStarted,
)
from holodeck.models.items import FunctionCall, Item, Message, Usage, place_outputs_after_calls
from holodeck.models.model_io import CUT_SHORT, ModelRequest, ToolChoice
from holodeck.providers.base import ModelProvider
from holodeck.tools.toolbox import Toolbox


@record
class RunRequest:
    """One run: what the model is told first, and how far it may go."""

    run_id: str
    model: ModelRequest
    """The first turn's request; its tools come from the toolbox."""
    max_turns: int = DEFAULT_MAX_TURNS
    max_tool_calls: int | None = None
    pending: tuple[FunctionCall, ...] = ()
    """Calls of an earlier run that waited for the client or for approval; they run before the model is asked."""
    agent: str = ""
    """Whose run it is, by the name that people say; for logs and traces."""
    provider: str = ""
    """Who runs the model; for traces."""
    max_answer_bytes: int = DEFAULT_ANSWER_BYTES
    """Of what the model says in one turn; there the turn is ended, and the run is incomplete."""
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    """The same of all turns together."""
    budget: ByteBudget = field(default_factory=ByteBudget)
    """Shared with other runs: what the model says counts in it until the run has ended."""
    can_pause: bool = True
    """False when nobody will bring this run's pending calls back: only those that need approval are left then."""


@dataclass
class _Progress:
    items: list[Item] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    calls: int = 0
    answer_bytes: int = 0
    memory: Reservation = field(default_factory=lambda: Reservation(ByteBudget()))
    started_at: float = field(default_factory=time.monotonic)
    missing: Mapping[str, MissingServer] = field(default_factory=dict)


async def run(
    request: RunRequest, model: ModelProvider, toolbox: Toolbox, log: EventLog, steps: Steps | None = None
) -> RunResult:
    """Run to the end. The log gets everything, `RunFinished` last, also when it fails or is cancelled."""
    progress = _Progress(missing=toolbox.missing, memory=Reservation(request.budget))
    log.append(RunStarted(run_id=request.run_id, model=model.name))
    result: RunResult | None = None
    with tracing.start_run_span(request, model.name) as span:
        try:
            result = await _run_turns(request, model, toolbox, log, progress, steps or DirectSteps())
        except HoloDeckError as error:
            result = _build_result(progress, "failed", error=_failure_of(error, has_run_tools=progress.calls > 0))
        except Exception as error:
            cause = _first_cause(error)
            message = f"HoloDeck itself failed ({type(cause).__name__}). This is a bug."
            if isinstance(cause, HoloDeckError):  # of a step among several
                message = str(cause)
            result = _build_result(progress, "failed", error=Failure(code="run_error", message=message))
            if not isinstance(cause, HoloDeckError):
                raise
        finally:
            result = result or _build_result(progress, "cancelled", reason="The run was cancelled.")
            progress.memory.release()
            log.append(RunFinished(result=result))
            tracing.record_run_end(span, result)
    return result


async def _run_turns(
    request: RunRequest, model: ModelProvider, toolbox: Toolbox, log: EventLog, progress: _Progress, steps: Steps
) -> RunResult:
    ask, choice = request.model, request.model.tool_choice
    allowed = () if choice.mode == "none" else choice.allowed  # whatever the model makes of being told so
    phase = ToolCallRunner(toolbox, log, steps, allowed=allowed, is_parallel=ask.parallel_tool_calls)

    async def execute_calls(calls: list[FunctionCall], phase: ToolCallRunner = phase) -> None:
        left = None if request.max_tool_calls is None else request.max_tool_calls - progress.calls
        progress.items += await phase.run(calls, max_calls=left)
        progress.calls += len(calls) if left is None else min(len(calls), max(left, 0))

    if request.pending:
        await toolbox.collect_specs()
        earlier = ToolCallRunner(toolbox, log, steps, allowed=choice.allowed, is_parallel=ask.parallel_tool_calls)
        await execute_calls(list(request.pending), earlier)
    while True:
        specs = await toolbox.collect_specs()
        progress.turns += 1
        items = place_outputs_after_calls((*ask.items, *progress.items))
        is_as_given = items == ask.items and specs == ask.tools and choice is ask.tool_choice
        asked = ask if is_as_given else replace(ask, items=items, tools=specs, tool_choice=choice)
        limit = min(request.max_answer_bytes, request.max_response_bytes - progress.answer_bytes)
        take = partial(_run_model_turn, model, request.provider, toolbox, asked, progress.turns, limit, progress.memory)
        turn = await steps.run_turn(progress.turns, log, take)
        answered = turn.answer
        progress.usage += answered.usage
        progress.answer_bytes += sum(answer_size(item) for item in answered.items)
        calls = [item for item in answered.items if isinstance(item, FunctionCall)]
        if answered.finish in CUT_SHORT:  # the last call may be half of one: none of them is made
            progress.items += [item for item in answered.items if not isinstance(item, FunctionCall)]
            return _finished_result(progress, answered.finish, limit)
        progress.items += answered.items
        if not calls:
            return _finished_result(progress, answered.finish, limit)
        own = [call for call in calls if not toolbox.is_client_function(call.name) or not phase.is_allowed(call.name)]
        held = [call for call in own if call.call_id in turn.needs_approval]
        if len(own) < len(calls) or held:  # somebody must act before anything runs
            if not request.can_pause:
                await execute_calls([call for call in own if call not in held])
                own = held
            status: Status = "requires_action" if own else "completed"
            return _build_result(
                progress, status, pending=tuple(own), needs_approval=frozenset(call.call_id for call in held)
            )
        if progress.turns >= request.max_turns:
            most, left = request.max_turns, len(calls)
            turns = f"{most} turn{'' if most == 1 else 's'}"
            reason = (
                f"The limit of {turns} is reached; {left} more tool call{' was' if left == 1 else 's were'} not run."
            )
            return _build_result(progress, "incomplete", reason=reason, cause="max_turns")
        await execute_calls(own)
        is_spent = request.max_tool_calls is not None and progress.calls >= request.max_tool_calls
        is_over = is_spent or ask.tool_choice.mode == "none"
        choice = ToolChoice(mode="none" if is_over else "auto", allowed=choice.allowed)


async def _run_model_turn(
    model: ModelProvider,
    provider: str,
    toolbox: Toolbox,
    request: ModelRequest,
    number: int,
    limit: int,
    memory: Reservation,
    append: AppendEvent,
) -> ModelTurn:
    if number == 1:
        _check_required(toolbox)
    append(TurnStarted(turn=number, tools=len(request.tools)))
    with tracing.start_turn_span(provider, model.name, request) as span:
        answered = await stream_turn(model, request, append, limit=limit, memory=memory)
        tracing.record_answer(span, answered)
    calls = (item for item in answered.items if isinstance(item, FunctionCall))
    return ModelTurn(
        answer=answered, needs_approval=frozenset(call.call_id for call in calls if toolbox.needs_approval(call))
    )


def _check_required(toolbox: Toolbox) -> None:
    for server in toolbox.missing.values():
        if server.required:
            raise ServerUnavailableError(f"The server '{server.name}' is required and missing. {server.reason}")


def _first_cause(error: Exception) -> Exception:
    """The first of errors that came together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _failure_of(error: HoloDeckError, *, has_run_tools: bool) -> Failure:
    if isinstance(error, ServerUnavailableError):
        return Failure(code=SERVER_UNAVAILABLE, message=str(error))
    if not isinstance(error, ModelError):
        return Failure(code="run_error", message=str(error))
    is_no_fault_of_theirs = (
        has_run_tools and error.code == BAD_QUESTION
    )  # it is about what a tool gave, not what was asked
    return Failure(
        code="model_error" if is_no_fault_of_theirs else error.code or "model_error",
        message=str(error),
        is_retryable=error.is_retryable,
        retry_after=error.retry_after,
    )


def _finished_result(progress: _Progress, finish: str, limit: int) -> RunResult:
    if finish in ("size", "memory"):
        reason = f"The answer was cut at the limit of {limit} bytes."
        if finish == "memory":
            reason = "The answer was cut: all requests and answers together are at the limit of bytes in memory."
        holodeck_log.warning("run.answer_cut", turn=progress.turns, limit=limit)
        # The nearest of the reasons that clients of the Responses API know.
        return _build_result(progress, "incomplete", reason=reason, cause="max_output_tokens")
    if finish == "length":
        reason = "The answer was cut at the limit of tokens."
        return _build_result(progress, "incomplete", reason=reason, cause="max_output_tokens")
    if finish == "content_filter":
        reason = "The provider's content filter stopped the answer."
        return _build_result(progress, "incomplete", reason=reason, cause="content_filter")
    return _build_result(progress, "completed")


def _build_result(
    progress: _Progress,
    status: Status,
    *,
    reason: str = "",
    cause: Cause | None = None,
    error: Failure | None = None,
    pending: tuple[FunctionCall, ...] = (),
    needs_approval: frozenset[str] = frozenset(),
) -> RunResult:
    said = [item.text for item in progress.items if isinstance(item, Message) and item.role == "assistant"]
    return RunResult(
        status=status,
        text=said[-1] if said else "",
        items=tuple(progress.items),
        reason=reason,
        cause=cause,
        error=error,
        pending=pending,
        held=needs_approval,
        turns=progress.turns,
        tool_calls=progress.calls,
        usage=progress.usage,
        seconds=time.monotonic() - progress.started_at,
        missing_servers=tuple(progress.missing.values()),
    )
