"""Token counts of requests, and compaction of short conversations, which asks no model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.wire.open_responses_contract import contract_problems

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GO = {"role": "user", "content": "Go"}
SUMS = [{"type": "mcp", "server_label": "sums"}]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_compacted_conversation_continues_with_all_of_its_content(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("A blue one."), say("Blue."), say("Blue."))) as gateway:
        client = await gateway.openai_client()
        first = await client.responses.create(model=MODEL, input="I bought a secret bicycle.")
        folded = await client.responses.compact(model=MODEL, previous_response_id=first.id, input="Which colour?")
        assert not contract_problems("CompactResource", folded.to_dict(warnings=False))
        *_, item = folded.output
        assert item.type == "compaction"
        output: Any = folded.to_dict(warnings=False)["output"]
        texts = [message["content"][0]["text"] for message in output[:-1]]
        assert texts == ["I bought a secret bicycle.", "Which colour?"]
        assert "bicycle" not in item.encrypted_content
        window: Any = [item.model_dump(exclude_none=True), {"role": "user", "content": "Say it."}]
        response = await client.responses.create(model=MODEL, input=window)
        assert response.output_text == "Blue."
        contents = [message["content"] for message in gateway.model_requests[-1]["messages"]]
        assert contents == ["I bought a secret bicycle.", "A blue one.", "Which colour?", "Say it."]
        # All of the output says the same once, whatever the client puts before it.
        whole: Any = [
            {"role": "developer", "content": "Be brief."},
            *output,
            window[1],
        ]
        await client.responses.create(model=MODEL, input=whole)
        assert [message["content"] for message in gateway.model_requests[-1]["messages"]] == ["Be brief.", *contents]
        window[0]["encrypted_content"] = item.encrypted_content[:-8] + "AAAAAAA="
        with pytest.raises(openai.BadRequestError) as changed:
            await client.responses.create(model=MODEL, input=window)
        assert changed.value.param == "input[0].encrypted_content"


@pytest.mark.proves("D-25")
@async_test(30)
async def test_calls_that_wait_for_a_client_still_wait_after_compaction(tmp_path: Path) -> None:
    book = {"type": "function", "name": "book", "parameters": {"type": "object", "properties": {}}}
    model = ScriptedModel([call("add", a=1, b=2), call("book")], say("Added and booked."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, first = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": [book]})
        assert first["status"] == "requires_action"
        body = {"model": MODEL, "previous_response_id": first["id"], "service_tier": "auto"}
        _, folded = await gateway.send("POST", "/v1/responses/compact", body)
        output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "Booked."}
        window = [*folded["output"], output]
        status, answer = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": window, "tools": [book]})
        assert (status, answer["status"]) == (200, "completed"), answer
        assert len(server.calls()) == 1
    contents = [message["content"] for message in gateway.model_requests[-1]["messages"] if message["role"] == "tool"]
    assert sorted(contents) == ["3", "Booked."]


@pytest.mark.proves("D-25", "D-26")
@pytest.mark.parametrize("compacts", ["the input", "the response"])
@async_test(30)
async def test_an_approval_request_can_be_answered_after_compaction(tmp_path: Path, compacts: str) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(call("add", a=1, b=2), say("3.")), mcp={"sums": server}) as gateway,
    ):
        send = _sender(gateway)
        first = await send("/v1/responses", input=[GO], tools=SUMS)
        old = {"input": [GO, *first["output"]]} if compacts == "the input" else {"previous_response_id": first["id"]}
        folded = await send("/v1/responses/compact", **old)
        yes = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
        await send("/v1/responses", input=[*folded["output"], yes], tools=SUMS)
        assert gateway.model_requests[-1]["messages"][-1]["content"] == "3"
        assert len(server.calls()) == 1


@pytest.mark.proves("D-25", "D-26")
@pytest.mark.parametrize("is_used", [False, True])
@async_test(30)
async def test_a_history_with_an_approval_request_can_be_compacted_and_continued(tmp_path: Path, is_used: bool) -> None:
    model = ScriptedModel(call("add", a=1, b=2), *([say("3.")] if is_used else []), say("I see."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        send = _sender(gateway)
        first = await send("/v1/responses", input=[GO], tools=SUMS)
        if is_used:
            yes = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
            await send("/v1/responses", input=[yes], tools=SUMS, previous_response_id=first["id"])
        folded = await send("/v1/responses/compact", input=[GO, *first["output"]])
        await send("/v1/responses", input=[*folded["output"], {"role": "user", "content": "And?"}], tools=SUMS)
        *_, tool_message, _ = gateway.model_requests[-1]["messages"]
        assert tool_message["content"] == (
            "3" if is_used else "Error: The person went on without approving this call; it was not run."
        )
        assert len(server.calls()) == is_used


def _sender(gateway: RunningGateway) -> Callable[..., Awaitable[Any]]:
    """Send a body that must be accepted, and return the answer."""

    async def send(path: str, **body: Any) -> Any:
        status, answer = await gateway.send("POST", path, {"model": MODEL, **body})
        assert status == 200, answer
        return answer

    return send


@pytest.mark.parametrize("shared", [False, True])
@async_test(30)
async def test_a_compacted_conversation_can_be_continued_by_another_gateway_process(
    tmp_path: Path, shared: bool
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    settings: dict[str, Any] = {"environ": {"SEAL": "s" * 32}, "seal_key": "${SEAL}"} if shared else {}
    async with run_gateway(tmp_path / "one", **settings) as gateway:
        folded = await (await gateway.openai_client()).responses.compact(model=MODEL, input="I bought a bicycle.")
    window: Any = [folded.output[-1].model_dump(exclude_none=True), {"role": "user", "content": "And?"}]
    other = tmp_path / ("two" if shared else "one")
    async with run_gateway(other, ScriptedModel(say("Blue.")), **settings) as gateway:
        await (await gateway.openai_client()).responses.create(model=MODEL, input=window)
        assert gateway.model_requests[0]["messages"][0]["content"] == "I bought a bicycle."
    assert _readable_by_others(tmp_path) == ([] if shared else [False])


def _readable_by_others(folder: Path) -> list[bool]:
    """For each key file, whether other users may read it."""
    return [bool(key.stat().st_mode & 0o077) for key in folder.rglob("*.key")]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_size_of_an_input_is_estimated_with_its_tools_and_its_past(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, run_gateway(tmp_path, ScriptedModel(say("x" * 4_000))) as gateway:
        client = await gateway.openai_client()

        async def count(**parameters: Any) -> int:
            counted = await client.responses.input_tokens.count(model=MODEL, **parameters)
            assert counted.object == "response.input_tokens"
            return counted.input_tokens

        short, long = await count(input="Hi"), await count(input="word " * 1_000)
        assert 1 <= short < 10
        assert 1_000 < long < 1_500
        function = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}
        assert await count(input="Hi", tools=[function]) > short
        image = {"type": "input_image", "image_url": "https://example.com/cat.png"}
        assert await count(input=[{"role": "user", "content": [image]}]) > 100
        first = await client.responses.create(model=MODEL, input="Say much")
        assert await count(input="Hi", previous_response_id=first.id) > 1_000
        assert len(gateway.model_requests) == 1
        assert not server.requests
