"""Readers of the items of action tools: calls that a client sends back, and the outputs with which it answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holodeck.gateway.api.models import input_items as api
from holodeck.gateway.wire.item_ids import item_id_of
from holodeck.gateway.wire.request.action_tools import (
    APPLY_PATCH,
    COMPUTER,
    LOCAL_SHELL,
    SHELL,
    ActionTool,
    action_to_arguments,
)
from holodeck.gateway.wire.request.content_parts import mark_link
from holodeck.gateway.wire.request.json_fields import refuse, refuse_missing
from holodeck.gateway.wire.request.parsed_input import Input, WireItem
from holodeck.lib.ids import new_id
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, ImageLink, Part

ActionCall = api.InputShellCall | api.InputLocalShellCall | api.InputApplyPatchCall | api.InputComputerCall


def _read_action_call(tool: ActionTool, item: ActionCall, entry: WireItem, where: str, into: Input) -> None:
    """Read a call. For the model it is a call of the function of its tool."""
    wire_id = item.id or new_id(tool.id_prefix)
    arguments = action_to_arguments(_find_action(item, where))
    call = FunctionCall(call_id=item.call_id, name=tool.name, arguments=arguments, id=item_id_of(wire_id))
    if item.id is None:
        into.generated_ids.add(call.id)
    into.items.append(call)
    into.wire_items.append({**entry, "id": wire_id})


def _find_action(item: ActionCall, where: str) -> Mapping[str, Any]:
    if isinstance(item, api.InputComputerCall):
        if not item.actions and item.action is None:
            refuse_missing(f"{where}.actions")
        return {"actions": item.actions} if item.actions else {"action": item.action}
    if isinstance(item, api.InputApplyPatchCall):
        return item.operation
    if isinstance(item, api.InputShellCall):
        return item.action
    # Every such action has the type `exec`, and an `env`, which is mostly empty.
    return {name: value for name, value in item.action.items() if name != "type" and (name != "env" or value)}


def _read_shell_output(item: api.ShellCallOutput, entry: WireItem, where: str, into: Input) -> None:
    chunks = [_describe_chunk(chunk) for chunk in item.output]
    if len(chunks) > 1:
        chunks = [f"Command {index}:\n{chunk}" for index, chunk in enumerate(chunks, 1)]
    _add_output(item, entry, into, TextContent(text="\n\n".join(chunks)))


def _describe_chunk(chunk: api.ShellChunk) -> str:
    """Return what one command has written and how it ended, as text for the model."""
    ending, outcome = "The command was stopped: it took too long.", chunk.outcome
    if isinstance(outcome, api.ExitOutcome):
        ending = f"Exit code: {outcome.exit_code}"
    texts = (chunk.stdout or "", f"Standard error:\n{chunk.stderr}" if chunk.stderr else "", ending)
    return "\n".join(text.removesuffix("\n") for text in texts if text)


def _read_local_shell_output(item: api.LocalShellCallOutput, entry: WireItem, where: str, into: Input) -> None:
    call_id = item.call_id
    if call_id is None:
        if item.id is None:
            refuse_missing(f"{where}.id")
        if not item.id:
            refuse(f"Invalid '{where}.id': empty string.", f"{where}.id", "empty_string")
        calls = (each for each in into.items if isinstance(each, FunctionCall))
        call_id = next((call.call_id for call in calls if call.id == item_id_of(item.id)), item.id)
    _add_output(item, entry, into, TextContent(text=item.output), call_id=call_id)


def _read_patch_output(item: api.ApplyPatchCallOutput, entry: WireItem, where: str, into: Input) -> None:
    is_error = item.status == "failed"
    text = item.output or ("The change was not made." if is_error else "The change is made.")
    _add_output(item, entry, into, TextContent(text=text), is_error=is_error)


def _read_computer_output(item: api.ComputerCallOutput, entry: WireItem, where: str, into: Input) -> None:
    _add_output(item, entry, into, ImageLink(url=mark_link(item.output.image_url, f"{where}.output.image_url")))


def _add_output(
    item: api.DirectItem,
    entry: WireItem,
    into: Input,
    content: Part,
    *,
    call_id: str | None = None,
    is_error: bool = False,
) -> None:
    item_id, call_id = item.id or new_id("out"), call_id or item.call_id
    into.items.append(FunctionCallOutput(call_id=call_id, content=(content,), is_error=is_error, id=item_id))
    into.wire_items.append({**entry, "id": item_id})


ACTION_ITEM_READERS: dict[str, Callable[[Any, WireItem, str, Input], None]] = {
    "shell_call": partial(_read_action_call, SHELL),
    "shell_call_output": _read_shell_output,
    "local_shell_call": partial(_read_action_call, LOCAL_SHELL),
    "local_shell_call_output": _read_local_shell_output,
    "apply_patch_call": partial(_read_action_call, APPLY_PATCH),
    "apply_patch_call_output": _read_patch_output,
    "computer_call": partial(_read_action_call, COMPUTER),
    "computer_call_output": _read_computer_output,
}
