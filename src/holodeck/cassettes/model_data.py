"""Model requests and answers as plain data that people can read, and back.

A request has only what differs from the defaults. Items have a short form where one text says all: `{user: Hello}`,
`{call: add, call_id: c1, arguments: '{}'}`, `{output_of: c1, text: '3'}`. Ids of items are left out: they are no part
of what is asked. The deltas of an answer are joined to one text with the lengths of its `pieces`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from holodeck.lib.errors import ModelError
from holodeck.models.items import Compaction, Item, Reasoning, Usage, decode_item, encode_item
from holodeck.models.model_io import (
    REPORTED_FACTS,
    AnswerVoided,
    CallDelta,
    ContextCompacted,
    Logprob,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    StandInChosen,
    TextDelta,
    ToolChoice,
    ToolSpec,
)

Data = dict[str, Any]

_ROLES = ("user", "assistant", "system", "developer")
_NO_REQUEST = ModelRequest(items=())
_PLAIN_FIELDS = tuple(
    field.name
    for field in fields(ModelRequest)
    # How an answer is sent, and to whom, is no part of the question.
    if field.compare
    and field.name not in {"items", "tools", "tool_choice", "instructions", "is_streamed", "answer_bytes"}
)


def encode_request(request: ModelRequest) -> Data:
    """Return a request as plain data: instructions, tools, items, and every other field that is set."""
    data: Data = {}
    if request.instructions is not None:
        data["instructions"] = request.instructions
    for name in _PLAIN_FIELDS:
        value = getattr(request, name)
        if value != getattr(_NO_REQUEST, name):
            data[name] = to_plain(value)
    choice = {
        field.name: to_plain(getattr(request.tool_choice, field.name))
        for field in fields(ToolChoice)
        if getattr(request.tool_choice, field.name) != getattr(_NO_REQUEST.tool_choice, field.name)
    }
    if choice:
        data["tool_choice"] = choice
    if request.tools:
        data["tools"] = [_encode_spec(spec) for spec in request.tools]
    data["items"] = [encode_short_item(item) for item in request.items]
    return data


def encode_short_item(item: Item) -> Data:
    """Return an item in its short form, without its id."""
    return _shorten(_drop_ids(encode_item(item)))


def decode_short_item(data: Mapping[str, Any]) -> Item:
    """Return the item of a short form. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
    return decode_item(_lengthen(data))


def encode_events(events: Sequence[ModelEvent]) -> list[Data]:
    """Return the events of an answer as plain data: adjacent deltas joined, then how the answer ends."""
    encoded: list[Data] = []
    joined: object = None
    for event in events:
        kind, entry, key = _encode_delta(event, encoded)
        if kind is not None and kind == joined:
            before = encoded[-1]
            before["pieces"] = [*before.get("pieces", [len(before[key])]), len(entry[key])]
            before[key] += entry[key]
        else:
            encoded.append(entry)
        # The first delta of a call has its name and id, the next ones only arguments.
        joined = ("call", event.index, "") if isinstance(event, CallDelta) else kind
    return encoded


def decode_events(data: Sequence[Mapping[str, Any]]) -> list[ModelEvent]:
    """Return the events of an answer. Raises `KeyError`, `TypeError` or `ValueError` for data of another form."""
    events: list[ModelEvent] = []
    for entry in data:
        if "text" in entry:
            logprobs = tuple(_decode_logprob(each) for each in entry.get("logprobs", ()))
            is_refusal = bool(entry.get("is_refusal", False))
            events += [TextDelta(text=piece, is_refusal=is_refusal, logprobs=logprobs) for piece in _cut(entry, "text")]
        elif "reasoning" in entry:
            events += [ReasoningDelta(text=piece) for piece in _cut(entry, "reasoning")]
        elif "call" in entry:
            first, *others = _cut(entry, "arguments")
            index = int(entry["index"])
            events.append(CallDelta(index=index, call_id=entry["call_id"], name=entry["call"], arguments=first))
            events += [CallDelta(index=index, arguments=piece) for piece in others]
        elif "compacted" in entry:
            item = decode_item(entry["compacted"])
            if not isinstance(item, Compaction):
                raise ValueError("no compaction")
            events.append(ContextCompacted(item=item, usage=Usage(**entry.get("usage", {}))))
        elif "stand_in" in entry:
            events.append(StandInChosen(name=str(entry["stand_in"])))
        else:
            events.append(_decode_end(entry, data))
    return events


def drop_wrong_pieces(answer: Sequence[Data]) -> None:
    """Remove the lengths of the pieces of texts that were changed since: such a text is one piece."""
    for entry in answer:
        key = next((key for key in ("text", "reasoning", "arguments") if key in entry), None)
        if key is not None and sum(entry.get("pieces", ())) != len(entry[key]):
            entry.pop("pieces", None)


def encode_model_error(error: ModelError) -> Data:
    """Return the failure of a model as plain data."""
    known = {
        "message": str(error),
        "provider": error.provider,
        "status": error.status,
        "retry_after": error.retry_after,
        "is_retryable": error.is_retryable,
        "code": error.code,
    }
    return {name: value for name, value in known.items() if value not in ("", None, False)}


def decode_model_error(data: Mapping[str, Any]) -> ModelError:
    return ModelError(str(data.get("message", "")), **{key: data[key] for key in data if key != "message"})


def list_answer_items(answer: Sequence[Mapping[str, Any]]) -> list[Data]:
    """Return the items that an answer adds to the conversation, in their short form."""
    end = answer[-1] if answer else {}
    if "finish" not in end:
        return []
    return list(end["items"]) if "items" in end else derive_items(answer)


def derive_items(answer: Sequence[Mapping[str, Any]]) -> list[Data]:
    """Return the items that the deltas of an answer make up: reasoning, one message, its calls."""
    reasoning = "".join(str(entry["reasoning"]) for entry in answer if "reasoning" in entry)
    text = "".join(str(entry["text"]) for entry in answer if "text" in entry)
    calls: dict[int, Data] = {}
    for entry in answer:
        if "call" in entry:
            call = calls.setdefault(
                entry["index"], {"call": entry["call"], "call_id": entry["call_id"], "arguments": ""}
            )
            call["arguments"] += entry["arguments"]
    found: list[Data] = [encode_short_item(Reasoning(text=reasoning))] if reasoning else []
    found += [{"assistant": text}] if text else []
    return [*found, *calls.values()]


def to_plain(value: Any) -> Any:
    """Return mappings and sequences as dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def _encode_spec(spec: ToolSpec) -> Data:
    data: Data = {"name": spec.name, "description": spec.description, "parameters": to_plain(spec.parameters)}
    return {**data, "strict": True} if spec.strict else data


def _drop_ids(entry: Data) -> Data:
    entry.pop("id", None)
    if "items" in entry:
        entry["items"] = [_drop_ids(each) for each in entry["items"]]
    data: Data = to_plain(entry)
    return data


def _shorten(entry: Data) -> Data:
    match entry:
        case {"type": "message", "role": role, "content": [{"type": "text", "text": text, **more}], **rest} if (
            not more and not rest
        ):
            return {role: text}
        case {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **rest} if not rest:
            return {"call": name, "call_id": call_id, "arguments": arguments}
        case {
            "type": "function_call_output",
            "call_id": call_id,
            "content": [{"type": "text", "text": text, **more}],
        } if not more:
            is_error = {"is_error": True} if entry.get("is_error") else {}
            return {"output_of": call_id, "text": text, **is_error}
    return entry


def _lengthen(data: Mapping[str, Any]) -> Data:
    entry = dict(data)
    if "type" in entry:
        return entry
    if "call" in entry:
        return {"type": "function_call", **{("name" if key == "call" else key): entry[key] for key in entry}}
    if "output_of" in entry:
        content = [{"type": "text", "text": entry["text"]}]
        is_error = bool(entry.get("is_error", False))
        return {
            "type": "function_call_output",
            "call_id": entry["output_of"],
            "content": content,
            "is_error": is_error,
        }
    ((role, text),) = entry.items()
    if role not in _ROLES:
        raise ValueError(f"'{role}' is no item")
    return {"type": "message", "role": role, "content": [{"type": "text", "text": text}]}


def _encode_delta(event: ModelEvent, before: Sequence[Data]) -> tuple[object, Data, str]:
    """Return the kind of an event, its data, and the key of its text. Deltas of one kind are joined; None: never."""
    match event:
        case TextDelta():
            data: Data = {"text": event.text, **({"is_refusal": True} if event.is_refusal else {})}
            if event.logprobs:
                return None, {**data, "logprobs": [_encode_logprob(each) for each in event.logprobs]}, "text"
            return ("text", event.is_refusal), data, "text"
        case ReasoningDelta():
            return "reasoning", {"reasoning": event.text}, "reasoning"
        case CallDelta():
            data = {"call": event.name, "call_id": event.call_id, "index": event.index, "arguments": event.arguments}
            return ("call", event.index, event.name or event.call_id), data, "arguments"
        case ContextCompacted():
            return None, {"compacted": encode_item(event.item), "usage": _encode_usage(event.usage)}, ""
        case StandInChosen():
            return None, {"stand_in": event.name}, ""
        case AnswerVoided():
            raise ValueError("only a gateway asks a model again that broke off, and it records nothing")
        case ModelAnswer():
            return None, _encode_end(event, derive_items(before)), ""


def _cut(entry: Mapping[str, Any], key: str) -> Iterator[str]:
    """Yield the pieces of a text. A text whose length was changed by a mask is one piece."""
    text, pieces = str(entry[key]), entry.get("pieces")
    if not isinstance(pieces, list) or sum(pieces) != len(text):
        yield text
        return
    at = 0
    for length in pieces:
        yield text[at : at + length]
        at += length


def _encode_end(answer: ModelAnswer, derived: list[Data]) -> Data:
    items = [encode_short_item(item) for item in answer.items]
    data: Data = {"finish": answer.finish}
    if items != derived:
        data["items"] = items
    if usage := _encode_usage(answer.usage):
        data["usage"] = usage
    reported = {name: getattr(answer, name) for name in REPORTED_FACTS}
    return data | {name: fact for name, fact in reported.items() if fact not in (None, "")}


def _decode_end(entry: Mapping[str, Any], answer: Sequence[Mapping[str, Any]]) -> ModelAnswer:
    items: Iterable[Mapping[str, Any]] = entry["items"] if "items" in entry else derive_items(answer)
    return ModelAnswer(
        items=tuple(decode_short_item(item) for item in items),
        finish=entry["finish"],
        usage=Usage(**entry.get("usage", {})),
        **{name: entry[name] for name in REPORTED_FACTS if name in entry},
    )


def _encode_usage(usage: Usage) -> Data:
    counts = {field.name: getattr(usage, field.name) for field in fields(Usage)}
    return {name: count for name, count in counts.items() if count}


def _encode_logprob(entry: Logprob) -> list[Any]:
    """Return a list, because a member named `token` would be taken for a secret."""
    size = None if entry.bytes is None else list(entry.bytes)
    return [entry.token, entry.logprob, size, [_encode_logprob(each) for each in entry.top]]


def _decode_logprob(data: Sequence[Any]) -> Logprob:
    token, logprob, raw, top = data
    return Logprob(
        token=token,
        logprob=logprob,
        bytes=None if raw is None else tuple(raw),
        top=tuple(_decode_logprob(each) for each in top),
    )
