"""A model that follows rules: it needs no key, no download and no network, and never invents an argument."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from holodeck.lib.ids import new_id
from holodeck.models.exchange import Answered, CallDelta, FinishReason, ModelEvent, ModelRequest, TextDelta, ToolSpec
from holodeck.models.items import FunctionCall, Item, Usage, said
from holodeck.providers.rehearsal.formatted import formatted
from holodeck.providers.rehearsal.plan import Step, plan
from holodeck.providers.rehearsal.speech import LABEL, asked_for, asking, held_back, offering, reporting
from holodeck.providers.rehearsal.transcript import Turn, read_turn, words_in

_WORDS_PER_DELTA = 3


class Rehearsal:
    """Picks a tool by the words of the request, calls it with what the request says, and tells what came back."""

    name = "rehearsal"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer in small pieces, as a language model does."""
        turn = read_turn(request.items)
        answer = await asyncio.to_thread(_decide, turn, request)  # a long request takes longer than a loop may wait
        usage = Usage(input_tokens=words_in(request.items, request.instructions))
        if isinstance(answer, str):
            shape = request.response_format
            words = formatted(answer, shape, turn.done) if shape is not None else f"{LABEL} {answer}"
            events = _speak(words, request.max_tokens, usage)
        else:
            events = _call(answer if request.parallel_tool_calls else answer[:1], usage)
        for event in events:
            yield event
            await asyncio.sleep(0)  # whoever reads the stream, or cancels it, gets a turn between two pieces

    async def close(self) -> None:
        """There is nothing to let go of."""


def _decide(turn: Turn, request: ModelRequest) -> str | list[FunctionCall]:
    """Words, or calls."""
    if any(output.is_error for _, output in turn.done):
        return reporting(turn.done)
    choice = request.tool_choice
    tools = _on_offer(request)
    steps = _steps(turn, tools, is_forced=choice.mode == "required" or choice.name is not None)
    if choice.mode == "none":
        return reporting(turn.done) if turn.done else held_back(steps[0].tool) if steps else offering(())
    calls_made = len(turn.calls)
    for step in steps:
        if step.missing:
            return "\n".join([*([reporting(turn.done)] if turn.done else []), asking(step.tool, step.missing)])
        if calls_made < len(step.calls):
            return [_function_call(step, index) for index in range(calls_made, len(step.calls))]
        calls_made -= len(step.calls)
    return reporting(turn.done) if turn.done else offering(tools)


def _steps(turn: Turn, tools: Sequence[ToolSpec], *, is_forced: bool) -> list[Step]:
    """An answer to a question of ours completes the request that made us ask."""
    steps = plan(turn.text, tools, is_forced=is_forced)
    waiting = [tool for tool in tools if tool.name == asked_for(turn.asked)]
    if not waiting or (steps and not steps[0].missing):
        return steps
    whole = plan(f"{turn.before}\n{turn.text}", waiting, is_forced=True)
    missing = whole[0].missing if whole else ()
    if len(missing) == 1 and "." not in missing[0]:
        whole = plan(f"{turn.before}\n{missing[0]}: {turn.text}", waiting, is_forced=True)
    return whole


def _on_offer(request: ModelRequest) -> list[ToolSpec]:
    choice = request.tool_choice
    names = {choice.name} if choice.name is not None else set(choice.allowed) if choice.allowed is not None else None
    return [tool for tool in request.tools if names is None or tool.name in names]


def _function_call(step: Step, index: int) -> FunctionCall:
    arguments = json.dumps(step.calls[index], ensure_ascii=False)
    return FunctionCall(call_id=new_id("call"), name=step.tool.name, arguments=arguments)


def _speak(words: str, limit: int | None, usage: Usage) -> list[ModelEvent]:
    pieces = words.split(" ")
    finish: FinishReason = "stop"
    if limit is not None and len(pieces) > limit:
        pieces, finish = pieces[:limit], "length"
    text = " ".join(pieces)
    groups = [pieces[at : at + _WORDS_PER_DELTA] for at in range(0, len(pieces), _WORDS_PER_DELTA)]
    deltas: list[ModelEvent] = [
        TextDelta(text=("" if at == 0 else " ") + " ".join(group)) for at, group in enumerate(groups)
    ]
    return [*deltas, _answered((said("assistant", text),), finish, usage, len(pieces))]


def _call(calls: Sequence[FunctionCall], usage: Usage) -> list[ModelEvent]:
    deltas: list[ModelEvent] = []
    for index, call in enumerate(calls):
        half = len(call.arguments) // 2
        deltas.append(CallDelta(index=index, call_id=call.call_id, name=call.name))
        deltas.append(CallDelta(index=index, arguments=call.arguments[:half]))
        deltas.append(CallDelta(index=index, arguments=call.arguments[half:]))
    words = sum(len(call.arguments.split()) + 1 for call in calls)
    return [*deltas, _answered(tuple(calls), "tool_calls", usage, words)]


def _answered(items: tuple[Item, ...], finish: FinishReason, usage: Usage, words: int) -> Answered:
    return Answered(items=items, finish=finish, usage=replace(usage, output_tokens=words), model=Rehearsal.name)
