"""Tool calls of one turn: checked, run concurrently, and answered in the order in which the model made them.

`ToolCallRunner` prepares each call and runs it, or has the `Steps` of a durable run do that. A problem with one
call (bad arguments, unknown tool, no permission, failed execution) is the result of that call, as text that the model
can act on; it never ends the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any

from holodeck.engine import tracing
from holodeck.engine.event_log import EventLog
from holodeck.engine.steps import Steps
from holodeck.lib.call_errors import NOT_APPROVED, TOOL_CHANGED
from holodeck.lib.ids import new_id
from holodeck.lib.record import record
from holodeck.models.events import ItemFinished, ToolFinished, ToolProgressed, ToolStarted
from holodeck.models.items import FunctionCall, FunctionCallOutput, output_id
from holodeck.tools import executor
from holodeck.tools.arguments import BadArgumentsError, parse_arguments
from holodeck.tools.executor import ResumePoint, ToolCall, ToolResult
from holodeck.tools.toolbox import Toolbox

_OVER_CALL_LIMIT = "The limit of tool calls is reached; this one was not run."


class ToolCallRunner:
    """Runs the calls of a turn and appends their events to the log of the run."""

    def __init__(
        self,
        toolbox: Toolbox,
        log: EventLog,
        steps: Steps | None,
        *,
        allowed: Collection[str] | None,
        is_parallel: bool,
    ) -> None:
        """`allowed`: names of the tools that may run, None for all. `is_parallel`: False runs one call at a time."""
        self._toolbox = toolbox
        self._log = log
        self._steps = steps
        self._allowed = allowed
        self._is_parallel = is_parallel
        self.unfinished: dict[str, str] = {}
        """By id, the names of the tools whose calls were started and have not ended; a cancelled call stays here."""

    def is_allowed(self, name: str) -> bool:
        """False for a tool that the tool choice of the request excludes."""
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
        started_at = time.monotonic()
        prepared = _PreparedToolCall(
            call,
            self._toolbox,
            self._log,
            is_allowed=self.is_allowed(call.name),
            is_within_limit=is_within_limit,
        )
        self._log.append(
            ToolStarted(
                call_id=call.call_id, name=call.name, arguments=prepared.arguments, is_over_limit=not is_within_limit
            )
        )
        self.unfinished[call.call_id] = call.name
        result = await (prepared.run() if self._steps is None else self._steps.run_call(prepared))
        result = self._toolbox.prepare_result(call.name, result)
        output = FunctionCallOutput(
            call_id=call.call_id, content=result.content, is_error=result.is_error, id=output_id(call) or new_id("out")
        )
        self.unfinished.pop(call.call_id, None)
        seconds = time.monotonic() - started_at
        self._log.append(
            ToolFinished(
                call_id=call.call_id, name=call.name, output=output, seconds=seconds, metadata=dict(result.metadata)
            )
        )
        return output


@record
class _Refusal:
    """Why a call is not executed: a code for records, and a text for the model."""

    code: str
    text: str


class _PreparedToolCall:
    """A `PreparedCall` that is executed by the toolbox. A refusal is recorded as a failed span."""

    def __init__(
        self, call: FunctionCall, toolbox: Toolbox, log: EventLog, *, is_allowed: bool, is_within_limit: bool
    ) -> None:
        self.call = call
        self.arguments, self._parse_error = _parse_call_arguments(call)
        self._toolbox = toolbox
        self._log = log
        self._is_allowed = is_allowed
        self._is_within_limit = is_within_limit
        self._is_approved = False

    async def run(self) -> ToolResult:
        """Execute the call, or return a failure that has its refusal."""
        refusal = await self.find_refusal()
        if refusal is None:
            return await self.execute()
        return ToolResult.failure(self.call.call_id, refusal, **{executor.REFUSED: executor.REFUSED})

    async def find_refusal(self) -> str | None:
        refusal = await self._check_call()
        if refusal is None:
            return None
        await self._toolbox.record_refusal(self._build_tool_call(), refusal.code)
        return self._trace_refusal(refusal.text)

    async def ask_permission(self) -> str | None:
        is_permitted = await self._toolbox.ask_person(self._build_tool_call())
        self._is_approved = bool(is_permitted)
        return self._trace_refusal(NOT_APPROVED if is_permitted is False else None)

    def may_repeat(self) -> bool:
        return self._toolbox.may_repeat(self.call.name)

    async def execute(self, resume: ResumePoint | None = None) -> ToolResult:
        with tracing.start_call_span(self.call, is_known=True) as span:
            result = await self._toolbox.execute(self._build_tool_call(resume))
            if result.is_error:
                span.fail("tool_error")
            return result

    async def record_unknown(self, result: ToolResult) -> None:
        await self._toolbox.record_unknown(self._build_tool_call(), result)

    async def _check_call(self) -> _Refusal | None:
        name = self.call.name
        if self._parse_error is not None:
            return _Refusal(code=executor.INVALID_JSON, text=self._parse_error)
        if not self._is_within_limit:
            return _Refusal(code=executor.CALL_LIMIT, text=_OVER_CALL_LIMIT)
        if self._toolbox.find_spec(name) is None:
            missing_reason = self._toolbox.find_missing_reason(name)
            if missing_reason is not None:
                return _Refusal(code=executor.OUT_OF_SCOPE, text=missing_reason)
            return _Refusal(code=executor.UNKNOWN_TOOL, text=_unknown_tool_message(name, self._toolbox.names))
        if self._toolbox.acknowledge_change(name):
            return _Refusal(code=executor.TOOL_CHANGED, text=TOOL_CHANGED.format(tool=name))
        if not self._is_allowed:
            return _Refusal(code=executor.TOOL_NOT_ALLOWED, text=f"The tool '{name}' is not allowed in this run.")
        try:
            await self._toolbox.check_arguments(name, self.arguments)
        except BadArgumentsError as error:
            return _Refusal(code=executor.INVALID_ARGUMENTS, text=str(error))
        return None

    def _build_tool_call(self, resume: ResumePoint | None = None) -> ToolCall:
        return ToolCall(
            call_id=self.call.call_id,
            name=self.call.name,
            arguments=self.arguments,
            key=self.call.id,
            spec=self._toolbox.find_spec(self.call.name),
            is_approved=self._is_approved,
            on_progress=self._append_progress,
            resume=resume,
        )

    def _append_progress(self, text: str) -> None:
        self._log.append(ToolProgressed(call_id=self.call.call_id, text=text))

    def _trace_refusal(self, reason: str | None) -> str | None:
        if reason is not None:
            is_known = self._toolbox.find_spec(self.call.name) is not None
            with tracing.start_call_span(self.call, is_known=is_known) as span:
                span.fail("refused")
        return reason


def _parse_call_arguments(call: FunctionCall) -> tuple[dict[str, Any], str | None]:
    try:
        return parse_arguments(call.arguments), None
    except BadArgumentsError as error:
        return {}, str(error)


def _unknown_tool_message(name: str, names: Collection[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, n=3)
    hint = f" Did you mean {' or '.join(repr(each) for each in close)}?" if close else ""
    return f"There is no tool '{name}'.{hint}"
