"""The tool calls of one turn: checked, run side by side, and answered in the order in which they were asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holodeck.engine import tracing
from holodeck.engine.event_log import EventLog
from holodeck.engine.steps import PreparedCall, Steps
from holodeck.lib.ids import new_id
from holodeck.models.events import ItemFinished, ToolFinished, ToolProgressed, ToolStarted
from holodeck.models.items import FunctionCall, FunctionCallOutput, output_id
from holodeck.tools.arguments import BadArgumentsError, parse_arguments
from holodeck.tools.executor import NOT_APPROVED, ToolCall, ToolResult
from holodeck.tools.toolbox import Toolbox


class ToolCallRunner:
    """Runs calls. Whatever goes wrong with one is its result, in words that the model can act on."""

    def __init__(
        self, toolbox: Toolbox, log: EventLog, steps: Steps, *, allowed: Collection[str] | None, is_parallel: bool
    ) -> None:
        self._toolbox = toolbox
        self._log = log
        self._steps = steps
        self._allowed = allowed
        self._is_parallel = is_parallel
        self._permitted: set[str] = set()

    def is_allowed(self, name: str) -> bool:
        """False for a tool that the choice of tools leaves out."""
        return self._allowed is None or name in self._allowed

    async def run(self, calls: Sequence[FunctionCall], *, max_calls: int | None) -> list[FunctionCallOutput]:
        """One output for each call, in the order of the calls; `max_calls` is how many may really run."""
        within = len(calls) if max_calls is None else max(max_calls, 0)
        width = len(calls) if self._is_parallel else 1
        gate = asyncio.Semaphore(max(width, 1))

        async def run_within_width(index: int, call: FunctionCall) -> FunctionCallOutput:
            async with gate:
                return await self._run_call(call, is_within_limit=index < within)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_within_width(index, call)) for index, call in enumerate(calls)]
        outputs = [task.result() for task in tasks]
        for output in outputs:
            self._log.append(ItemFinished(item=output))
        return outputs

    async def _run_call(self, call: FunctionCall, *, is_within_limit: bool) -> FunctionCallOutput:
        began = time.monotonic()
        arguments, fault = _parse_call_arguments(call)
        self._log.append(ToolStarted(call_id=call.call_id, name=call.name, arguments=arguments))
        errand = PreparedCall(
            call=call,
            find_refusal=lambda: self._check_call(call, arguments, fault, is_within_limit=is_within_limit),
            ask_permission=lambda: self._ask_permission(call, arguments),
            may_repeat=lambda: self._toolbox.may_repeat(call.name),
            execute=lambda: self._execute(call, arguments),
        )
        result = self._toolbox.shorten_result(call.name, await self._steps.run_call(errand))
        output = FunctionCallOutput(
            call_id=call.call_id, content=result.content, is_error=result.is_error, id=output_id(call) or new_id("out")
        )
        seconds = time.monotonic() - began
        self._log.append(
            ToolFinished(
                call_id=call.call_id, name=call.name, output=output, seconds=seconds, metadata=dict(result.metadata)
            )
        )
        return output

    async def _check_call(
        self, call: FunctionCall, arguments: Mapping[str, Any], parse_error: str | None, *, is_within_limit: bool
    ) -> str | None:
        return self._trace_refusal(
            call, parse_error or await self._find_refusal(call, arguments, is_within_limit=is_within_limit)
        )

    async def _find_refusal(
        self, call: FunctionCall, arguments: Mapping[str, Any], *, is_within_limit: bool
    ) -> str | None:
        if not is_within_limit:
            return "The limit of tool calls is reached; this one was not run."
        if self._toolbox.find_spec(call.name) is None:
            return _unknown_tool_message(call.name, self._toolbox.names)
        if not self.is_allowed(call.name):
            return f"The tool '{call.name}' is not allowed in this run."
        try:
            await self._toolbox.check_arguments(call.name, arguments)
        except BadArgumentsError as error:
            return str(error)
        return None

    async def _execute(self, call: FunctionCall, arguments: Mapping[str, Any]) -> ToolResult:
        def append_progress(text: str) -> None:
            self._log.append(ToolProgressed(call_id=call.call_id, text=text))

        asked = ToolCall(
            call_id=call.call_id,
            name=call.name,
            arguments=arguments,
            key=call.id,
            is_approved=call.call_id in self._permitted,
            on_progress=append_progress,
        )
        with tracing.start_call_span(call, is_known=True) as span:
            result = await self._toolbox.execute(asked)
            if result.is_error:
                span.fail("tool_error")
            return result

    async def _ask_permission(self, call: FunctionCall, arguments: Mapping[str, Any]) -> str | None:
        asked = ToolCall(call_id=call.call_id, name=call.name, arguments=arguments, key=call.id)
        is_permitted = await self._toolbox.ask_person(asked)
        if is_permitted:
            self._permitted.add(call.call_id)
        return self._trace_refusal(call, NOT_APPROVED if is_permitted is False else None)

    def _trace_refusal(self, call: FunctionCall, reason: str | None) -> str | None:
        if reason is not None:
            with tracing.start_call_span(call, is_known=self._toolbox.find_spec(call.name) is not None) as span:
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
