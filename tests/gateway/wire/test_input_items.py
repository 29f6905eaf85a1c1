"""Each form of input that clients send reaches the engine and can be listed again; a wrong one is named by its path."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from gateway.wire.open_responses_contract import contract_problems

from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.request.input import list_references
from holodeck.lib.errors import BadRequestError
from holodeck.models.items import (
    AudioContent,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Item,
    Message,
    Reasoning,
    TextContent,
)


def read(*items: Any, **options: Any) -> Any:
    return read_request({"model": "m", "input": list(items)}, **options).input


def user(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


def text(value: str) -> TextContent:
    return TextContent(text=value)


PNG = "data:image/png;base64,aGk="
FORMS: list[tuple[str, Any, list[Item]]] = [
    ("easy", {"role": "user", "content": "hi"}, [Message(role="user", content=(text("hi"),))]),
    ("system", {"role": "system", "content": "be kind"}, [Message(role="system", content=(text("be kind"),))]),
    (
        "developer parts",
        {"role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        [Message(role="developer", content=(text("d"),))],
    ),
    ("assistant", {"role": "assistant", "content": "yes"}, [Message(role="assistant", content=(text("yes"),))]),
    (
        "output message",
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "yes", "annotations": [], "logprobs": [], "parsed": {"x": 1}},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        [Message(role="assistant", content=(text("yes"), text("no")), id="msg_1")],
    ),
    (
        "image",
        user({"type": "input_image", "image_url": "https://x.example/a.png", "detail": "low"}),
        [Message(role="user", content=(ImageLink(url="https://x.example/a.png", detail="low"),))],
    ),
    (
        "data image",
        user({"type": "input_image", "image_url": PNG, "file_id": None}),
        [Message(role="user", content=(ImageLink(url=PNG),))],
    ),
    (
        "file data",
        user({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}),
        [Message(role="user", content=(FileData(url="data:application/pdf;base64,aGk=", filename="a.pdf"),))],
    ),
    (
        "bare file data",
        user({"type": "input_file", "filename": "a.pdf", "file_data": "aGk="}),
        [Message(role="user", content=(FileData(url="data:application/pdf;base64,aGk=", filename="a.pdf"),))],
    ),
    (
        "file url",
        user({"type": "input_file", "file_url": "https://x.example/a.pdf"}),
        [Message(role="user", content=(FileData(url="https://x.example/a.pdf"),))],
    ),
    (
        "audio",
        user({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}}),
        [Message(role="user", content=(AudioContent(data="aGk=", mime_type="audio/mpeg"),))],
    ),
    (
        "call",
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
        [FunctionCall(call_id="c", name="f", arguments="{}", id="fc_1")],
    ),
    (
        "output",
        {"type": "function_call_output", "call_id": "c", "output": "done", "id": None},
        [FunctionCallOutput(call_id="c", content=(text("done"),))],
    ),
    (
        "output parts",
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": PNG}],
        },
        [FunctionCallOutput(call_id="c", content=(text("t"), ImageLink(url=PNG)))],
    ),
    (
        "reasoning",
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}],
        },
        [Reasoning(text="t", summary="s", id="rs_1")],
    ),
    (
        "mcp_call",
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "s",
            "name": "get.weather",
            "arguments": "{}",
            "output": "sunny",
        },
        [
            FunctionCall(call_id="call_1", name="get-weather", arguments="{}", id="fc_1"),
            FunctionCallOutput(call_id="call_1", content=(text("sunny"),), id="mcp_1_out"),
        ],
    ),
    (
        "failed mcp_call",
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "s",
            "name": "f",
            "arguments": "{}",
            "status": "failed",
            "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "broken"}]},
        },
        [
            FunctionCall(call_id="call_1", name="f", arguments="{}", id="fc_1"),
            FunctionCallOutput(call_id="call_1", content=(text("broken"),), is_error=True, id="mcp_1_out"),
        ],
    ),
    ("mcp_list_tools", {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}, []),
    (
        "mcp_approval_request",
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "f", "arguments": "{}"},
        [FunctionCall(call_id="call_1", name="f", arguments="{}", id="fc_1")],
    ),
    ("mcp_approval_response", {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}, []),
]


def without_id(item: Item) -> dict[str, Any]:
    return {key: getattr(item, key) for key in (each.name for each in fields(item)) if key != "id"}


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("entry", "expected"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])
def test_each_form_of_input_reaches_the_engine_and_can_be_listed(entry: Any, expected: list[Item]) -> None:
    found = read(entry)
    assert [without_id(item) for item in found.items] == [without_id(item) for item in expected]
    for item, wanted in zip(found.items, expected, strict=True):
        assert not wanted.id or item.id == wanted.id
    [shown] = found.wire_items
    assert shown["id"]
    if not shown["type"].startswith("mcp_") and "input_audio" not in str(shown):  # the contract has neither
        assert contract_problems("ItemField", shown) == []
    assert [without_id(item) for item in read(shown).items] == [without_id(item) for item in expected], (
        "it can be sent again"
    )


def test_a_string_is_a_message_of_the_user() -> None:
    found = read_request({"model": "m", "input": "hi"}).input
    assert [without_id(item) for item in found.items] == [without_id(Message(role="user", content=(text("hi"),)))]
    assert contract_problems("ItemField", found.wire_items[0]) == []


def test_an_item_reference_is_replaced_by_the_stored_item() -> None:
    stored = {
        "msg_7": {"id": "msg_7", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    }
    body = [{"type": "item_reference", "id": "msg_7"}, {"id": "msg_7"}]
    assert list_references(body) == ["msg_7", "msg_7"]
    found = read(*body, find_item=stored.get)
    assert [item.id for item in found.items] == ["msg_7", "msg_7"]
    with pytest.raises(BadRequestError, match="'msg_8' not found") as caught:
        read({"type": "item_reference", "id": "msg_8"}, find_item=stored.get)
    assert (caught.value.param, caught.value.code) == ("input[0].id", "item_not_found")


def test_reasoning_that_another_provider_encrypted_is_passed_on_unchanged() -> None:
    [item] = read({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}).items
    assert item.opaque == {"responses": {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}}


WRONG: list[tuple[Any, str, str]] = [
    (42, "input", "invalid_type"),
    ([7], "input[0]", "invalid_type"),
    ([{}], "input[0].type", "missing_required_parameter"),
    ([{"type": "acme:thing"}], "input[0].type", "invalid_value"),
    ([{"type": 3}], "input[0].type", "invalid_value"),
    ([{"role": "robot", "content": "x"}], "input[0].role", "invalid_value"),
    ([{"role": "user"}], "input[0].content", "missing_required_parameter"),
    ([{"role": "user", "content": 5}], "input[0].content", "invalid_type"),
    ([{"role": "user", "content": "x", "colour": "red"}], "input[0].colour", "unknown_parameter"),
    ([user({"type": "input_text"})], "input[0].content[0].text", "missing_required_parameter"),
    ([user({"type": "input_text", "text": 5})], "input[0].content[0].text", "invalid_type"),
    ([user({"type": "input_video", "video_url": "x"})], "input[0].content[0].type", "invalid_value"),
    ([user({"type": "input_image"})], "input[0].content[0].image_url", "missing_required_parameter"),
    ([user({"type": "input_image", "image_url": "ftp://x"})], "input[0].content[0].image_url", "invalid_url"),
    ([user({"type": "input_image", "file_id": "f"})], "input[0].content[0].file_id", "unsupported_parameter"),
    (
        [user({"type": "input_image", "image_url": PNG, "detail": "huge"})],
        "input[0].content[0].detail",
        "invalid_value",
    ),
    ([user({"type": "input_file", "file_id": "f"})], "input[0].content[0].file_id", "unsupported_parameter"),
    ([user({"type": "input_file"})], "input[0].content[0].file_data", "missing_required_parameter"),
    (
        ["x", {"role": "user", "content": "y"}],
        "input[0]",
        "invalid_type",
    ),
    (
        [{"role": "user", "content": "a"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}],
        "input[1].arguments",
        "invalid_type",
    ),
    ([{"type": "function_call_output", "output": "x"}], "input[0].call_id", "missing_required_parameter"),
    ([{"type": "function_call_output", "call_id": "c"}], "input[0].output", "missing_required_parameter"),
    (
        [{"type": "function_call_output", "call_id": "c", "output": [{"type": "output_audio"}]}],
        "input[0].output[0].type",
        "invalid_value",
    ),
    ([{"type": "reasoning", "id": "r"}], "input[0].summary", "invalid_type"),
    ([{"type": "compaction", "encrypted_content": "x"}], "input[0].encrypted_content", "invalid_encrypted_content"),
    (
        [{"type": "mcp_approval_response", "approval_request_id": "m", "approve": "yes"}],
        "input[0].approve",
        "invalid_type",
    ),
    (
        [{"type": "mcp_call", "id": "m", "server_label": "s", "name": "f"}],
        "input[0].arguments",
        "missing_required_parameter",
    ),
    (
        [{"type": "mcp_list_tools", "server_label": "s", "tools": [{}]}],
        "input[0].tools[0].name",
        "missing_required_parameter",
    ),
    ([{"type": "item_reference", "id": "msg_x"}], "input[0].id", "item_not_found"),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("value", "param", "code"), WRONG, ids=[f"{param} {code}" for _, param, code in WRONG])
def test_wrong_input_is_named_by_its_path(value: Any, param: str, code: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_request({"model": "m", "input": value})
    assert (caught.value.param, caught.value.code) == (param, code)
