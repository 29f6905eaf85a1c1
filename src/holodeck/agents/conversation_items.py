"""The question and the history of a run, as a program may give them, read into items.

A text is a message of the user. A sequence has items, such as `history` of a result, or the dictionaries of role and
content of OpenAI's chat completions, with `tool_calls` of the assistant and the answers of the role `tool`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from holodeck.lib.errors import ConfigError
from holodeck.lib.escape import replace_surrogates
from holodeck.models.items import (
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Part,
    Role,
    TextContent,
    text_message,
)

GivenItem = Item | Mapping[str, Any]
"""An item of a conversation, or a dictionary such as `{"role": "user", "content": "Hello"}`."""

_HINT = "Did you mean history=result.history, of the run before?"
_GIVE_PARTS = "give parts, as in content=(TextContent(text='...'),), or a dictionary of role and content."
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_IMAGE_PARTS = frozenset({"image_url", "input_image"})


def read_question(question: str | Sequence[GivenItem]) -> tuple[Item, ...]:
    """Return the items of a question. Raises `ConfigError`."""
    if isinstance(question, str):
        return (text_message("user", replace_surrogates(question)),)
    return read_items("question", question)


def read_items(name: str, items: Sequence[GivenItem]) -> tuple[Item, ...]:
    """Return the items. Raises `ConfigError` for what is none, with its place: providers would leave it out."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Sequence):
        wanted, hint = ("a text, or a list of items", "") if name == "question" else ("a list of items", f" {_HINT}")
        raise ConfigError(f"'{name}' is {_describe(items)}: give {wanted}.{hint}")
    return tuple(
        item for index, given in enumerate(items) for item in _read_item(f"{name}[{index}]", cast("object", given))
    )


def _read_item(place: str, given: object) -> Iterator[Item]:
    if isinstance(given, Item):
        _check_item(place, given)
        yield given
        return
    if not isinstance(given, Mapping) or "role" not in given:
        kind = _describe(given) + (" without a 'role'" if isinstance(given, Mapping) else "")
        raise ConfigError(f"{place} is {kind}, which is no item of a conversation. {_HINT}")
    role, content = given["role"], given.get("content")
    known = {"role", "content", "name", "tool_calls", "tool_call_id", "type", "id"}
    # Members without a value are what the SDK's own `model_dump` writes.
    unknown = [str(key) for key, value in given.items() if key not in known and value]
    if unknown:
        raise ConfigError(f"{place} has '{unknown[0]}', which a message of role and content has not. {_HINT}")
    if role == "tool":
        call_id = _require_text(f"{place}.tool_call_id", given.get("tool_call_id"))
        yield FunctionCallOutput(call_id=call_id, content=_read_content(place, content))
        return
    if role not in get_args(Role):
        roles = ", ".join(f"'{each}'" for each in (*get_args(Role), "tool"))
        raise ConfigError(f"{place}.role is {role!r}. Roles: {roles}.")
    calls = given.get("tool_calls") or ()
    if content or not calls:
        yield Message(role=role, content=_read_content(place, content), name=given.get("name") or "")
    for number, call in enumerate(calls):
        yield _read_call(f"{place}.tool_calls[{number}]", call)


def _check_item(place: str, item: Item) -> None:
    """Refuse an item with a value of another type than its own: providers would fail on it, each in its way."""
    if isinstance(item, Message) and item.role not in get_args(Role):
        raise ConfigError(f"{place}.role is {item.role!r}. Roles: {', '.join(map(repr, get_args(Role)))}.")
    if isinstance(item, Message | FunctionCallOutput):
        content = cast("object", item.content)
        if not isinstance(content, tuple | list):
            raise ConfigError(f"{place}.content is {_describe(content)}: {_GIVE_PARTS}")
        for number, part in enumerate(content):
            if not isinstance(part, Part):
                raise ConfigError(f"{place}.content[{number}] is {_describe(part)}: {_GIVE_PARTS}")
    if isinstance(item, FunctionCall):
        _require_text(f"{place}.arguments", item.arguments)


def _read_content(place: str, content: object) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextContent(text=replace_surrogates(content)),)
    if not isinstance(content, list | tuple):
        raise ConfigError(f"{place}.content is {_describe(content)}: give a text, or a list of parts.")
    return tuple(_read_part(f"{place}.content[{index}]", part) for index, part in enumerate(content))


def _read_part(place: str, part: object) -> Part:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in _TEXT_PARTS:
        return TextContent(text=replace_surrogates(_require_text(f"{place}.text", part.get("text"))))
    if isinstance(part, Mapping) and kind in _IMAGE_PARTS:
        image = part.get("image_url")
        url, detail = (image.get("url"), image.get("detail")) if isinstance(image, Mapping) else (image, None)
        url = _require_text(f"{place}.image_url", url)
        return ImageLink(url=url, detail=detail or part.get("detail") or "auto")
    shown = f"of the type {kind!r}" if kind else _describe(part)
    raise ConfigError(
        f"{place} is {shown}: a dictionary has parts of the types 'text' and 'image_url'. Others are items: "
        "Message(role=..., content=(FileData(url=...),))."
    )


def _read_call(place: str, call: object) -> FunctionCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise ConfigError(f"{place} is no call of a function: it needs 'id' and 'function'.")
    return FunctionCall(
        call_id=_require_text(f"{place}.id", call.get("id")),
        name=_require_text(f"{place}.function.name", function.get("name")),
        arguments=_require_text(f"{place}.function.arguments", function.get("arguments")),
    )


def _require_text(place: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{place} is {_describe(value)}: give a text.")
    return value


def _describe(value: object) -> str:
    name = type(value).__name__
    return "missing" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
