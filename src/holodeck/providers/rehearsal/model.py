"""A model that follows rules: it needs no key, no download and no network, and never invents an argument."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from holodeck.lib.ids import new_id
from holodeck.models.items import FunctionCall, Item, Usage, text_message
from holodeck.models.model_io import CallDelta, FinishReason, ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolSpec
from holodeck.providers.rehearsal.formatted import format_answer
from holodeck.providers.rehearsal.plan import Step, plan_steps
from holodeck.providers.rehearsal.speech import (
    LABEL,
    ask_for_missing,
    describe_tools,
    describe_withheld_call,
    find_asked_tool,
    report_results,
)
from holodeck.providers.rehearsal.transcript import OpenRequest, count_words, read_open_request

_WORDS_PER_DELTA = 3


class Rehearsal:
    """Picks a tool by the words of the request, calls it with what the request says, and tells what came back."""

    name = "rehearsal"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer in small pieces, as a language model does."""
        turn = read_open_request(request.items)
        answer = await asyncio.to_thread(_decide, turn, request)  # a long request takes longer than a loop may wait
        usage = Usage(input_tokens=count_words(request.items, request.instructions))
        if isinstance(answer, str):
            shape = request.response_format
            words = format_answer(answer, shape, turn.results) if shape is not None else f"{LABEL} {answer}"
            events = _build_text_events(words, request.max_tokens, usage)
        else:
            events = _build_call_events(answer if request.parallel_tool_calls else answer[:1], usage)
        for event in events:
            yield event
            await asyncio.sleep(0)  # whoever reads the stream, or cancels it, gets a turn between two pieces

    async def close(self) -> None:
        """There is nothing to let go of."""


def _decide(turn: OpenRequest, request: ModelRequest) -> str | list[FunctionCall]:
    """Words, or calls."""
    if any(output.is_error for _, output in turn.results):
        return report_results(turn.results)
    choice = request.tool_choice
    tools = _select_tools(request)
    steps = _plan_request(turn, tools, is_forced=choice.mode == "required" or choice.name is not None)
    if choice.mode == "none":
        return (
            report_results(turn.results)
            if turn.results
            else describe_withheld_call(steps[0].tool)
            if steps
            else describe_tools(())
        )
    calls_made = len(turn.calls)
    for step in steps:
        if step.missing:
            return "\n".join(
                [*([report_results(turn.results)] if turn.results else []), ask_for_missing(step.tool, step.missing)]
            )
        if calls_made < len(step.calls):
            return [_function_call(step, index) for index in range(calls_made, len(step.calls))]
        calls_made -= len(step.calls)
    return report_results(turn.results) if turn.results else describe_tools(tools)


def _plan_request(turn: OpenRequest, tools: Sequence[ToolSpec], *, is_forced: bool) -> list[Step]:
    """An answer to a question of ours completes the request that made us ask."""
    steps = plan_steps(turn.text, tools, is_forced=is_forced)
    waiting = [tool for tool in tools if tool.name == find_asked_tool(turn.question)]
    if not waiting or (steps and not steps[0].missing):
        return steps
    whole = plan_steps(f"{turn.previous_text}\n{turn.text}", waiting, is_forced=True)
    missing = whole[0].missing if whole else ()
    if len(missing) == 1 and "." not in missing[0]:
        whole = plan_steps(f"{turn.previous_text}\n{missing[0]}: {turn.text}", waiting, is_forced=True)
    return whole


def _select_tools(request: ModelRequest) -> list[ToolSpec]:
    choice = request.tool_choice
    names = {choice.name} if choice.name is not None else set(choice.allowed) if choice.allowed is not None else None
    return [tool for tool in request.tools if names is None or tool.name in names]


def _function_call(step: Step, index: int) -> FunctionCall:
    arguments = json.dumps(step.calls[index], ensure_ascii=False)
    return FunctionCall(call_id=new_id("call"), name=step.tool.name, arguments=arguments)


def _build_text_events(words: str, limit: int | None, usage: Usage) -> list[ModelEvent]:
    pieces = words.split(" ")
    finish: FinishReason = "stop"
    if limit is not None and len(pieces) > limit:
        pieces, finish = pieces[:limit], "length"
    text = " ".join(pieces)
    groups = [pieces[at : at + _WORDS_PER_DELTA] for at in range(0, len(pieces), _WORDS_PER_DELTA)]
    deltas: list[ModelEvent] = [
        TextDelta(text=("" if at == 0 else " ") + " ".join(group)) for at, group in enumerate(groups)
    ]
    return [*deltas, _build_answered((text_message("assistant", text),), finish, usage, len(pieces))]


def _build_call_events(calls: Sequence[FunctionCall], usage: Usage) -> list[ModelEvent]:
    deltas: list[ModelEvent] = []
    for index, call in enumerate(calls):
        half = len(call.arguments) // 2
        deltas.append(CallDelta(index=index, call_id=call.call_id, name=call.name))
        deltas.append(CallDelta(index=index, arguments=call.arguments[:half]))
        deltas.append(CallDelta(index=index, arguments=call.arguments[half:]))
    words = sum(len(call.arguments.split()) + 1 for call in calls)
    return [*deltas, _build_answered(tuple(calls), "tool_calls", usage, words)]


def _build_answered(items: tuple[Item, ...], finish: FinishReason, usage: Usage, words: int) -> ModelAnswer:
    return ModelAnswer(items=items, finish=finish, usage=replace(usage, output_tokens=words), model=Rehearsal.name)
