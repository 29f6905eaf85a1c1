"""Readers of the items of action tools: calls that a client sends back, and the outputs with which it answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holodeck.gateway.wire.item_ids import item_id_of
from holodeck.gateway.wire.request.action_tools import (
    APPLY_PATCH,
    COMPUTER,
    LOCAL_SHELL,
    SHELL,
    ActionTool,
    action_to_arguments,
)
from holodeck.gateway.wire.request.content_parts import read_image_url
from holodeck.gateway.wire.request.json_fields import JSONFields
from holodeck.gateway.wire.request.parsed_input import ITEM_STATUSES, Input, refuse_indirect_call
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_CALL_ID_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, ImageLink, Part

PATCH_STATUSES = ("completed", "failed")
_NO_FILES = "This gateway stores no files: send the screenshot itself, as a data URL, or its URL."


def _read_action_call(tool: ActionTool, fields: JSONFields, into: Input) -> None:
    """Read a call. For the model it is a call of the function of its tool."""
    refuse_indirect_call(fields)
    wire_id = fields.get_text("id") or new_id(tool.id_prefix)
    call = FunctionCall(
        call_id=_read_call_id(fields),
        name=tool.name,
        arguments=action_to_arguments(_read_action(tool, fields)),
        id=item_id_of(wire_id),
    )
    if not fields.has("id"):
        into.generated_ids.add(call.id)
    fields.get_choice("status", ITEM_STATUSES)
    into.items.append(call)
    into.wire_items.append({**fields.value, "id": wire_id})


def _read_action(tool: ActionTool, fields: JSONFields) -> Mapping[str, Any]:
    if tool is COMPUTER:
        fields.get_array("pending_safety_checks")
        actions, action = [each.value for each in fields.iter_objects("actions")], fields.get_mapping("action")
        if not actions and action is None:
            fields.refuse_missing("actions")
        return {"actions": actions} if actions else {"action": action}
    # Where the commands ran does not matter any more.
    fields.get_mapping("environment")
    key = "operation" if tool is APPLY_PATCH else "action"
    action = fields.get_mapping(key) or fields.refuse_missing(key)
    if tool is not LOCAL_SHELL:
        return action
    # Every such action has the type `exec`, and an `env`, which is mostly empty.
    return {name: value for name, value in action.items() if name != "type" and (name != "env" or value)}


def _read_shell_output(fields: JSONFields, into: Input) -> None:
    fields.get_integer("max_output_length", minimum=0)
    fields.get_choice("status", ITEM_STATUSES)
    if not fields.has("output"):
        fields.refuse_missing("output")
    chunks = []
    for chunk in fields.iter_objects("output"):
        chunk.pop("created_by")
        chunks.append(_describe_shell_output(chunk))
        chunk.refuse_unread()
    if len(chunks) > 1:
        chunks = [f"Command {index}:\n{chunk}" for index, chunk in enumerate(chunks, 1)]
    _add_output(fields, into, (TextContent(text="\n\n".join(chunks)),))


def _describe_shell_output(chunk: JSONFields) -> str:
    """Read what one command has written and how it ended, as text for the model."""
    stdout, stderr = (chunk.get_text(key, max_length=MAX_INPUT_TEXT_CHARS) or "" for key in ("stdout", "stderr"))
    outcome = chunk.get_object("outcome") or chunk.refuse_missing("outcome")
    ending = "The command was stopped: it took too long."
    if (outcome.get_choice("type", ("exit", "timeout")) or outcome.refuse_missing("type")) == "exit":
        code = outcome.get_integer("exit_code", minimum=-(2**31), maximum=2**32)
        ending = f"Exit code: {outcome.refuse_missing('exit_code') if code is None else code}"
    outcome.refuse_unread()
    texts = (stdout, f"Standard error:\n{stderr}" if stderr else "", ending)
    return "\n".join(text.removesuffix("\n") for text in texts if text)


def _read_local_shell_output(fields: JSONFields, into: Input) -> None:
    fields.get_choice("status", ITEM_STATUSES)
    output = fields.require_text("output", max_length=MAX_INPUT_TEXT_CHARS)
    # OpenAI's types have no `call_id` here: `id` is the id of the call, or of its item.
    sent = None if fields.has("call_id") else fields.require_text("id", may_be_empty=False)
    calls = (item for item in into.items if isinstance(item, FunctionCall))
    call_id = next((call.call_id for call in calls if sent is not None and call.id == item_id_of(sent)), sent)
    _add_output(fields, into, (TextContent(text=output),), call_id=call_id)


def _read_patch_output(fields: JSONFields, into: Input) -> None:
    status = fields.get_choice("status", PATCH_STATUSES) or fields.refuse_missing("status")
    text = fields.get_text("output", max_length=MAX_INPUT_TEXT_CHARS)
    is_error = status == "failed"
    text = text or ("The change was not made." if is_error else "The change is made.")
    _add_output(fields, into, (TextContent(text=text),), is_error=is_error)


def _read_computer_output(fields: JSONFields, into: Input) -> None:
    fields.get_choice("status", ITEM_STATUSES)
    for check in fields.iter_objects("acknowledged_safety_checks"):
        check.require_text("id")
        check.get_text("code")
        check.get_text("message")
        check.refuse_unread()
    screenshot = fields.get_object("output") or fields.refuse_missing("output")
    if screenshot.get_choice("type", ("computer_screenshot",)) is None:
        screenshot.refuse_missing("type")
    screenshot.refuse_present(_NO_FILES, "file_id")
    url = read_image_url(screenshot, "image_url")
    screenshot.refuse_unread()
    _add_output(fields, into, (ImageLink(url=url),))


def _add_output(
    fields: JSONFields, into: Input, content: tuple[Part, ...], *, call_id: str | None = None, is_error: bool = False
) -> None:
    refuse_indirect_call(fields)
    item_id = fields.get_text("id") or fields.value.get("id") or new_id("out")
    call_id = call_id or _read_call_id(fields)
    into.items.append(FunctionCallOutput(call_id=call_id, content=content, is_error=is_error, id=item_id))
    into.wire_items.append({**fields.value, "id": item_id})


def _read_call_id(fields: JSONFields) -> str:
    return fields.require_text("call_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)


ACTION_ITEM_READERS: dict[str, Callable[[JSONFields, Input], None]] = {
    "shell_call": partial(_read_action_call, SHELL),
    "shell_call_output": _read_shell_output,
    "local_shell_call": partial(_read_action_call, LOCAL_SHELL),
    "local_shell_call_output": _read_local_shell_output,
    "apply_patch_call": partial(_read_action_call, APPLY_PATCH),
    "apply_patch_call_output": _read_patch_output,
    "computer_call": partial(_read_action_call, COMPUTER),
    "computer_call_output": _read_computer_output,
}
