"""Items that are stored, sealed or compacted are read back unchanged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from async_tests import async_test
from gateway.wire.open_responses_contract import contract_problems
from gateway.wire.scripted_run import check_well_formed, open_sealed_items, play_run
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.gateway.continuation.pending_calls import check_answered, with_missing_outputs
from holodeck.gateway.sealing import BrokenSealError, SealKeys
from holodeck.gateway.wire.compaction_item import CompactionContent
from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.request.compact import build_compaction, read_compact_request
from holodeck.gateway.wire.request.input import read_input, read_stored_items
from holodeck.lib.errors import BadRequestError
from holodeck.models.items import (
    AudioContent,
    BinaryContent,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageContent,
    ImageLink,
    Item,
    Message,
    Reasoning,
    TextContent,
    Usage,
    decode_items,
    encode_items,
    text_message,
)
from holodeck.testing import ScriptedModel, say, think

KEY = b"k" * 32
SEAL = SealKeys([KEY]).for_caller("a")

text = st.text(st.characters(codec="utf-8"), max_size=20)
maybe = st.none() | text
json = st.recursive(st.none() | st.booleans() | text, lambda inner: st.lists(inner) | st.dictionaries(text, inner))
parts = st.one_of(
    st.builds(TextContent, text=text, uri=maybe, mime_type=maybe),
    st.builds(ImageContent, data=text, mime_type=text),
    st.builds(AudioContent, data=text, mime_type=text),
    st.builds(
        BinaryContent,
        data=st.binary(max_size=40),
        mime_type=maybe,
        uri=maybe,
        name=maybe,
        description=maybe,
        is_link=st.booleans(),
    ),
    st.builds(ImageLink, url=text, detail=st.sampled_from(["auto", "low", "high"])),
    st.builds(FileData, url=text, filename=maybe),
)
contents = st.lists(parts, max_size=3).map(tuple)
items = st.one_of(
    st.builds(Message, role=st.sampled_from(["system", "developer", "user", "assistant"]), content=contents, id=text),
    st.builds(FunctionCall, call_id=text, name=text, arguments=text, id=text),
    st.builds(FunctionCallOutput, call_id=text, content=contents, is_error=st.booleans(), id=text),
    st.builds(Reasoning, text=text, summary=text, opaque=st.dictionaries(text, json, max_size=3), id=text),
)


@pytest.mark.proves("D-28")
@settings(max_examples=100, deadline=None)
@given(st.lists(items, max_size=5).map(tuple))
def test_items_come_back_from_storage_as_they_were(conversation: tuple[Item, ...]) -> None:
    assert decode_items(encode_items(conversation)) == conversation


@settings(max_examples=25, deadline=None)
@given(st.lists(items, max_size=5).map(tuple))
def test_a_compacted_conversation_is_restored_by_the_gateway_that_compacted_it(conversation: tuple[Item, ...]) -> None:
    resource = build_compaction(CompactionContent(items=conversation), seal=SEAL, created_at=1.0, usage=Usage())
    assert contract_problems("CompactResource", resource) == []
    item = resource["output"][-1]
    sealed = asyncio.run(open_sealed_items([item], SEAL))
    found = read_request({"model": "m", "input": [item]}, sealed=sealed).input
    assert tuple(found.items) == conversation


@pytest.mark.parametrize("content", [b"", b"secret", b"secret" * 100_000])
def test_sealed_content_opens_only_whole_for_its_caller_its_purpose_and_with_its_key(content: bytes) -> None:
    sealed = SEAL.seal("compaction", content)
    assert "secret" not in sealed
    assert SEAL.open("compaction", sealed) == content
    for other in (SealKeys([b"other" * 8]).for_caller("a"), SealKeys([KEY]).for_caller("b")):
        with pytest.raises(BrokenSealError):
            other.open("compaction", sealed)
    with pytest.raises(BrokenSealError):
        SEAL.open("reasoning", sealed)
    for position in range(4, 60):
        changed = sealed[:position] + ("A" if sealed[position] != "A" else "B") + sealed[position + 1 :]
        for text in (changed, sealed[:position], sealed[:position] + "é", sealed + "AAAA"):
            with pytest.raises(BrokenSealError):
                SEAL.open("compaction", text)


def test_the_first_key_seals_and_all_of_them_open() -> None:
    old, new = SealKeys([KEY]), SealKeys([b"n" * 32, KEY])
    assert new.for_caller("a").open("reasoning", old.for_caller("a").seal("reasoning", b"x")) == b"x"
    with pytest.raises(BrokenSealError):
        old.for_caller("a").open("reasoning", new.for_caller("a").seal("reasoning", b"x"))


def test_a_compact_request_is_checked_like_any_other() -> None:
    request = read_compact_request({"model": "m", "input": "hi", "instructions": "short"})
    assert (request.model, request.instructions, len(request.input.items)) == ("m", "short", 1)
    for body, param in (
        ({"model": "m"}, "input"),
        ({"model": "m", "input": "x", "y": 1}, "y"),
    ):
        with pytest.raises(BadRequestError) as caught:
            read_compact_request(body)
        assert caught.value.param == param


@async_test
async def test_encrypted_reasoning_travels_through_a_client_that_stores_nothing() -> None:
    body: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    model = ScriptedModel([think("hm", signature="s3cret"), say("yes")], say("again"))
    first = await play_run(model, body, seal=SEAL)
    check_well_formed(first)
    reasoning = first.resource["output"][0]
    assert "s3cret" not in str(first.events)
    again = [{"role": "user", "content": "hi"}, *first.resource["output"], {"role": "user", "content": "and?"}]
    await play_run(model, {**body, "input": again}, seal=SEAL)
    [restored] = [item for item in model.requests[1].items if isinstance(item, Reasoning)]
    assert restored.opaque == {"signature": "s3cret"}
    assert (restored.text, restored.id) == ("hm", reasoning["id"])
    plain = await play_run(ScriptedModel([think("hm", signature="s3cret"), say("yes")]), seal=SEAL)
    assert "encrypted_content" not in plain.resource["output"][0], "only on request"


@pytest.mark.proves("D-28")
def test_a_response_that_ended_early_can_be_continued() -> None:
    ours = FunctionCall(call_id="a", name="add", arguments="{}", id="fc_a")
    theirs = FunctionCall(call_id="b", name="ask_client", arguments="{}", id="fc_b")
    waiting = FunctionCall(call_id="c", name="sub", arguments="{}", id="fc_c")
    context = with_missing_outputs(
        (ours, theirs, waiting), pending=[waiting], is_client_call=lambda call: call.name == "ask_client"
    )
    assert [item.type for item in context] == [
        "function_call",
        "function_call_output",
        "function_call",
        "function_call",
    ]
    with pytest.raises(BadRequestError, match="No tool output found for function call b"):
        check_answered((*context, text_message("user", "hi")), pending=[waiting])
    answer = FunctionCallOutput(call_id="b", content=(TextContent(text="yes"),))
    check_answered((*context, answer), pending=[waiting])
    with pytest.raises(BadRequestError, match="No tool call found"):
        check_answered((FunctionCallOutput(call_id="z", content=()),), pending=[])


def test_a_conversation_is_read_as_it_was_sent() -> None:
    sent = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, {"type": "input_text", "text": ""}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "A cat."}], "phase": "final_answer"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
    ]
    first = read_input(sent)
    stored = read_stored_items(first.wire_items)
    assert encode_items(stored.items) == encode_items(first.items)
    assert stored.wire_items == first.wire_items
