"""Readers of input items, one for each type, in `ITEM_READERS`.

A reader takes the fields of an item, of which `type` is read already, and adds to an `Input`: items for the engine, and
the item as the client can list it again. It raises `BadRequestError` for a wrong field; the caller refuses fields that
no reader has read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import orjson

from holodeck.gateway.sealing import REASONING_PURPOSE, BrokenSealError, is_sealed
from holodeck.gateway.wire.compaction_item import COMPACTION_PURPOSE, CompactionContent, list_kept_questions
from holodeck.gateway.wire.item_ids import call_id_of, item_id_of, mcp_id_of
from holodeck.gateway.wire.request.action_items import ACTION_ITEM_READERS
from holodeck.gateway.wire.request.content_parts import part_to_wire, read_parts
from holodeck.gateway.wire.request.hosted_items import HOSTED_ITEM_READERS
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_type
from holodeck.gateway.wire.request.parsed_input import ITEM_STATUSES, ApprovalAnswer, Input, refuse_indirect_call
from holodeck.gateway.wire.request.tools import TOOL_SEARCH, model_tool_name, read_found_tools, text_to_arguments
from holodeck.gateway.wire.sealed_calls import read_sealed_call
from holodeck.lib.call_errors import RESPONSE_ENDED_DURING
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_CALL_ID_CHARS, MAX_INPUT_TEXT_CHARS, MAX_TOOL_NAME_CHARS
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, Role

# Key of `Reasoning.opaque` for reasoning that the provider of the Responses dialect can read again.
_RESPONSES_PROVIDER_KEY = "responses"
MESSAGE_ROLES = ("user", "assistant", "system", "developer")
MCP_STATUSES = (*ITEM_STATUSES, "calling", "failed")
# What a model gets for an `mcp_call` that has neither output nor error, by its status. Others were interrupted.
_TEXTS_WITHOUT_OUTPUT = {
    "completed": "This call has been run. What came of it is not known here.",
    "failed": "This call came to no result.",
}


def _read_message(fields: JSONFields, into: Input) -> None:
    role = fields.get_choice("role", MESSAGE_ROLES) or fields.refuse_missing("role")
    if not fields.has("content"):
        fields.refuse_missing("content")
    content, wire_parts = read_parts(fields.pop("content"), fields.path_of("content"), is_assistant=role == "assistant")
    item_id = fields.get_text("id") or new_id("msg")
    status = fields.get_choice("status", ITEM_STATUSES) or "completed"
    phase = fields.get_choice("phase", ("commentary", "final_answer"))
    into.items.append(Message(role=cast(Role, role), content=content, id=item_id))
    entry: dict[str, Any] = {"id": item_id, "type": "message", "status": status, "role": role, "content": wire_parts}
    into.wire_items.append({**entry, "phase": phase} if phase else entry)


def _read_function_call(fields: JSONFields, into: Input) -> None:
    refuse_indirect_call(fields)
    # SDKs store the parsed arguments beside the text, and send them back.
    fields.pop("parsed_arguments")
    sent_id = fields.get_text("id")
    item_id = sent_id or new_id("fc")
    if not sent_id:
        into.generated_ids.add(item_id)
    name, namespace = _read_tool_name(fields)
    call = FunctionCall(
        call_id=fields.require_text("call_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False),
        name=model_tool_name(name, namespace),
        arguments=fields.require_text("arguments"),
        id=item_id,
    )
    status = fields.get_choice("status", ITEM_STATUSES) or "completed"
    into.items.append(call)
    wire_item = {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.call_id,
        "name": name,
        "arguments": call.arguments,
    }
    into.wire_items.append({**wire_item, "namespace": namespace} if namespace else wire_item)


def _read_tool_name(fields: JSONFields) -> tuple[str, str | None]:
    name = fields.require_text("name", max_length=2 * MAX_TOOL_NAME_CHARS, may_be_empty=False)
    return name, fields.get_text("namespace", max_length=MAX_TOOL_NAME_CHARS)


def _read_custom_tool_call(fields: JSONFields, into: Input) -> None:
    """Read a call of a tool that takes text. For the model it is a call of a function with one argument."""
    refuse_indirect_call(fields)
    wire_id = fields.get_text("id") or new_id("ctc")
    name, namespace = _read_tool_name(fields)
    call_id = fields.require_text("call_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    call = FunctionCall(
        call_id=call_id,
        name=model_tool_name(name, namespace),
        arguments=text_to_arguments(fields.require_text("input", max_length=MAX_INPUT_TEXT_CHARS)),
        id=item_id_of(wire_id),
    )
    if not fields.has("id"):
        into.generated_ids.add(call.id)
    fields.get_choice("status", ITEM_STATUSES)
    into.items.append(call)
    into.wire_items.append({**fields.value, "type": "custom_tool_call", "id": wire_id})


def _read_function_call_output(fields: JSONFields, into: Input) -> None:
    refuse_indirect_call(fields)
    kind = fields.value["type"]
    fields.get_text("name")
    fields.get_text("namespace")
    item_id = fields.get_text("id") or new_id("out")
    call_id = fields.require_text("call_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    if not fields.has("output"):
        fields.refuse_missing("output")
    output = fields.pop("output")
    content, parts = read_parts(output, fields.path_of("output"))
    status = fields.get_choice("status", ITEM_STATUSES) or "completed"
    into.items.append(FunctionCallOutput(call_id=call_id, content=content, id=item_id))
    wire_output = output if isinstance(output, str) else parts
    into.wire_items.append({"id": item_id, "type": kind, "status": status, "call_id": call_id, "output": wire_output})


def _read_tool_search_call(fields: JSONFields, into: Input) -> None:
    item_id = fields.get_text("id") or new_id("tsc")
    fields.get_choice("execution", ("client",))
    fields.get_choice("status", ITEM_STATUSES)
    call_id = fields.require_text("call_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    arguments = orjson.dumps(fields.pop("arguments")).decode()
    into.items.append(FunctionCall(call_id=call_id, name=TOOL_SEARCH, arguments=arguments, id=item_id_of(item_id)))
    into.wire_items.append({**fields.value, "id": item_id})


def _read_tool_search_output(fields: JSONFields, into: Input) -> None:
    """Read the tools that a search has found. The model gets them as text; `add_found_tools` offers them later."""
    item_id = fields.get_text("id") or new_id("tso")
    fields.get_choice("execution", ("client",))
    fields.get_choice("status", ITEM_STATUSES)
    call_id = fields.require_text("call_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    tools = fields.value.get("tools") or []
    read_found_tools(fields, {})
    text = orjson.dumps({"tools": tools}).decode()
    into.items.append(FunctionCallOutput(call_id=call_id, content=(TextContent(text=text),), id=item_id))
    into.wire_items.append({**fields.value, "id": item_id})


def _read_reasoning(fields: JSONFields, into: Input) -> None:
    item_id = fields.get_text("id") or new_id("rs")
    fields.get_choice("status", ITEM_STATUSES)
    if not isinstance(fields.value.get("summary"), list):
        refuse_type(fields.path_of("summary"), "an array", fields.value.get("summary"))
    summary = _read_texts(fields, "summary", "summary_text")
    text = _read_texts(fields, "content", "reasoning_text")
    encrypted = fields.get_text("encrypted_content")
    wire_item: dict[str, Any] = {
        "id": item_id,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": each} for each in summary],
    }
    if text:
        wire_item["content"] = [{"type": "reasoning_text", "text": each} for each in text]
    if encrypted is not None:
        wire_item["encrypted_content"] = encrypted
    opaque = {} if encrypted is None else _open_reasoning(encrypted, wire_item, fields, into)
    if not read_sealed_call(opaque, into):
        reasoning = Reasoning(text="".join(text), summary="\n\n".join(summary), opaque=opaque, id=item_id)
        into.items.append(reasoning)
    into.wire_items.append(wire_item)


def _read_texts(fields: JSONFields, key: str, kind: str) -> list[str]:
    texts = []
    for part in fields.iter_objects(key):
        if part.pop("type") not in (kind, "text"):
            refuse_choice(part.path_of("type"), part.value.get("type"), (kind,))
        texts.append(part.require_text("text", max_length=MAX_INPUT_TEXT_CHARS))
        part.refuse_unread()
    return texts


def _open_reasoning(encrypted: str, wire_item: dict[str, Any], fields: JSONFields, into: Input) -> dict[str, Any]:
    """Return the `opaque` of a reasoning item: its content if we sealed it, or the item itself for another provider."""
    if not is_sealed(encrypted):
        return {_RESPONSES_PROVIDER_KEY: dict(wire_item)}
    return cast(dict[str, Any], _require_sealed_content(REASONING_PURPOSE, encrypted, fields, into))


def _require_sealed_content(purpose: str, encrypted: str, fields: JSONFields, into: Input) -> Any:
    content = None if into.sealed is None else into.sealed.get(purpose, encrypted)
    if content is None:
        refuse(str(BrokenSealError()), fields.path_of("encrypted_content"), "invalid_encrypted_content")
    return content


def _read_compaction(fields: JSONFields, into: Input) -> None:
    item_id = fields.get_text("id") or new_id("cmp")
    encrypted = fields.require_text("encrypted_content", max_length=4 * MAX_INPUT_TEXT_CHARS)
    content: CompactionContent = _require_sealed_content(COMPACTION_PURPOSE, encrypted, fields, into)
    if content.replaces_before:
        # Approvals before it were answered by the response that made it, or earlier.
        into.items, into.pending_calls, into.approvals = [], [], []
    else:
        _leave_out_repeated(into.items, content)
    into.items += content.items
    into.targets |= content.approval_targets
    waiting = [item for item in content.items if isinstance(item, FunctionCall)]
    into.pending_calls += [call for call in waiting if call.call_id in content.approval_targets]
    into.wire_items.append({"id": item_id, "type": "compaction", "encrypted_content": encrypted})


def _leave_out_repeated(items: list[Item], content: CompactionContent) -> None:
    """Delete the messages right before a compaction that are in it: `/v1/responses/compact` returns both."""
    kept = list_kept_questions(content)
    while items and kept and isinstance(last := items[-1], Message) and last.role == "user":
        if list(map(part_to_wire, last.content)) != list(map(part_to_wire, kept[-1].content)):
            return
        items.pop()
        kept.pop()


def _read_compaction_trigger(fields: JSONFields, into: Input) -> None:
    """Read the request to compact the context. It is no item of the conversation: the client cannot list it again."""
    fields.get_text("id")
    into.compaction_trigger = fields.path


def _read_mcp_list_tools(fields: JSONFields, into: Input) -> None:
    label = fields.require_text("server_label", may_be_empty=False)
    if not fields.has("tools"):
        fields.refuse_missing("tools")
    for tool in fields.iter_objects("tools"):
        tool.require_text("name", may_be_empty=False)
        if tool.get_mapping("input_schema") is None:
            tool.refuse_missing("input_schema")
        tool.get_text("description")
        tool.get_mapping("annotations")
        tool.refuse_unread()
    error = fields.get_text("error")
    wire_item = {**fields.value, "id": fields.get_text("id") or new_id("mcpl")}
    if error is None:
        into.tool_lists[label] = wire_item
    into.wire_items.append(wire_item)


def _read_mcp_call(fields: JSONFields, into: Input) -> None:
    """Read a call of an earlier response as a call and its output."""
    # A client that does not store the ids of items still sends the id of the approval request.
    approval = fields.get_text("approval_request_id")
    item_id = fields.get_text("id") or (mcp_id_of(approval) if approval else new_id("mcp"))
    call = _read_server_call(fields, into, item_id)
    status = fields.get_choice("status", MCP_STATUSES)
    output, error = fields.get_text("output"), fields.pop("error")
    text = output if error is None else _error_text(error)
    if text is None:
        text, error = _TEXTS_WITHOUT_OUTPUT.get(status or "", RESPONSE_ENDED_DURING), True
    content = (TextContent(text=text),)
    into.items += [
        call,
        FunctionCallOutput(call_id=call.call_id, content=content, is_error=error is not None, id=f"{item_id}_out"),
    ]
    into.wire_items.append({**fields.value, "id": item_id})


def _read_mcp_approval_request(fields: JSONFields, into: Input) -> None:
    call = _read_server_call(fields, into, fields.require_text("id", may_be_empty=False))
    into.items.append(call)
    into.pending_calls.append(call)
    into.wire_items.append(dict(fields.value))


def _read_server_call(fields: JSONFields, into: Input, item_id: str) -> FunctionCall:
    label = fields.require_text("server_label", may_be_empty=False)
    tool = fields.require_text("name", may_be_empty=False)
    name = into.tool_name_of(label, tool)
    arguments = fields.require_text("arguments")
    into.targets[call_id_of(item_id)] = (label, tool)
    return FunctionCall(call_id=call_id_of(item_id), name=name, arguments=arguments, id=item_id_of(item_id))


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


def _read_mcp_approval_response(fields: JSONFields, into: Input) -> None:
    request_id = fields.require_text("approval_request_id", may_be_empty=False)
    approve = fields.get_flag("approve")
    if approve is None:
        fields.refuse_missing("approve")
    reason = fields.get_text("reason", max_length=MAX_INPUT_TEXT_CHARS)
    param = fields.path_of("approval_request_id")
    into.approvals.append(
        ApprovalAnswer(request_id=request_id, approve=approve, reason=reason, param=param, position=len(into.items))
    )
    item_id = fields.get_text("id") or new_id("mcpa")
    into.wire_items.append({**fields.value, "id": item_id})


ITEM_READERS: dict[str, Callable[[JSONFields, Input], None]] = {
    "message": _read_message,
    "function_call": _read_function_call,
    "function_call_output": _read_function_call_output,
    "custom_tool_call": _read_custom_tool_call,
    "custom_tool_call_output": _read_function_call_output,
    **ACTION_ITEM_READERS,
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
