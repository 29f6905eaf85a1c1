"""Readers of input items, one for each type, in `ITEM_READERS`.

A reader takes the model of an item, the item as it was sent and its path, and adds to an `Input`: items for the engine,
and the item as the client can list it again. It raises `BadRequestError` for what the model of the item does not check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import orjson

from holodeck.gateway.api.models import input_items as api
from holodeck.gateway.sealing import REASONING_PURPOSE, BrokenSealError, is_sealed
from holodeck.gateway.wire.compaction_item import COMPACTION_PURPOSE, CompactionContent, list_kept_questions
from holodeck.gateway.wire.item_ids import call_id_of, id_stem, item_id_of, mcp_id_of
from holodeck.gateway.wire.request.action_tools import (
    APPLY_PATCH,
    COMPUTER,
    LOCAL_SHELL,
    SHELL,
    ActionTool,
    action_to_arguments,
)
from holodeck.gateway.wire.request.content_parts import build_parts, mark_link, part_to_wire
from holodeck.gateway.wire.request.hosted_items import HOSTED_ITEM_READERS
from holodeck.gateway.wire.request.json_fields import refuse, refuse_missing
from holodeck.gateway.wire.request.parsed_input import ApprovalAnswer, Input, WireItem
from holodeck.gateway.wire.request.tools import TOOL_SEARCH, model_tool_name, read_found_tools, text_to_arguments
from holodeck.gateway.wire.sealed_calls import read_sealed_call
from holodeck.lib.call_errors import RESPONSE_ENDED_DURING
from holodeck.lib.ids import new_id
from holodeck.models.items import (
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Message,
    Part,
    Reasoning,
    TextContent,
)

# Key of `Reasoning.opaque` for reasoning that the provider of the Responses dialect can read again.
_RESPONSES_PROVIDER_KEY = "responses"
_TEXT_TYPES = frozenset(("input_text", "output_text"))
# What a model gets for an `mcp_call` that has neither output nor error, by its status. Others were interrupted.
_TEXTS_WITHOUT_OUTPUT = {
    "completed": "This call has been run. What came of it is not known here.",
    "failed": "This call came to no result.",
}


def add_stored_message(entry: WireItem, into: Input) -> bool:
    """Add a stored message that has only texts, in the form that `_read_message` and the writer give it.

    Returns False, and adds nothing, if it is another item or has other parts.
    """
    if entry["type"] != "message":
        return False
    parts = entry["content"]
    for part in parts:
        if part["type"] not in _TEXT_TYPES:
            return False
    content = tuple([TextContent(text=part["text"]) for part in parts])
    into.items.append(Message(role=entry["role"], content=content, id=entry["id"]))
    into.wire_items.append(entry)
    return True


def _read_message(item: api.InputMessage, entry: WireItem, where: str, into: Input) -> None:
    is_assistant, item_id = item.role == "assistant", item.id or new_id("msg")
    content, wire_parts = build_parts(item.content, entry["content"], f"{where}.content", is_assistant=is_assistant)
    into.items.append(Message(role=item.role, content=content, id=item_id))
    wire_item: WireItem = {
        "id": item_id,
        "type": "message",
        "status": item.status or "completed",
        "role": item.role,
        "content": wire_parts,
    }
    into.wire_items.append({**wire_item, "phase": item.phase} if item.phase else wire_item)


def _read_function_call(item: api.InputFunctionCall, entry: WireItem, where: str, into: Input) -> None:
    item_id = item.id or new_id("fc")
    if not item.id:
        into.generated_ids.add(item_id)
    name = model_tool_name(item.name, item.namespace)
    into.items.append(FunctionCall(call_id=item.call_id, name=name, arguments=item.arguments, id=item_id))
    wire_item = {
        "id": item_id,
        "type": "function_call",
        "status": item.status or "completed",
        "call_id": item.call_id,
        "name": item.name,
        "arguments": item.arguments,
    }
    into.wire_items.append({**wire_item, "namespace": item.namespace} if item.namespace else wire_item)


def _read_custom_tool_call(item: api.InputCustomToolCall, entry: WireItem, where: str, into: Input) -> None:
    """Read a call of a tool that takes text. For the model it is a call of a function with one argument."""
    wire_id = item.id or new_id("ctc")
    call = FunctionCall(
        call_id=item.call_id,
        name=model_tool_name(item.name, item.namespace),
        arguments=text_to_arguments(item.input),
        id=item_id_of(wire_id),
    )
    if item.id is None:
        into.generated_ids.add(call.id)
    into.items.append(call)
    into.wire_items.append({**entry, "type": "custom_tool_call", "id": wire_id})


def _read_function_call_output(
    item: api.FunctionCallOutput | api.CustomToolCallOutput, entry: WireItem, where: str, into: Input
) -> None:
    item_id, sent = item.id or new_id("out"), entry["output"]
    content, parts = build_parts(item.output, sent, f"{where}.output")
    into.items.append(FunctionCallOutput(call_id=item.call_id, content=content, id=item_id))
    into.wire_items.append(
        {
            "id": item_id,
            "type": item.type,
            "status": item.status or "completed",
            "call_id": item.call_id,
            "output": sent if isinstance(sent, str) else parts,
        }
    )


def _read_tool_search_call(item: api.InputToolSearchCall, entry: WireItem, where: str, into: Input) -> None:
    item_id, arguments = item.id or new_id("tsc"), orjson.dumps(item.arguments).decode()
    call = FunctionCall(call_id=item.call_id, name=TOOL_SEARCH, arguments=arguments, id=item_id_of(item_id))
    into.items.append(call)
    into.wire_items.append({**entry, "id": item_id})


def _read_tool_search_output(item: api.ToolSearchOutput, entry: WireItem, where: str, into: Input) -> None:
    """Read the tools that a search has found. The model gets them as text; `add_found_tools` offers them later."""
    item_id = item.id or new_id("tso")
    read_found_tools(item.tools, f"{where}.tools", {})
    text = orjson.dumps({"tools": item.tools or []}).decode()
    into.items.append(FunctionCallOutput(call_id=item.call_id, content=(TextContent(text=text),), id=item_id))
    into.wire_items.append({**entry, "id": item_id})


def _read_reasoning(item: api.InputReasoning, entry: WireItem, where: str, into: Input) -> None:
    item_id, encrypted = item.id or new_id("rs"), item.encrypted_content
    summary, text = [each.text for each in item.summary], [each.text for each in item.content or ()]
    wire_item: WireItem = {
        "id": item_id,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": each} for each in summary],
    }
    if text:
        wire_item["content"] = [{"type": "reasoning_text", "text": each} for each in text]
    if encrypted is not None:
        wire_item["encrypted_content"] = encrypted
    opaque = {} if encrypted is None else _open_reasoning(encrypted, wire_item, where, into)
    if not read_sealed_call(opaque, into):
        reasoning = Reasoning(text="".join(text), summary="\n\n".join(summary), opaque=opaque, id=item_id)
        into.items.append(reasoning)
    into.wire_items.append(wire_item)


def _open_reasoning(encrypted: str, wire_item: WireItem, where: str, into: Input) -> dict[str, Any]:
    """Return the `opaque` of a reasoning item: its content if we sealed it, or the item itself for another provider."""
    if not is_sealed(encrypted):
        return {_RESPONSES_PROVIDER_KEY: dict(wire_item)}
    return cast(dict[str, Any], _require_sealed_content(REASONING_PURPOSE, encrypted, where, into))


def _require_sealed_content(purpose: str, encrypted: str, where: str, into: Input) -> Any:
    content = None if into.sealed is None else into.sealed.get(purpose, encrypted)
    if content is None:
        refuse(str(BrokenSealError()), f"{where}.encrypted_content", "invalid_encrypted_content")
    return content


def _read_compaction(item: api.Compaction, entry: WireItem, where: str, into: Input) -> None:
    item_id, encrypted = item.id or new_id("cmp"), item.encrypted_content
    content: CompactionContent = _require_sealed_content(COMPACTION_PURPOSE, encrypted, where, into)
    if content.replaces_before:
        # Approvals before it were answered by the response that made it, or earlier.
        into.drop_items()
    else:
        _leave_out_repeated(into, content)
    into.items += content.items
    into.targets |= content.approval_targets
    waiting = [item for item in content.items if isinstance(item, FunctionCall)]
    into.pending_calls += [call for call in waiting if call.call_id in content.approval_targets]
    into.wire_items.append({"id": item_id, "type": "compaction", "encrypted_content": encrypted})


def _leave_out_repeated(into: Input, content: CompactionContent) -> None:
    """Delete the messages right before a compaction that are in it: its route returns both."""
    kept = list_kept_questions(content)
    while into.items and kept and isinstance(last := into.items[-1], Message) and last.role == "user":
        if list(map(part_to_wire, last.content)) != list(map(part_to_wire, kept[-1].content)):
            return
        into.drop_last_message()
        kept.pop()


def _read_compaction_trigger(item: api.CompactionTrigger, entry: WireItem, where: str, into: Input) -> None:
    """Read the request to compact the context. It is no item of the conversation: the client cannot list it again."""
    into.compaction_trigger = where


def _read_mcp_list_tools(item: api.InputMCPListTools, entry: WireItem, where: str, into: Input) -> None:
    wire_item = {**entry, "id": item.id or new_id("mcpl")}
    if item.error is None:
        into.tool_lists[item.server_label] = wire_item
    into.wire_items.append(wire_item)


def _read_mcp_call(item: api.InputMCPCall, entry: WireItem, where: str, into: Input) -> None:
    """Read a call of an earlier response as a call and its output."""
    # A client that does not store the ids of items still sends the id of the approval request.
    approval, error = item.approval_request_id, item.error
    item_id = item.id or (mcp_id_of(approval) if approval else new_id("mcp"))
    call = _build_server_call(item, item_id, into)
    text = item.output if error is None else _error_text(error)
    if text is None:
        text, error = _TEXTS_WITHOUT_OUTPUT.get(item.status or "", RESPONSE_ENDED_DURING), True
    content = (TextContent(text=text),)
    into.items += [
        call,
        FunctionCallOutput(call_id=call.call_id, content=content, is_error=error is not None, id=f"{item_id}_out"),
    ]
    into.wire_items.append({**entry, "id": item_id})


def _read_mcp_approval_request(item: api.InputMCPApprovalRequest, entry: WireItem, where: str, into: Input) -> None:
    call = _build_server_call(item, item.id, into)
    into.items.append(call)
    into.pending_calls.append(call)
    into.wire_items.append(dict(entry))


def _build_server_call(item: api.InputMCPCall | api.InputMCPApprovalRequest, item_id: str, into: Input) -> FunctionCall:
    name, call_id = into.tool_name_of(item.server_label, item.name), call_id_of(item_id)
    into.targets[call_id] = (item.server_label, item.name)
    return FunctionCall(call_id=call_id, name=name, arguments=item.arguments, id=item_id_of(item_id))


def _error_text(error: Any) -> str:
    """Return the text of a call's error, which is a string or one of several objects, depending on the client."""
    if isinstance(error, str):
        return error
    if isinstance(error, dict):
        content = error.get("message", error.get("content"))
        if isinstance(content, list):
            return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if isinstance(content, str):
            return content
    return orjson.dumps(error).decode()


def _read_mcp_approval_response(item: api.MCPApprovalResponse, entry: WireItem, where: str, into: Input) -> None:
    into.approvals.append(
        ApprovalAnswer(
            request_id=item.approval_request_id,
            approve=item.approve,
            reason=item.reason,
            param=f"{where}.approval_request_id",
            position=len(into.items),
        )
    )
    into.wire_items.append({**entry, "id": item.id or new_id("mcpa")})


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
        call = into.find_call(id_stem(item.id))
        call_id = item.id if call is None else call.call_id
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


ITEM_READERS: dict[str, Callable[[Any, WireItem, str, Input], None]] = {
    "message": _read_message,
    "function_call": _read_function_call,
    "function_call_output": _read_function_call_output,
    "custom_tool_call": _read_custom_tool_call,
    "custom_tool_call_output": _read_function_call_output,
    "shell_call": partial(_read_action_call, SHELL),
    "shell_call_output": _read_shell_output,
    "local_shell_call": partial(_read_action_call, LOCAL_SHELL),
    "local_shell_call_output": _read_local_shell_output,
    "apply_patch_call": partial(_read_action_call, APPLY_PATCH),
    "apply_patch_call_output": _read_patch_output,
    "computer_call": partial(_read_action_call, COMPUTER),
    "computer_call_output": _read_computer_output,
    **HOSTED_ITEM_READERS,
    "tool_search_call": _read_tool_search_call,
    "tool_search_output": _read_tool_search_output,
    "reasoning": _read_reasoning,
    "compaction": _read_compaction,
    "compaction_trigger": _read_compaction_trigger,
    "mcp_list_tools": _read_mcp_list_tools,
    "mcp_call": _read_mcp_call,
    "mcp_approval_request": _read_mcp_approval_request,
    "mcp_approval_response": _read_mcp_approval_response,
}
