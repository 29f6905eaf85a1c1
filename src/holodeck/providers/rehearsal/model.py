"""A model that follows rules: it needs no key, no download and no network, and never invents an argument."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holodeck.lib.escape import one_line
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.models.content import AudioContent, BinaryContent, ImageContent, TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, Part, Usage, text_message
from holodeck.models.model_io import CallDelta, FinishReason, ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolSpec
from holodeck.providers.rehearsal.arguments import fill_arguments
from holodeck.providers.rehearsal.extract import find_entities
from holodeck.providers.rehearsal.plan import Step, plan_steps
from holodeck.providers.rehearsal.schema_fields import Role, list_fields
from holodeck.providers.tool_schemas import adapt_tool

# Of a tool's answer that is told again: a screen.
MAX_REPORTED_CHARS = 1_500
# In an answer that says what is on offer.
MAX_NAMED_TOOLS = 12


LABEL = "[rehearsal]"
_ASKS = re.compile(r"I would call `(?P<tool>[^`]+)`")


def ask_for_missing(tool: ToolSpec, missing: Sequence[str]) -> str:
    """Names the tool and what it still needs."""
    names = ", ".join(f"`{name}`" for name in missing)
    return f"I would call `{tool.name}`, but your request does not say {names}. What should it be?"


def find_asked_tool(text: str) -> str | None:
    """The tool that an earlier answer of ours asked about."""
    match = _ASKS.search(text) if text.startswith(LABEL) else None
    return match["tool"] if match else None


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """No tool fits: what there is."""
    if not tools:
        return (
            "I only rehearse tool calls by fixed rules, and no tools are on offer here. Configure a model for answers."
        )
    shown = [f"- `{tool.name}`: {one_line(tool.description, MAX_SHOWN_CHARS)}" for tool in tools[:MAX_NAMED_TOOLS]]
    more = len(tools) - len(shown)
    rest = [f"... and {more} more."] if more > 0 else []
    return "\n".join(["I follow fixed rules, and none of the tools fits your request. I can call:", *shown, *rest])


def describe_withheld_call(tool: ToolSpec) -> str:
    """Tools are switched off for this turn."""
    return f"I would call `{tool.name}`, but this request does not allow tool calls."


def report_results(results: Sequence[tuple[FunctionCall, FunctionCallOutput]]) -> str:
    """What the tools answered, in their words."""
    share = MAX_REPORTED_CHARS // max(len(results), 1)
    return "\n".join(_report_result(call, output, share) for call, output in results)


def _report_result(call: FunctionCall, output: FunctionCallOutput, limit: int) -> str:
    said = clip("\n".join(map(_describe_part, output.content)).strip(), limit)
    if output.is_error:
        return f"`{call.name}` failed: {said or 'it gave no reason.'} I did not try again."
    if not said:
        return f"`{call.name}` answered with nothing."
    return f"`{call.name}` answered:{chr(10) if chr(10) in said else ' '}{said}"


def clip(text: str, limit: int) -> str:
    """The text, cut at a word with a note of what is left out."""
    if len(text) <= limit:
        return text
    cut = text[:limit].rsplit(None, 1)[0]
    return f"{cut} ... ({len(text) - len(cut)} more characters)"


def _describe_part(part: Part) -> str:
    match part:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind) | AudioContent(mime_type=kind):
            return f"({'an image' if part.type == 'image' else 'a sound'}, {kind})"
        case BinaryContent(is_link=True, uri=uri, name=name):
            return f"(a link: {name or uri})"
        case BinaryContent(data=data, mime_type=kind):
            return f"({len(data)} bytes of {kind or 'data'})"
        case _:
            return f"({part.type.replace('_', ' ')})"


def format_answer(
    answer: str, schema: Mapping[str, Any], results: Sequence[tuple[FunctionCall, FunctionCallOutput]]
) -> str:
    """The answer as JSON when the schema wants one text, or only what the tools' answers contain."""
    spec = adapt_tool(ToolSpec(name="answer", parameters=schema), "generic").spec
    wanted = [field for field in list_fields(spec.parameters) if field.is_required]
    if len(wanted) == 1 and wanted[0].role is Role.TEXT and len(wanted[0].path) == 1 and not wanted[0].is_many:
        return json.dumps({wanted[0].path[0]: f"{LABEL} {answer}"}, ensure_ascii=False)
    text = "\n".join(part.text for _, output in results for part in output.content if isinstance(part, TextContent))
    filled = fill_arguments(spec, text, find_entities(text))
    if filled.missing or not filled.arguments:
        return f"{LABEL} {answer}\n(This does not fit the format that was asked for: fixed rules cannot write it.)"
    return json.dumps(filled.arguments, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRequest:
    """The part of a conversation that is still to be answered."""

    text: str
    """What the person said last."""
    previous_text: str
    """What the person said before that."""
    question: str
    """What the assistant said in between."""
    calls: tuple[FunctionCall, ...]
    results: tuple[tuple[FunctionCall, FunctionCallOutput], ...]


def read_open_request(items: Sequence[Item]) -> OpenRequest:
    """The last request with its calls and their answers, paired by id."""
    spoken = [at for at, item in enumerate(items) if isinstance(item, Message) and item.role == "user"]
    last = spoken[-1] if spoken else -1
    previous = spoken[-2] if len(spoken) > 1 else -1
    since = items[last + 1 :]
    calls = tuple(item for item in since if isinstance(item, FunctionCall))
    outputs = {item.call_id: item for item in since if isinstance(item, FunctionCallOutput)}
    return OpenRequest(
        text=_text_at(items, last),
        previous_text=_text_at(items, previous),
        question="".join(item.text for item in items[previous + 1 : last] if isinstance(item, Message))
        if spoken
        else "",
        calls=calls,
        results=tuple((call, outputs[call.call_id]) for call in calls if call.call_id in outputs),
    )


def count_words(items: Sequence[Item], instructions: str | None) -> int:
    """How much was read, in words: there are no tokens here."""
    texts = [instructions or ""]
    for item in items:
        match item:
            case Message(content=parts) | FunctionCallOutput(content=parts):
                texts += [part.text for part in parts if isinstance(part, TextContent)]
            case FunctionCall(arguments=arguments):
                texts.append(arguments)
            case _:
                texts.append(item.text)
    return sum(len(text.split()) for text in texts)


def _text_at(items: Sequence[Item], at: int) -> str:
    item = items[at] if at >= 0 else None
    return item.text if isinstance(item, Message) else ""


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
