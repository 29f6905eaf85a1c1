"""Enforces `response_format`: an answer matches the JSON Schema of its request, or the turn fails with the reason.

`FormatEnforcer` wraps a model. A turn without `response_format` and `json_mode` passes through unchanged, and so does
every answer that is no final text: one with tool calls, one that was cut short, a refusal. Any other answer is checked
against the schema. If it does not match, the model gets the reasons and is asked again, at most `MAX_CORRECTIONS`
times, within the same turn: the conversation, the stream and the checkpoint of a durable run have only the last answer,
with the usage of all. Where the provider guarantees the format, its answer is streamed as it arrives; elsewhere it is
buffered until it is complete, because streamed text cannot be taken back. Raises `ModelError` if no answer matches.

`ObjectFormat` is for providers that accept only objects: a format such as a list, a number or a union is sent as the
member `value` of an object, and that object is taken away again from the answer, so that nothing around the wrapper
sees it. An answer without the object passes unchanged: many models answer with the bare value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from holodeck.lib import log
from holodeck.lib.errors import ANSWER_MISFIT, BAD_QUESTION, ModelError
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.lib.limits import MAX_CHECKED_BYTES
from holodeck.models.items import FunctionCall, Item, Message, TextContent, Usage, text_message
from holodeck.models.llm import LLM
from holodeck.models.model_io import CUT_SHORT, JSON_OBJECT_SCHEMA, ModelAnswer, ModelEvent, ModelRequest, TextDelta
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches
from holodeck.providers.encoding import is_strict
from holodeck.providers.registry import PROVIDERS

# Corrections of one answer: a model that did not understand two explanations does not understand a third.
MAX_CORRECTIONS = 2
_CORRECTION = (
    "Your answer does not fit the JSON Schema that it must fit: {reason}. "
    "Answer again with JSON that fits it, and nothing else."
)

Guarantee = Callable[[Mapping[str, Any]], bool]
"""Returns whether a provider itself guarantees that an answer matches this schema."""

FindProblem = Callable[[str], str | None]
"""Returns why a text is not accepted as an answer, for the model; None if it is."""


class FormatEnforcer(ModelWrapper):
    """Wraps a model, and owns the `SchemaChecker` of its answers."""

    def __init__(
        self,
        model: ModelProvider,
        *,
        is_guaranteed: Guarantee = lambda _: False,
        is_json_guaranteed: bool = False,
        find_problem: FindProblem | None = None,
    ) -> None:
        """`is_json_guaranteed`: the provider itself guarantees an object in `json_mode`.

        `find_problem`: a further check of answers that match the schema.
        """
        super().__init__(model)
        self._find_problem = find_problem
        self._is_guaranteed = is_guaranteed
        self._is_json_guaranteed = is_json_guaranteed
        self._checker = SchemaChecker()

    def stream_batches(self, request: ModelRequest) -> Batches:
        schema = request.response_format
        if schema is None:
            if not request.json_mode:
                return self._stream_inner(request)
            schema, is_streamed = JSON_OBJECT_SCHEMA, self._is_json_guaranteed
        else:
            is_streamed = self._find_problem is None and self._is_guaranteed(schema)
        return self._stream_checked(request, schema) if is_streamed else self._ask_until_valid(request, schema)

    async def close(self) -> None:
        await self._checker.close()
        await super().close()

    async def _stream_checked(self, request: ModelRequest, schema: Mapping[str, Any]) -> Batches:
        await self._require_usable(schema)
        is_refusal = False
        async with aclosing(self._stream_inner(request)) as batches:
            async for batch in batches:
                is_refusal = is_refusal or _has_refusal(batch)
                last = batch[-1]
                if isinstance(last, ModelAnswer) and not is_refusal:
                    reason = await self._find_misfit(schema, last)
                    if reason is not None:
                        raise self._error(reason, 1)
                yield batch

    async def _ask_until_valid(self, request: ModelRequest, schema: Mapping[str, Any]) -> Batches:
        await self._require_usable(schema)
        usage, corrected = Usage(), request
        for attempt in range(1, MAX_CORRECTIONS + 2):
            buffered: list[list[ModelEvent]] = []
            size = 0
            async with aclosing(self._stream_inner(corrected)) as batches:
                async for batch in batches:
                    buffered.append(batch)
                    size += sum(len(event.text) for event in batch if isinstance(event, TextDelta))
                    # A larger answer is neither checked nor buffered: it is streamed to the caller, which has a limit.
                    if size > MAX_CHECKED_BYTES:
                        log.warning("model.answer_unchecked", model=self.name, reason=f"more than {size} characters")
                        for earlier in buffered:
                            yield earlier
                        async for rest in batches:
                            yield rest
                        return
            answer = buffered[-1][-1] if buffered else None
            if not isinstance(answer, ModelAnswer):
                # The caller reports a stream without an answer.
                break
            usage += answer.usage
            is_refusal = any(_has_refusal(batch) for batch in buffered)
            reason = None if is_refusal else await self._find_misfit(schema, answer)
            if reason is None:
                buffered[-1][-1] = replace(answer, usage=usage)
                break
            # Without the reason: it quotes the answer, and the log has no content of conversations.
            notice = f"The answer of {self.name} does not fit the format (attempt {attempt})."
            log.warning("model.answer_does_not_fit", model=self.name, attempt=attempt, notice=notice)
            correction = text_message("user", _CORRECTION.format(reason=reason))
            corrected = replace(request, items=(*request.items, *answer.items, correction))
        else:
            raise self._error(reason or "", MAX_CORRECTIONS + 1)
        for batch in buffered:
            yield batch

    async def _require_usable(self, schema: Mapping[str, Any]) -> None:
        """Raise `ModelError` for a schema that cannot be used, before the request is sent."""
        try:
            await self._checker.find_violations(schema, None)
        except SchemaError as error:
            message = f"'response_format' cannot be used: {error}."
            raise ModelError(message, code=BAD_QUESTION, public_text=message) from None
        except UncheckedError:
            # The check of the answer reports it.
            return

    async def _find_misfit(self, schema: Mapping[str, Any], answer: ModelAnswer) -> str | None:
        """Return why a final text does not match; None if it matches, or if the answer is no final text."""
        if answer.finish in CUT_SHORT or any(isinstance(item, FunctionCall) for item in answer.items):
            return None
        texts = [item.text for item in answer.items if isinstance(item, Message)]
        try:
            value = parse_json(texts[-1] if texts else "")
        except ValueError as error:
            return f"it is not valid JSON ({error})"
        try:
            violations = await self._checker.find_violations(schema, value)
        except UncheckedError as error:
            log.warning("model.answer_unchecked", model=self.name, reason=error)
            return None
        if violations:
            return "; ".join(f"{each.path or 'the whole'}: {each.message}" for each in violations)
        return None if self._find_problem is None else self._find_problem(texts[-1])

    def _error(self, reason: str, answers: int) -> ModelError:
        times = "" if answers == 1 else f" in {answers} tries"
        message = f"The model gave no answer that fits 'response_format'{times}: {reason}."
        return ModelError(message, code=ANSWER_MISFIT, public_text=message)


def format_guarantee_of(llm: LLM) -> Guarantee:
    """Return for which schemas the provider of a model guarantees the format, by its row in the registry."""
    guarantee = PROVIDERS[llm.provider].guarantees_format
    if guarantee == "always":
        return lambda _: True
    return is_strict if guarantee == "strict" and llm.is_at_provider else lambda _: False


def is_json_guaranteed_by(llm: LLM) -> bool:
    """Return whether the provider of a model has `json_mode` and keeps it."""
    is_kept = PROVIDERS[llm.provider].guarantees_format != "never" and llm.is_at_provider
    return is_kept and "json_mode" in llm.api.request


def _has_refusal(batch: list[ModelEvent]) -> bool:
    return any(isinstance(event, TextDelta) and event.is_refusal for event in batch)


_MEMBER = "value"


class ObjectFormat(ModelWrapper):
    """Sends each response format as one of an object. Answers of other formats are buffered until they are complete."""

    def stream_batches(self, request: ModelRequest) -> Batches:
        schema = request.response_format
        if schema is None or (wrapped := to_object_format(schema)) is schema:
            return stream_in_batches(self._inner, request)
        return self._stream_member(replace(request, response_format=wrapped))

    async def _stream_member(self, request: ModelRequest) -> Batches:
        events: list[ModelEvent] = []
        size = 0
        async with aclosing(stream_in_batches(self._inner, request)) as batches:
            async for batch in batches:
                events += batch
                size += sum(len(event.text) for event in batch if isinstance(event, TextDelta))
                # A larger answer is not buffered: it is streamed as it is to the caller, which has a limit.
                if size > MAX_CHECKED_BYTES:
                    yield events
                    async for rest in batches:
                        yield rest
                    return
        if events:
            yield _unwrap_answer(events)


def _unwrap_answer(events: list[ModelEvent]) -> list[ModelEvent]:
    """Return the events of an answer without the object; the same ones if it has none."""
    answer = events[-1]
    if not isinstance(answer, ModelAnswer):
        return events
    items = tuple(map(_unwrap, answer.items))
    if items == answer.items:
        return events
    others = [event for event in events[:-1] if not isinstance(event, TextDelta)]
    text = "".join(item.text for item in items if isinstance(item, Message))
    texts = [TextDelta(text=text)] if len(others) < len(events) - 1 else []
    return [*others, *texts, replace(answer, items=items)]


def to_object_format(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an object with a member of this schema; the same schema if it is one of an object."""
    if schema.get("type") == "object":
        return schema
    # References are relative to the whole schema.
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return {
        "type": "object",
        "properties": {_MEMBER: {key: value for key, value in schema.items() if key not in definitions}},
        "required": [_MEMBER],
        "additionalProperties": False,
        **definitions,
    }


def _unwrap(item: Item) -> Item:
    """Return a message whose text is the object with the one member as the message of that member."""
    if not isinstance(item, Message):
        return item
    try:
        value = parse_json(item.text)
    except ValueError:
        return item
    if not isinstance(value, dict) or value.keys() != {_MEMBER}:
        return item
    return replace(item, content=(TextContent(text=orjson.dumps(value[_MEMBER]).decode()),))
