"""The rehearsal model: follows fixed rules, without a key, a download or the network, and never invents an argument.

A turn reads the last user message with its calls and results (`read_open_request`), plans steps, and then calls the
next tool, asks for a missing argument, reports the results, or lists the tools.

A request is split into steps, and the best tool with its arguments is found for each. The score of a tool is its rank
by words, plus the entities that its fields took, minus missing arguments and unused entities.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from holodeck.lib.escape import one_line
from holodeck.lib.ids import new_id
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MAX_REHEARSED_CHARS, MAX_SHOWN_CHARS
from holodeck.lib.record import record
from holodeck.models.generation import REHEARSAL_FIELDS
from holodeck.models.items import (
    AudioContent,
    BinaryContent,
    FunctionCall,
    FunctionCallOutput,
    ImageContent,
    Item,
    Message,
    Part,
    Reasoning,
    TextContent,
    Usage,
    text_message,
)
from holodeck.models.model_io import CallDelta, FinishReason, ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolSpec
from holodeck.providers.encoding import require_supported
from holodeck.providers.rehearsal.arguments import FilledArguments, fill_arguments
from holodeck.providers.rehearsal.extract import Entity, EntityKind, find_entities
from holodeck.providers.rehearsal.ranking import RankedTool, rank_tools
from holodeck.providers.rehearsal.schema_fields import Role, list_fields
from holodeck.providers.rehearsal.stemming import stems, synonyms_of
from holodeck.providers.tool_schemas.adapt import adapt_tool

# Characters of tool results that are reported: one screen.
MAX_REPORTED_CHARS = 1_500
# Tools listed in an answer without a matching tool.
MAX_NAMED_TOOLS = 12

LABEL = "[rehearsal]"
_WORDS_PER_DELTA = 3
_ASKS = re.compile(r"I would call `(?P<tool>[^`]+)`")
# Calls and steps of one request: users name a few things, not a hundred.
MAX_REHEARSED_CALLS = 8
_LOOKED_AT = 10
"""Tools whose arguments are filled; the right one is nearly always among the first three."""
# Weights: for an entity in a field; against a missing argument, an unused entity, and a list of one element.
_TAKEN, _MISSING, _SPARE, _LONELY = 1.2, 1.6, 2.0, 0.8
_RARE_THING = 2.2
"""Weight of an entity of a rare kind, such as a URL."""
_WORDS_ENOUGH = 2
"""Common words with which a tool matches without its name."""
_TELLING = frozenset(
    {
        EntityKind.URL,
        EntityKind.EMAIL,
        EntityKind.PATH,
        EntityKind.GLOB,
        EntityKind.ZONE,
        EntityKind.CLOCK,
        EntityKind.NUMBER,
        EntityKind.QUOTED,
        EntityKind.REVISION,
    }
)
_COMMON = frozenset({EntityKind.PATH, EntityKind.QUOTED, EntityKind.REVISION})
_NEXT = re.compile(
    r"(?:[,;]\s{0,3}|\.\s{1,3}|\s)(?:and\s{1,3})?(?:then|after that|afterwards|next|finally)\b,?\s{0,3}"
    r"|;\s{1,3}|(?<=[.?!])\s{1,3}(?=[A-Z])",
    re.IGNORECASE,
)
_WRITTEN_CALL = re.compile(
    r"\s*call\s+[`'\"]?(?P<tool>[\w.-]+)[`'\"]?\s+with\s+(?P<arguments>\{.*\})[\s.]*", re.IGNORECASE | re.DOTALL
)
_JOINED = re.compile(r",?\s{1,3}and\s{1,3}(?:also\s{1,3})?", re.IGNORECASE)
_POINTS_BACK = re.compile(
    r"\b(?:it|its|that|there|them|this|the same|the (?:file|folder|directory|repo|page))\b", re.IGNORECASE
)


def ask_for_missing(tool: ToolSpec, missing: Sequence[str]) -> str:
    """Return a question for the missing arguments of a tool."""
    names = ", ".join(f"`{name}`" for name in missing)
    return f"I would call `{tool.name}`, but your request does not say {names}. What should it be?"


def find_asked_tool(text: str) -> str | None:
    """Return the name of the tool in an earlier answer of `ask_for_missing`, or None."""
    match = _ASKS.search(text) if text.startswith(LABEL) else None
    return match["tool"] if match else None


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Return the answer for a request that no tool fits: a list of the tools."""
    if not tools:
        return (
            "I only rehearse tool calls by fixed rules, and no tools are on offer here. Configure a model for answers."
        )
    shown = [f"- `{tool.name}`: {one_line(tool.description, MAX_SHOWN_CHARS)}" for tool in tools[:MAX_NAMED_TOOLS]]
    more = len(tools) - len(shown)
    rest = [f"... and {more} more."] if more > 0 else []
    return "\n".join(["I follow fixed rules, and none of the tools fits your request. I can call:", *shown, *rest])


def describe_withheld_call(tool: ToolSpec) -> str:
    """Return the answer for a turn that may not call tools."""
    return f"I would call `{tool.name}`, but this request does not allow tool calls."


def report_results(results: Sequence[tuple[FunctionCall, FunctionCallOutput]]) -> str:
    """Return the texts of tool results, shortened to `MAX_REPORTED_CHARS` in total."""
    share = MAX_REPORTED_CHARS // max(len(results), 1)
    return "\n".join(_report_result(call, output, share) for call, output in results)


def _report_result(call: FunctionCall, output: FunctionCallOutput, limit: int) -> str:
    text = clip("\n".join(map(_describe_part, output.content)).strip(), limit)
    if output.is_error:
        return f"`{call.name}` failed: {text or 'it gave no reason.'} I did not try again."
    if not text:
        return f"`{call.name}` answered with nothing."
    return f"`{call.name}` answered:{chr(10) if chr(10) in text else ' '}{text}"


def clip(text: str, limit: int) -> str:
    """Cut a text at a word, and append the number of omitted characters."""
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
    """Return the answer as JSON, if the schema has one text field or can be filled from the tool results."""
    spec = adapt_tool(ToolSpec(name="answer", parameters=schema), "generic").spec
    wanted = [field for field in list_fields(spec.parameters) if field.is_required]
    if len(wanted) == 1 and wanted[0].role is Role.TEXT and len(wanted[0].path) == 1 and not wanted[0].is_many:
        return json.dumps({wanted[0].path[0]: f"{LABEL} {answer}"}, ensure_ascii=False)
    text = "\n".join(part.text for _, output in results for part in output.content if isinstance(part, TextContent))
    filled = fill_arguments(spec, text, find_entities(text))
    if filled.missing or not filled.arguments:
        return f"{LABEL} {answer}\n(This does not fit the format that was asked for: fixed rules cannot write it.)"
    return json.dumps(filled.arguments, ensure_ascii=False)


@record
class OpenRequest:
    """The part of a conversation that the next turn answers."""

    text: str
    """The last user message."""
    previous_text: str
    """The user message before it."""
    question: str
    """The assistant's text between the two."""
    calls: tuple[FunctionCall, ...]
    results: tuple[tuple[FunctionCall, FunctionCallOutput], ...]


def read_open_request(items: Sequence[Item]) -> OpenRequest:
    """Return the last user message with the calls after it and their results, paired by id."""
    messages = [at for at, item in enumerate(items) if isinstance(item, Message) and item.role == "user"]
    last = messages[-1] if messages else -1
    previous = messages[-2] if len(messages) > 1 else -1
    since = items[last + 1 :]
    calls = tuple(item for item in since if isinstance(item, FunctionCall))
    outputs = {item.call_id: item for item in since if isinstance(item, FunctionCallOutput)}
    return OpenRequest(
        text=_text_at(items, last),
        previous_text=_text_at(items, previous),
        question="".join(item.text for item in items[previous + 1 : last] if isinstance(item, Message))
        if messages
        else "",
        calls=calls,
        results=tuple((call, outputs[call.call_id]) for call in calls if call.call_id in outputs),
    )


def count_words(items: Sequence[Item], instructions: str | None) -> int:
    """Return the number of words in a request, which stands for its input tokens."""
    texts = [instructions or ""]
    for item in items:
        match item:
            case Message(content=parts) | FunctionCallOutput(content=parts):
                texts += [part.text for part in parts if isinstance(part, TextContent)]
            case FunctionCall(arguments=arguments):
                texts.append(arguments)
            case Reasoning(text=text):
                texts.append(text)
    return sum(len(text.split()) for text in texts)


def _text_at(items: Sequence[Item], at: int) -> str:
    item = items[at] if at >= 0 else None
    return item.text if isinstance(item, Message) else ""


class Rehearsal:
    """Chooses a tool by the words of the request, calls it with values from the request, and reports the result."""

    name = "rehearsal"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer in small deltas, like a language model."""
        require_supported(request, REHEARSAL_FIELDS, self.name)
        turn = read_open_request(request.items)
        # In a thread: a long request takes too long for the event loop.
        answer = await asyncio.to_thread(_decide, turn, request)
        usage = Usage(input_tokens=count_words(request.items, request.instructions))
        if isinstance(answer, str):
            schema = request.response_format
            text = format_answer(answer, schema, turn.results) if schema is not None else f"{LABEL} {answer}"
            events = _build_text_events(_cut_before(text, request.stop), request.max_tokens, usage)
        else:
            events = _build_call_events(answer if request.parallel_tool_calls else answer[:1], usage)
        for event in events:
            yield event
            # The reader of the stream, or its cancellation, runs between two deltas.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def _decide(turn: OpenRequest, request: ModelRequest) -> str | list[FunctionCall]:
    """Return the text of an answer, or calls."""
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
    """Plan the request. If it answers our question for an argument, plan it together with the request before."""
    steps = plan_steps(turn.text, tools, is_forced=is_forced)
    pending = [tool for tool in tools if tool.name == find_asked_tool(turn.question)]
    if not pending or (steps and not steps[0].missing):
        return steps
    combined = plan_steps(f"{turn.previous_text}\n{turn.text}", pending, is_forced=True)
    missing = combined[0].missing if combined else ()
    if len(missing) == 1 and "." not in missing[0]:
        combined = plan_steps(f"{turn.previous_text}\n{missing[0]}: {turn.text}", pending, is_forced=True)
    return combined


def _select_tools(request: ModelRequest) -> list[ToolSpec]:
    choice = request.tool_choice
    names = {choice.name} if choice.name is not None else set(choice.allowed) if choice.allowed is not None else None
    return [tool for tool in request.tools if names is None or tool.name in names]


def _function_call(step: Step, index: int) -> FunctionCall:
    arguments = json.dumps(step.calls[index], ensure_ascii=False)
    return FunctionCall(call_id=new_id("call"), name=step.tool.name, arguments=arguments)


def _cut_before(text: str, stop: Sequence[str]) -> str:
    """Return the text before the first of the stop sequences in it."""
    return text[: min((text.index(word) for word in stop if word in text), default=len(text))]


def _build_text_events(answer: str, limit: int | None, usage: Usage) -> list[ModelEvent]:
    words = answer.split(" ")
    finish: FinishReason = "stop"
    if limit is not None and len(words) > limit:
        words, finish = words[:limit], "length"
    text = " ".join(words)
    groups = [words[at : at + _WORDS_PER_DELTA] for at in range(0, len(words), _WORDS_PER_DELTA)]
    deltas: list[ModelEvent] = [
        TextDelta(text=("" if at == 0 else " ") + " ".join(group)) for at, group in enumerate(groups)
    ]
    return [*deltas, _build_answered((text_message("assistant", text),), finish, usage, len(words))]


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


@record
class Step:
    """One step of a request: a tool, the arguments of its calls, and the arguments that are missing."""

    tool: ToolSpec
    calls: tuple[Mapping[str, Any], ...]
    missing: tuple[str, ...]
    score: float


def plan_steps(request: str, tools: Sequence[ToolSpec], *, is_forced: bool = False) -> list[Step]:
    """Return the steps of a request; empty if no tool fits. `is_forced`: return the nearest tool in any case."""
    if not tools:
        return []
    text = request[:MAX_REHEARSED_CHARS]
    written = _find_written_call(text, tools)
    if written is not None:
        return [written]
    parts = [part for part in _NEXT.split(text) if part and part.strip()]
    steps = _find_steps(parts, tools) if 1 < len(parts) <= MAX_REHEARSED_CALLS else []
    whole = find_step(text, tools, is_forced=is_forced)
    if len(steps) == len(parts) and len(parts) > 1:
        return steps
    if len(parts) == 1 and whole:
        return _split_joined(text, tools, whole)
    return [whole] if whole else steps[:1]


def _find_written_call(text: str, tools: Sequence[ToolSpec]) -> Step | None:
    """Return the call of `Call add with {"a": 2, "b": 3}`, which is written out: nothing of it is guessed."""
    match = _WRITTEN_CALL.fullmatch(text)
    tool = next((each for each in tools if match and each.name == match["tool"]), None)
    if match is None or tool is None:
        return None
    try:
        arguments = parse_json(match["arguments"])
    except ValueError:
        return None
    missing = tuple(
        each.name for each in list_fields(tool.parameters) if each.is_required and each.path[0] not in arguments
    )
    return Step(tool=tool, calls=() if missing else (arguments,), missing=missing, score=0.0)


def find_step(text: str, tools: Sequence[ToolSpec], *, is_forced: bool = False) -> Step | None:
    """Return the tool that fits a text best, with its arguments; None if none fits."""
    found = find_entities(text)
    candidates = rank_tools(text, tools)[:_LOOKED_AT]
    best: tuple[float, RankedTool, FilledArguments] | None = None
    for ranked in candidates:
        filled = fill_arguments(adapt_tool(ranked.tool, "generic").spec, text, found)
        score = ranked.score + _score_filled(filled)
        if not is_forced and not _is_fit(ranked, filled):
            continue
        if best is None or score > best[0]:
            best = (score, ranked, filled)
    if best is None:
        return None
    score, ranked, filled = best
    calls = (filled.arguments, *filled.alternatives)[:MAX_REHEARSED_CALLS]
    return Step(tool=ranked.tool, calls=() if filled.missing else calls, missing=filled.missing, score=score)


def _score_filled(filled: FilledArguments) -> float:
    repeated = len(filled.alternatives) * max(map(_weight_of, filled.used), default=0.0)
    spare = sum(map(_weight_of, filled.unused)) - repeated
    taken = sum(map(_weight_of, filled.used)) + repeated + filled.aptness
    lonely = sum(isinstance(value, list) and len(value) == 1 for value in filled.arguments.values())
    return _TAKEN * taken - _LONELY * lonely - _MISSING * len(filled.missing) - _SPARE * spare


def _weight_of(entity: Entity) -> float:
    """Return how much an entity says about the tool: few tools take an address, a zone or a number, many a path."""
    return 0.0 if entity.kind not in _TELLING else 1.0 if entity.kind in _COMMON else _RARE_THING


def _resolve_pronouns(part: str, earlier: str) -> str:
    """Replace "it" or "there" by the last entity of the earlier parts of the request."""
    if not earlier or any(thing.kind in _TELLING for thing in find_entities(part)):
        return part
    entities = [entity for entity in find_entities(earlier) if entity.kind in _TELLING]
    unquoted = [entity for entity in entities if entity.kind is not EntityKind.QUOTED] or entities
    if not unquoted:
        return part
    last = unquoted[-1]
    replacement = f'"{last.text}"' if last.kind is EntityKind.QUOTED else last.text
    return _POINTS_BACK.sub(lambda _: replacement, part, count=1)


def _is_fit(ranked: RankedTool, filled: FilledArguments) -> bool:
    """Return whether the tool is really meant, and not only the nearest one."""
    if ranked.score <= 0 or ranked.is_unasked:
        return False
    if ranked.is_direct or len(ranked.matched) >= _WORDS_ENOUGH:
        return True
    if ranked.has_name:
        return bool(filled.used) or not filled.missing
    return any(thing.kind in {EntityKind.URL, EntityKind.EMAIL} for thing in filled.used)


def _find_steps(parts: Sequence[str], tools: Sequence[ToolSpec]) -> list[Step]:
    steps: list[Step] = []
    for index, part in enumerate(parts):
        step = find_step(_resolve_pronouns(part, " ".join(parts[:index])), tools)
        if step is None:
            return steps
        steps.append(step)
    return steps


def _split_joined(text: str, tools: Sequence[ToolSpec], whole: Step) -> list[Step]:
    """Split `add 1 and 2 and list /data` into two steps, if each half is complete and they use different tools."""
    for match in islice(_JOINED.finditer(text), MAX_REHEARSED_CALLS):
        halves = [text[: match.start()], text[match.end() :]]
        steps = _find_steps(halves, tools)
        is_split = len(steps) == len(halves) and steps[0].tool != steps[1].tool
        if (
            is_split
            and not any(step.missing for step in steps)
            and all(_has_leading_verb(half, step) for half, step in zip(halves, steps, strict=True))
        ):
            return steps
    return [whole]


def _has_leading_verb(half: str, step: Step) -> bool:
    """Return whether a half starts with a word of its tool's name, like a separate request."""
    words = stems(half)
    return bool(words) and bool({words[0], *synonyms_of(words[0])} & set(stems(step.tool.name)))
