"""Tool calls of one turn: checked, run concurrently, and answered in the order in which the model made them.

`ToolCallRunner` prepares each call and runs it, or has the `Steps` of a durable run do that. A problem with one
call (bad arguments, unknown tool, no permission, failed execution) is the result of that call, as text that the model
can act on; it never ends the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from holodeck.engine import tracing
from holodeck.engine.event_log import EventSink
from holodeck.engine.server_wait import send_when_present
from holodeck.engine.steps import Steps
from holodeck.lib.ids import new_id
from holodeck.models.events import ItemFinished, ToolFinished, ToolProgressed, ToolStarted
from holodeck.models.items import FunctionCall, FunctionCallOutput, output_id
from holodeck.tools import executor
from holodeck.tools.calls import BadArgumentsError, Decision, parse_arguments
from holodeck.tools.executor import CallingRun, Refusal, ResumePoint, ToolCall, ToolResult
from holodeck.tools.toolbox import Toolbox

_OVER_CALL_LIMIT = "The limit of tool calls is reached; this one was not run."


class ToolCallRunner:
    """Runs the calls of a turn and appends their events to the log of the run."""

    def __init__(
        self,
        toolbox: Toolbox,
        log: EventSink,
        steps: Steps | None,
        *,
        run: CallingRun,
        allowed: Collection[str] | None,
        is_parallel: bool,
        server_wait: float = 0.0,
    ) -> None:
        """Run only the tools with a name in `allowed`; None: all. `is_parallel`: False runs one call at a time.

        `run`: the run that makes the calls. `server_wait`: seconds that a call waits for a server that is away.
        """
        self._run = run
        self._server_wait = server_wait
        self._toolbox = toolbox
        self._log = log
        self._steps = steps
        self._allowed = allowed
        self._is_parallel = is_parallel
        self.unfinished: dict[str, str] = {}
        """By id, the names of the tools whose calls were started and have not ended; a cancelled call stays here."""

    def is_allowed(self, name: str) -> bool:
        """Return False for a tool that the tool choice of the request excludes."""
        return self._allowed is None or name in self._allowed

    async def run(self, calls: Sequence[FunctionCall], *, max_calls: int | None) -> list[FunctionCallOutput]:
        """Return one output for each call, in the order of the calls. Only the first `max_calls` of them are run."""
        within = len(calls) if max_calls is None else max(max_calls, 0)
        runs = (self._run_call(call, is_within_limit=index < within) for index, call in enumerate(calls))
        if self._is_parallel and len(calls) > 1:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run) for run in runs]
            outputs = [task.result() for task in tasks]
        else:
            # In the current task: nearly all turns have one call, and a group for it costs as much as the call.
            outputs = [await run for run in runs]
        for output in outputs:
            self._log.append(ItemFinished(item=output))
        return outputs

    async def _run_call(self, call: FunctionCall, *, is_within_limit: bool) -> FunctionCallOutput:
        prepared = _PreparedToolCall(
            call,
            self._toolbox,
            self._log,
            self._run,
            is_allowed=self.is_allowed(call.name),
            is_within_limit=is_within_limit,
            server_wait=self._server_wait,
        )
        self._log.append(
            ToolStarted(
                call_id=call.call_id, name=call.name, arguments=prepared.arguments, is_over_limit=not is_within_limit
            )
        )
        self.unfinished[call.call_id] = call.name
        result = await (prepared.run() if self._steps is None else self._steps.run_call(prepared))
        if result.spending is not None and not prepared.has_run:
            self._run.repay(result.spending)
        result = self._toolbox.prepare_result(call.name, result)
        output = FunctionCallOutput(
            call_id=call.call_id, content=result.content, is_error=result.is_error, id=output_id(call) or new_id("out")
        )
        self.unfinished.pop(call.call_id, None)
        seconds = time.monotonic() - prepared.sent_at
        self._log.append(
            ToolFinished(
                call_id=call.call_id, name=call.name, output=output, seconds=seconds, metadata=dict(result.metadata)
            )
        )
        return output


class _PreparedToolCall:
    """A `PreparedCall` that passes the rules of the toolbox. A refusal is recorded as a failed span."""

    def __init__(
        self,
        call: FunctionCall,
        toolbox: Toolbox,
        log: EventSink,
        run: CallingRun,
        *,
        is_allowed: bool,
        is_within_limit: bool,
        server_wait: float,
    ) -> None:
        self._server_wait = server_wait
        self._log = log
        self.call = call
        self.sent_at = time.monotonic()
        """Clock when the tool began: the time that a person takes to approve a call is not the tool's."""
        self.arguments, parse_error = _parse_call_arguments(call)
        self._toolbox = toolbox
        self._pipeline = toolbox.pipeline
        self._tool_call = ToolCall(
            call_id=call.call_id,
            name=call.name,
            arguments=self.arguments,
            key=call.id,
            spec=toolbox.find_spec(call.name),
            # Not a method: the call would refer to this object, and only the garbage collector would free both.
            on_progress=partial(_append_progress, log, call.call_id),
            on_question=self._pipeline.on_question,
            run=run,
        )
        self.has_run = False
        self._rules = rules = toolbox.find_rules(self._tool_call)
        refusal = rules.refusal
        if parse_error is not None:
            refusal = Refusal(code=executor.INVALID_JSON, text=parse_error)
        elif not is_within_limit:
            refusal = Refusal(code=executor.CALL_LIMIT, text=_OVER_CALL_LIMIT)
        elif refusal is None and not is_allowed:
            refusal = Refusal(
                code=executor.TOOL_NOT_ALLOWED, text=f"The tool '{call.name}' is not allowed in this run."
            )
        if refusal is not rules.refusal:
            self._rules = replace(rules, refusal=refusal)
        self._decision: Decision | None = None

    async def run(self) -> ToolResult:
        """Execute the call, or return a failure that has its refusal."""
        refusal = await self.find_refusal()
        if refusal is None:
            return await self.execute()
        return ToolResult.failure(self.call.call_id, refusal, **{executor.REFUSED: executor.REFUSED})

    async def find_refusal(self) -> str | None:
        refusal = await self._pipeline.find_refusal(self._tool_call, self._rules)
        if refusal is None:
            return None
        if refusal.code == executor.TOOL_CHANGED:
            self._toolbox.acknowledge_change(self.call.name)
        return self._trace_refusal(refusal.text)

    async def ask_permission(self) -> str | None:
        self._decision = decision = await self._pipeline.approve(self._tool_call, self._rules)
        self.sent_at = time.monotonic()
        # What a person has decided is stored. A refusal by rule is the result, and is the same in every process.
        if isinstance(decision, Refusal) and decision.code == executor.APPROVAL_DECLINED:
            return self._trace_refusal(decision.text)
        return None

    def may_repeat(self) -> bool:
        return self._toolbox.may_repeat(self.call.name)

    async def execute(self, resume: ResumePoint | None = None) -> ToolResult:
        self.has_run = True
        call, rules = self._tool_call if resume is None else replace(self._tool_call, resume=resume), self._rules
        with tracing.start_call_span(self.call, is_known=True) as span:
            result = await self._pipeline.execute(call, rules, self._send, _keep_result, decision=self._decision)
            if isinstance(result, Refusal):
                self.sent_at = time.monotonic()
                result = result.to_result(call.call_id, rules.target)
            if executor.CHANGED in result.metadata:
                self._toolbox.forget_offer(call.name)
            if result.is_error:
                span.fail("tool_error")
            return result

    async def _send(self, call: ToolCall) -> ToolResult:
        # Looked up now: while a person decided, the name may have come to mean another tool, or none.
        self.sent_at = time.monotonic()
        found = self._toolbox.find_executor(call.name)
        if found is None:
            return self._toolbox.refuse_moved(call)
        if self._server_wait:
            return await send_when_present(found.execute, call, self._server_wait, self._log)
        return await found.execute(call)

    async def record_unknown(self, result: ToolResult) -> None:
        await self._pipeline.record_result(self._tool_call, self._rules, result)

    def _trace_refusal(self, reason: str) -> str:
        is_known = self._toolbox.find_spec(self.call.name) is not None
        with tracing.start_call_span(self.call, is_known=is_known) as span:
            span.fail("refused")
        return reason


def _append_progress(log: EventSink, call_id: str, text: str) -> None:
    log.append(ToolProgressed(call_id=call_id, text=text))


def _keep_result(call: ToolCall, result: ToolResult) -> ToolResult:
    return result


def _parse_call_arguments(call: FunctionCall) -> tuple[dict[str, Any], str | None]:
    try:
        return parse_arguments(call.arguments), None
    except BadArgumentsError as error:
        return {}, str(error)
