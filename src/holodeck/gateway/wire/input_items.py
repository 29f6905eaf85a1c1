"""One reader for each type of input item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import orjson

from holodeck.gateway.wire.compaction import PURPOSE as COMPACTION_PURPOSE
from holodeck.gateway.wire.fields import Fields, not_one_of, refuse, unsupported, wrong_type
from holodeck.gateway.wire.guises import SEARCH, arguments_of, model_name
from holodeck.gateway.wire.ids import call_id_of, item_id_of, mcp_id_of
from holodeck.gateway.wire.parts import read_parts
from holodeck.gateway.wire.reading import ApprovalAnswer, Input
from holodeck.gateway.wire.seal import REASONING_PURPOSE, BrokenSealError, is_sealed
from holodeck.gateway.wire.sealed_calls import read_sealed_call
from holodeck.gateway.wire.tools import read_found
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_CALL_ID_CHARS, MAX_INPUT_TEXT_CHARS, MAX_TOOL_NAME_CHARS
from holodeck.models.content import TextContent
from holodeck.models.items import FunctionCall, FunctionCallOutput, Message, Reasoning, Role

_RESPONSES_KEY = "responses"  # under which the provider of that dialect keeps reasoning that it can read again
_ROLES = ("user", "assistant", "system", "developer")
_STATUSES = ("in_progress", "completed", "incomplete")
_MCP_STATUSES = (*_STATUSES, "calling", "failed")
_UNKNOWN = "This call has been run. What came of it is not known here."
_NO_PROGRAMS = "This gateway runs no programs that call tools."


def _message(fields: Fields, into: Input) -> None:
    role = fields.choice("role", _ROLES) or fields.missing("role")
    if not fields.has("content"):
        fields.missing("content")
    content, shown = read_parts(fields.take("content"), fields.at("content"), is_assistant=role == "assistant")
    item_id = fields.text("id") or new_id("msg")
    status = fields.choice("status", _STATUSES) or "completed"
    phase = fields.choice("phase", ("commentary", "final_answer"))
    into.items.append(Message(role=cast(Role, role), content=content, id=item_id))
    entry: dict[str, Any] = {"id": item_id, "type": "message", "status": status, "role": role, "content": shown}
    into.shown.append({**entry, "phase": phase} if phase else entry)


def _function_call(fields: Fields, into: Input) -> None:
    _direct(fields)
    fields.take("parsed_arguments")  # SDKs keep what they made of the arguments beside them, and send it along
    given_id = fields.text("id")
    item_id = given_id or new_id("fc")
    if not given_id:
        into.unnamed.add(item_id)
    name, namespace = _named(fields)
    call = FunctionCall(
        call_id=fields.required("call_id", longest=MAX_CALL_ID_CHARS, may_be_empty=False),
        name=model_name(name, namespace),
        arguments=fields.required("arguments"),
        id=item_id,
    )
    status = fields.choice("status", _STATUSES) or "completed"
    into.items.append(call)
    shown = {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": call.call_id,
        "name": name,
        "arguments": call.arguments,
    }
    into.shown.append({**shown, "namespace": namespace} if namespace else shown)


def _named(fields: Fields) -> tuple[str, str | None]:
    name = fields.required("name", longest=2 * MAX_TOOL_NAME_CHARS, may_be_empty=False)
    return name, fields.text("namespace", longest=MAX_TOOL_NAME_CHARS)


def _custom_tool_call(fields: Fields, into: Input) -> None:
    """A call of a tool that takes text: the model sees the function that it knows."""
    _direct(fields)
    given_id = fields.text("id") or new_id("ctc")
    name, namespace = _named(fields)
    call_id = fields.required("call_id", longest=MAX_CALL_ID_CHARS, may_be_empty=False)
    call = FunctionCall(
        call_id=call_id,
        name=model_name(name, namespace),
        arguments=arguments_of(fields.required("input", longest=MAX_INPUT_TEXT_CHARS)),
        id=item_id_of(given_id),
    )
    if not fields.has("id"):
        into.unnamed.add(call.id)
    fields.choice("status", _STATUSES)
    into.items.append(call)
    into.shown.append({**fields.value, "type": "custom_tool_call", "id": given_id})


def _function_call_output(fields: Fields, into: Input) -> None:
    _direct(fields)
    kind = fields.value["type"]
    fields.text("name")
    fields.text("namespace")
    item_id = fields.text("id") or new_id("out")
    call_id = fields.required("call_id", longest=MAX_CALL_ID_CHARS, may_be_empty=False)
    if not fields.has("output"):
        fields.missing("output")
    output = fields.take("output")
    content, parts = read_parts(output, fields.at("output"))
    status = fields.choice("status", _STATUSES) or "completed"
    into.items.append(FunctionCallOutput(call_id=call_id, content=content, id=item_id))
    shown = output if isinstance(output, str) else parts
    into.shown.append({"id": item_id, "type": kind, "status": status, "call_id": call_id, "output": shown})


def _tool_search_call(fields: Fields, into: Input) -> None:
    item_id = fields.text("id") or new_id("tsc")
    fields.choice("execution", ("client",))
    fields.choice("status", _STATUSES)
    call_id = fields.required("call_id", longest=MAX_CALL_ID_CHARS, may_be_empty=False)
    arguments = orjson.dumps(fields.take("arguments")).decode()
    into.items.append(FunctionCall(call_id=call_id, name=SEARCH, arguments=arguments, id=item_id_of(item_id)))
    into.shown.append({**fields.value, "id": item_id})


def _tool_search_output(fields: Fields, into: Input) -> None:
    """What was found is told to the model as it is; that it may call it is seen to later."""
    item_id = fields.text("id") or new_id("tso")
    fields.choice("execution", ("client",))
    fields.choice("status", _STATUSES)
    call_id = fields.required("call_id", longest=MAX_CALL_ID_CHARS, may_be_empty=False)
    tools = fields.value.get("tools") or []
    read_found(fields, {})
    text = orjson.dumps({"tools": tools}).decode()
    into.items.append(FunctionCallOutput(call_id=call_id, content=(TextContent(text=text),), id=item_id))
    into.shown.append({**fields.value, "id": item_id})


def _direct(fields: Fields) -> None:
    fields.refuse_given("Calls are answered in order.", "async")
    caller = fields.object("caller")
    if caller is not None and caller.take("type") != "direct":
        unsupported(fields.at("caller"), _NO_PROGRAMS)


def _reasoning(fields: Fields, into: Input) -> None:
    item_id = fields.text("id") or new_id("rs")
    fields.choice("status", _STATUSES)
    if not isinstance(fields.value.get("summary"), list):
        wrong_type(fields.at("summary"), "an array", fields.value.get("summary"))
    summary = _texts(fields, "summary", "summary_text")
    text = _texts(fields, "content", "reasoning_text")
    encrypted = fields.text("encrypted_content")
    shown: dict[str, Any] = {
        "id": item_id,
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": each} for each in summary],
    }
    if text:
        shown["content"] = [{"type": "reasoning_text", "text": each} for each in text]
    if encrypted is not None:
        shown["encrypted_content"] = encrypted
    opaque = {} if encrypted is None else _opened(encrypted, shown, fields, into)
    if not read_sealed_call(opaque, into):
        thought = Reasoning(text="".join(text), summary="\n\n".join(summary), opaque=opaque, id=item_id)
        into.items.append(thought)
    into.shown.append(shown)


def _texts(fields: Fields, key: str, kind: str) -> list[str]:
    texts = []
    for part in fields.objects(key):
        if part.take("type") not in (kind, "text"):
            not_one_of(part.at("type"), part.value.get("type"), (kind,))
        texts.append(part.required("text", longest=MAX_INPUT_TEXT_CHARS))
        part.done()
    return texts


def _opened(encrypted: str, shown: dict[str, Any], fields: Fields, into: Input) -> dict[str, Any]:
    """What we sealed is opened; what another provider sealed is kept for it, as it came."""
    if not is_sealed(encrypted):
        return {_RESPONSES_KEY: dict(shown)}
    return cast(dict[str, Any], _require_content(REASONING_PURPOSE, encrypted, fields, into))


def _require_content(purpose: str, encrypted: str, fields: Fields, into: Input) -> Any:
    content = None if into.sealed is None else into.sealed.get(purpose, encrypted)
    if content is None:
        refuse(str(BrokenSealError()), fields.at("encrypted_content"), "invalid_encrypted_content")
    return content


def _compaction(fields: Fields, into: Input) -> None:
    item_id = fields.text("id") or new_id("cmp")
    encrypted = fields.required("encrypted_content", longest=4 * MAX_INPUT_TEXT_CHARS)
    into.items += _require_content(COMPACTION_PURPOSE, encrypted, fields, into)
    into.shown.append({"id": item_id, "type": "compaction", "encrypted_content": encrypted})


def _mcp_list_tools(fields: Fields, into: Input) -> None:
    label = fields.required("server_label", may_be_empty=False)
    if not fields.has("tools"):
        fields.missing("tools")
    for tool in fields.objects("tools"):
        tool.required("name", may_be_empty=False)
        if tool.mapping("input_schema") is None:
            tool.missing("input_schema")
        tool.text("description")
        tool.mapping("annotations")
        tool.done()
    error = fields.text("error")
    shown = {**fields.value, "id": fields.text("id") or new_id("mcpl")}
    if error is None:
        into.listed[label] = shown
    into.shown.append(shown)


def _mcp_call(fields: Fields, into: Input) -> None:
    """A call that was made in an earlier response: the model sees it as the call and the output that it was."""
    approval = fields.text("approval_request_id")  # a client that keeps no ids of items still says what it approved
    item_id = fields.text("id") or (mcp_id_of(approval) if approval else new_id("mcp"))
    call = _called(fields, into, item_id)
    status = fields.choice("status", _MCP_STATUSES)
    output, error = fields.text("output"), fields.take("error")
    told = output if error is None else _words(error)
    if told is None:
        told, error = _UNKNOWN if status == "completed" else "This call came to no result.", True
    content = (TextContent(text=told),)
    into.items += [
        call,
        FunctionCallOutput(call_id=call.call_id, content=content, is_error=error is not None, id=f"{item_id}_out"),
    ]
    into.shown.append({**fields.value, "id": item_id})


def _mcp_approval_request(fields: Fields, into: Input) -> None:
    call = _called(fields, into, fields.required("id", may_be_empty=False))
    into.items.append(call)
    into.waiting.append(call)
    into.shown.append(dict(fields.value))


def _called(fields: Fields, into: Input, item_id: str) -> FunctionCall:
    label = fields.required("server_label", may_be_empty=False)
    tool = fields.required("name", may_be_empty=False)
    name = into.tool_name(label, tool)
    arguments = fields.required("arguments")
    into.places[call_id_of(item_id)] = (label, tool)
    return FunctionCall(call_id=call_id_of(item_id), name=name, arguments=arguments, id=item_id_of(item_id))


def _words(error: Any) -> str:
    """The error of a call in words, from each of the forms that clients have for it."""
    if isinstance(error, str):
        return error
    if isinstance(error, dict):
        told = error.get("message", error.get("content"))
        if isinstance(told, list):
            return "\n".join(str(part.get("text", "")) for part in told if isinstance(part, dict))
        if isinstance(told, str):
            return told
    return orjson.dumps(error).decode()


def _mcp_approval_response(fields: Fields, into: Input) -> None:
    request_id = fields.required("approval_request_id", may_be_empty=False)
    approve = fields.flag("approve")
    if approve is None:
        fields.missing("approve")
    reason = fields.text("reason", longest=MAX_INPUT_TEXT_CHARS)
    param = fields.at("approval_request_id")
    place = len(into.items)
    into.approvals.append(
        ApprovalAnswer(request_id=request_id, approve=approve, reason=reason, param=param, place=place)
    )
    item_id = fields.text("id") or new_id("mcpa")
    into.shown.append({**fields.value, "id": item_id})


ITEM_READERS: dict[str, Callable[[Fields, Input], None]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "custom_tool_call": _custom_tool_call,
    "custom_tool_call_output": _function_call_output,
    "tool_search_call": _tool_search_call,
    "tool_search_output": _tool_search_output,
    "reasoning": _reasoning,
    "compaction": _compaction,
    "mcp_list_tools": _mcp_list_tools,
    "mcp_call": _mcp_call,
    "mcp_approval_request": _mcp_approval_request,
    "mcp_approval_response": _mcp_approval_response,
}
