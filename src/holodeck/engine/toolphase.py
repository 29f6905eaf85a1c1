"""The tool calls of one turn: checked, run side by side, and answered in the order in which they were asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holodeck.engine import spans
from holodeck.engine.eventlog import EventLog
from holodeck.engine.steps import Errand, Steps
from holodeck.lib.ids import new_id
from holodeck.models.events import ItemFinished, ToolFinished, ToolProgressed, ToolStarted
from holodeck.models.items import FunctionCall, FunctionCallOutput, output_id
from holodeck.tools.arguments import BadArgumentsError, parse_arguments
from holodeck.tools.executor import NOT_APPROVED, ToolCall, ToolResult
from holodeck.tools.registry import Toolbox


class ToolPhase:
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

    def allows(self, name: str) -> bool:
        """False for a tool that the choice of tools leaves out."""
        return self._allowed is None or name in self._allowed

    async def run(self, calls: Sequence[FunctionCall], *, budget: int | None) -> list[FunctionCallOutput]:
        """One output for each call, in the order of the calls; `budget` is how many may really run."""
        within = len(calls) if budget is None else max(budget, 0)
        width = len(calls) if self._is_parallel else 1
        gate = asyncio.Semaphore(max(width, 1))

        async def one(index: int, call: FunctionCall) -> FunctionCallOutput:
            async with gate:
                return await self._one(call, is_within=index < within)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(index, call)) for index, call in enumerate(calls)]
        outputs = [task.result() for task in tasks]
        for output in outputs:
            self._log.append(ItemFinished(item=output))
        return outputs

    async def _one(self, call: FunctionCall, *, is_within: bool) -> FunctionCallOutput:
        began = time.monotonic()
        arguments, fault = _parsed(call)
        self._log.append(ToolStarted(call_id=call.call_id, name=call.name, arguments=arguments))
        errand = Errand(
            call=call,
            refusal=lambda: self._refusal(call, arguments, fault, is_within=is_within),
            permission=lambda: self._permission(call, arguments),
            may_repeat=lambda: self._toolbox.may_repeat(call.name),
            execute=lambda: self._executed(call, arguments),
        )
        result = self._toolbox.shown(call.name, await self._steps.call(errand))
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

    async def _refusal(
        self, call: FunctionCall, arguments: Mapping[str, Any], fault: str | None, *, is_within: bool
    ) -> str | None:
        return self._refused(call, fault or await self._find_refusal(call, arguments, is_within=is_within))

    async def _find_refusal(self, call: FunctionCall, arguments: Mapping[str, Any], *, is_within: bool) -> str | None:
        if not is_within:
            return "The limit of tool calls is reached; this one was not run."
        if self._toolbox.spec(call.name) is None:
            return _unknown(call.name, self._toolbox.names)
        if not self.allows(call.name):
            return f"The tool '{call.name}' is not allowed in this run."
        try:
            await self._toolbox.check_arguments(call.name, arguments)
        except BadArgumentsError as error:
            return str(error)
        return None

    async def _executed(self, call: FunctionCall, arguments: Mapping[str, Any]) -> ToolResult:
        def progressed(text: str) -> None:
            self._log.append(ToolProgressed(call_id=call.call_id, text=text))

        asked = ToolCall(
            call_id=call.call_id,
            name=call.name,
            arguments=arguments,
            key=call.id,
            is_permitted=call.call_id in self._permitted,
            on_progress=progressed,
        )
        with spans.execute_tool(call, is_known=True) as span:
            result = await self._toolbox.execute(asked)
            if result.is_error:
                span.fail("tool_error")
            return result

    async def _permission(self, call: FunctionCall, arguments: Mapping[str, Any]) -> str | None:
        asked = ToolCall(call_id=call.call_id, name=call.name, arguments=arguments, key=call.id)
        is_permitted = await self._toolbox.ask_person(asked)
        if is_permitted:
            self._permitted.add(call.call_id)
        return self._refused(call, NOT_APPROVED if is_permitted is False else None)

    def _refused(self, call: FunctionCall, reason: str | None) -> str | None:
        if reason is not None:
            with spans.execute_tool(call, is_known=self._toolbox.spec(call.name) is not None) as span:
                span.fail("refused")
        return reason


def _parsed(call: FunctionCall) -> tuple[dict[str, Any], str | None]:
    try:
        return parse_arguments(call.arguments), None
    except BadArgumentsError as error:
        return {}, str(error)


def _unknown(name: str, names: Collection[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, n=3)
    hint = f" Did you mean {' or '.join(repr(each) for each in close)}?" if close else ""
    return f"There is no tool '{name}'.{hint}"
