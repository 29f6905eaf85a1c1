"""The `input` of a request: a string or an array of items, read into an `Input`.

Each entry becomes items for the engine and an item that the client can list again. An entry that only refers to a
stored item, or a call that comes back without its result, is replaced by the stored item first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from holodeck.gateway.api.models.input_items import ITEM_MODELS, AssistantMessage, ItemReference
from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.input_items import ITEM_READERS, add_stored_message
from holodeck.gateway.wire.request.json_fields import refuse, refuse_choice, refuse_missing, refuse_type
from holodeck.gateway.wire.request.parsed_input import (
    FindItem,
    Input,
    SealedInput,
    ToolNameOf,
    find_nothing,
    plain_tool_name,
)
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_INPUT_ITEMS, MAX_INPUT_TEXT_CHARS
from holodeck.models.items import FunctionCallOutput, Item, Message, text_message


def read_input(
    value: object,
    *,
    find_item: FindItem = find_nothing,
    tool_name_of: ToolNameOf = plain_tool_name,
    sealed: SealedInput | None = None,
    path: str = "input",
) -> Input:
    """Read a whole input. Raises `BadRequestError` with the path of the first field that is wrong.

    `find_item`, `tool_name_of`, `sealed`: see `Input`.
    """
    into = Input(find_item=find_item, tool_name_of=tool_name_of, sealed=sealed)
    if isinstance(value, str):
        if len(value) > MAX_INPUT_TEXT_CHARS:
            message = f"Invalid '{path}': string too long. Expected at most {MAX_INPUT_TEXT_CHARS} characters."
            refuse(message, path, "string_above_max_length")
        _read_text(value, into)
        return into
    if not isinstance(value, list):
        refuse_type(path, "a string or an array of input items", value)
    if len(value) > MAX_INPUT_ITEMS:
        message = f"Invalid '{path}': array too long. Expected at most {MAX_INPUT_ITEMS} elements."
        refuse(message, path, "array_above_max_length")
    for index, entry in enumerate(value):
        _read_item(entry, f"{path}[{index}]", into)
    if into.compaction_trigger not in (None, f"{path}[{len(value) - 1}]"):
        refuse("A 'compaction_trigger' must be the last item of the input.", into.compaction_trigger or path)
    _remove_answered_requests(into)
    return into


def read_stored_items(entries: Sequence[dict[str, Any]], *, sealed: SealedInput | None = None) -> Input:
    """Read the items of a conversation, which were checked before they were stored.

    A message of texts, as nearly all are, is taken as it is; the others become items by their readers.
    """
    into = Input(sealed=sealed)
    for index, entry in enumerate(entries):
        if not add_stored_message(entry, into):
            _read_item(entry, f"input[{index}]", into)
    _remove_answered_requests(into)
    return into


def check_unique_ids(
    items: Iterable[Mapping[str, Any]], existing_ids: Collection[str] = (), path: str = "input"
) -> None:
    """Refuse an item whose id is in `existing_ids`, or occurs twice: an id names one item of a conversation."""
    known = set(existing_ids)
    for index, item in enumerate(items):
        if item["id"] in known:
            message = f"Duplicate item found with id '{item['id']}'. Leave it out, or leave its id out."
            refuse(message, f"{path}[{index}].id", "duplicate_item")
        known.add(item["id"])


def list_references(value: object) -> list[str]:
    """List the ids of the items that an input only refers to, so that they can be fetched before it is read."""
    entries = value if isinstance(value, list) else []
    return [entry["id"] for entry in entries if is_reference(entry)]


def list_calls_without_result(value: object) -> list[str]:
    """List the ids of the `mcp_call` items that have no result, since some clients drop it."""
    entries = value if isinstance(value, list) else []
    return [entry["id"] for entry in entries if is_call_without_result(entry)]


def is_call_without_result(entry: object) -> TypeGuard[dict[str, Any]]:
    """Return True for an `mcp_call` item with neither an output nor an error."""
    if not isinstance(entry, dict) or entry.get("type") != "mcp_call" or not isinstance(entry.get("id"), str):
        return False
    return entry.get("output") is None and entry.get("error") is None


def is_reference(entry: object) -> TypeGuard[dict[str, Any]]:
    """Return True for an entry that only refers to an item by its id."""
    return isinstance(entry, dict) and _entry_type(entry) == "item_reference" and isinstance(entry.get("id"), str)


def resolve_references(body: object, find_item: FindItem) -> object:
    """Return the body with references and calls without result replaced by the stored items, where they are found."""
    if not isinstance(body, dict) or not isinstance(body.get("input"), list):
        return body
    return {**body, "input": resolve_entries(body, find_item)}


def resolve_entries(body: object, find_item: FindItem) -> list[object]:
    """List the entries of a body's input, replaced as in `resolve_references`."""
    value = body.get("input") if isinstance(body, dict) else None
    return [_find_entry(entry, find_item) or entry for entry in value] if isinstance(value, list) else []


def _find_entry(entry: object, find_item: FindItem) -> Mapping[str, Any] | None:
    return find_item(entry["id"]) if is_reference(entry) or is_call_without_result(entry) else None


def _read_text(text: str, into: Input) -> None:
    message = text_message("user", text)
    item_id = new_id("msg")
    into.items.append(message)
    content = [{"type": "input_text", "text": text}]
    into.wire_items.append(
        {"id": item_id, "type": "message", "status": "completed", "role": "user", "content": content}
    )


def _read_item(entry: object, path: str, into: Input, *, is_found: bool = False) -> None:
    if not isinstance(entry, dict):
        refuse_type(path, "an object", entry)
    kind = _entry_type(entry)
    if kind is None:
        refuse_missing(f"{path}.type")
    if kind == "item_reference":
        _read_reference(entry, path, into, is_found=is_found)
        return
    if kind == "mcp_call" and not is_found and is_call_without_result(entry):
        stored = into.find_item(entry["id"])
        if stored is not None:
            _read_item(dict(stored), path, into, is_found=True)
            return
    if not isinstance(kind, str) or kind not in ITEM_READERS:
        refuse_choice(f"{path}.type", kind, (*ITEM_READERS, "item_reference"))
    # The content of an answer has fewer kinds of parts.
    is_answer = kind == "message" and entry.get("role") == "assistant"
    item = read_body(AssistantMessage if is_answer else ITEM_MODELS[kind], entry, path)
    ITEM_READERS[kind](item, entry, path, into)


def _entry_type(entry: Mapping[str, Any]) -> Any:
    # The type is optional in a message and in a reference.
    kind = entry.get("type")
    if kind is not None:
        return kind
    if "role" in entry:
        return "message"
    return "item_reference" if set(entry) <= {"type", "id"} and "id" in entry else None


def _read_reference(entry: dict[str, Any], path: str, into: Input, *, is_found: bool) -> None:
    item_id = read_body(ItemReference, entry, path).id
    found = None if is_found else into.find_item(item_id)
    if found is None:
        refuse(f"Item with id '{item_id}' not found.", f"{path}.id", "item_not_found")
    _read_item(dict(found), path, into, is_found=True)


def _remove_answered_requests(parsed: Input) -> None:
    """Remove approval requests whose call has its result in the same input, so that the call is not run again.

    An approval before the last message of the assistant is marked as past.
    """
    if parsed.approvals:
        messages = [index for index, item in enumerate(parsed.items) if _is_model_message(item)]
        last = messages[-1] if messages else -1
        parsed.approvals = [replace(answer, is_past=answer.position <= last) for answer in parsed.approvals]
    answered = {item.call_id for item in parsed.items if isinstance(item, FunctionCallOutput)}
    finished = [call for call in parsed.pending_calls if call.call_id in answered]
    if not finished:
        return
    ids, requests = {approval_id(call) for call in finished}, {id(call) for call in finished}
    # The item with the result has added the same call.
    parsed.items = [item for item in parsed.items if id(item) not in requests]
    parsed.pending_calls = [call for call in parsed.pending_calls if call.call_id not in answered]
    parsed.approvals = [answer for answer in parsed.approvals if answer.request_id not in ids]


def _is_model_message(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "assistant"
