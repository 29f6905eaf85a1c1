"""Response formats that are no object, for providers that accept only objects.

`ObjectFormat` wraps a model. A format such as a list, a number or a union is sent as the member `value` of an object,
and that object is taken away again from the answer, so that nothing around this wrapper sees it. An answer without the
object passes unchanged: many models answer with the bare value.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson

from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MAX_CHECKED_BYTES
from holodeck.models.content import TextContent
from holodeck.models.items import Item, Message
from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest, TextDelta
from holodeck.providers.base import Batches, ModelWrapper, stream_in_batches

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
