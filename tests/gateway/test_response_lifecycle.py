"""Responses are stored and can be continued however they end; only background runs outlive their client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.lib.limits import MAX_CONTEXT_DEPTH
from holodeck.storage.conversations import Conversation, ConversationItem
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, finish, say, wait
from holodeck.testing.model.script import Turn, cut, status


async def _continue_response(gateway: RunningGateway, previous: str) -> list[Any]:
    """Continue a response and return the contents of the messages that the model gets."""
    body = {"model": MODEL, "input": "And then?", "previous_response_id": previous}
    code, answer = await gateway.send("POST", "/v1/responses", body)
    assert code == 200, answer
    return [message["content"] for message in gateway.model_requests[-1]["messages"]]


async def _wait_ended(gateway: RunningGateway, response_id: str) -> dict[str, Any]:
    """Wait until a response has ended and return it."""
    await gateway.stream(f"/v1/responses/{response_id}?stream=true")
    _, response = await gateway.send("GET", f"/v1/responses/{response_id}")
    assert isinstance(response, dict)
    return response


@pytest.mark.proves("D-28")
@async_test(30)
async def test_every_response_can_be_continued_however_it_ended(tmp_path: Path) -> None:
    turns: dict[str, list[Turn]] = {
        "streamed": [say("One.")],
        "looped": [call("add", a=1, b=2), say("Three.")],
        "incomplete": [[say("Cut sh"), finish("length")]],
        "background": [say("Later.")],
    }
    model = ScriptedModel(*[turn for each in turns.values() for turn in (*each, say("Then this."))])
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        body = {"model": MODEL, "input": "First"}
        events = await gateway.stream("/v1/responses", {**body, "stream": True})
        assert await _continue_response(gateway, events[-1]["response"]["id"]) == ["First", "One.", "And then?"]
        _, looped = await gateway.send("POST", "/v1/responses", body)
        assert await _continue_response(gateway, looped["id"]) == ["First", None, "3", "Three.", "And then?"]
        _, short = await gateway.send("POST", "/v1/responses", body)
        assert (short["status"], short["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert await _continue_response(gateway, short["id"]) == ["First", "Cut sh", "And then?"]
        _, queued = await gateway.send("POST", "/v1/responses", {**body, "background": True})
        assert (await _wait_ended(gateway, queued["id"]))["status"] == "completed"
        assert await _continue_response(gateway, queued["id"]) == ["First", "Later.", "And then?"]


@pytest.mark.proves("D-28", "D-31")
@async_test(30)
async def test_a_failed_response_is_stored_and_its_error_says_not_to_retry(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), status(404), say("Better."), [say("Hal"), cut()], say("Whole."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client(max_retries=2)
        with pytest.raises(openai.InternalServerError) as failed:
            await client.responses.create(model=MODEL, input="First")
        assert len(server.calls("add")) == 1
        assert failed.value.response.headers["x-should-retry"] == "false"
        error: Any = failed.value.body
        assert error["type"] == "server_error"
        assert await _continue_response(gateway, error["response_id"]) == ["First", None, "3", "And then?"]
        events = await gateway.stream("/v1/responses", {"model": MODEL, "input": "Second", "stream": True})
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        broken = events[-1]["response"]
        assert (broken["status"], broken["error"]["code"]) == ("failed", "server_error")
        assert (await gateway.send("GET", f"/v1/responses/{broken['id']}"))[1] == broken
        assert (await _continue_response(gateway, broken["id"]))[-1] == "And then?"


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_client_that_closes_its_stream_cancels_the_run_and_the_call_at_the_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        session = await gateway.http_client()
        body = orjson.dumps({"model": MODEL, "input": "Wait", "stream": True})
        async with session.post("/v1/responses", data=body) as answer:
            first = orjson.loads((await answer.content.readuntil(b"\n\n")).split(b"data: ")[1])
            await server.received("tools/call", name="slow")
            answer.close()
        await server.received("notifications/cancelled")
        assert (await _wait_ended(gateway, first["response"]["id"]))["status"] == "cancelled"


@pytest.mark.proves("D-28", "D-23", "D-16")
@pytest.mark.parametrize("is_mixed", [True, False])
@async_test(30)
async def test_a_response_that_was_cancelled_during_a_call_can_be_continued(tmp_path: Path, is_mixed: bool) -> None:
    function = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
    turn = [call("slow", seconds=60), *([call("get_time")] if is_mixed else [])]
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(turn, say("Then this.")), mcp={"sums": server}) as gateway,
    ):
        body: dict[str, Any] = {"model": MODEL, "input": "Wait", "tools": [function], "stream": True}
        if is_mixed:
            _, first = await gateway.send("POST", "/v1/responses", {**body, "stream": False})
            noon = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "noon"}
            body |= {"previous_response_id": first["id"], "input": [noon]}
        async with (await gateway.http_client()).post("/v1/responses", data=orjson.dumps(body)) as answer:
            begun = orjson.loads((await answer.content.readuntil(b"\n\n")).split(b"data: ")[1])["response"]
            await server.received("tools/call", name="slow")
            answer.close()
        assert (await _wait_ended(gateway, begun["id"]))["status"] == "cancelled"
        contents = await _continue_response(gateway, begun["id"])
        assert (contents[0], contents[-1]) == ("Wait", "And then?")
        (output,) = [output for output in contents if "effect" in str(output)]
        assert "not known whether" in output
        assert len(server.calls()) == 1


@pytest.mark.proves("D-25", "D-28")
@pytest.mark.parametrize("text", ["Wait", "Wait " * 200_000], ids=["short", "a megabyte"])
@async_test(30)
async def test_a_client_that_disconnects_before_its_answer_cancels_the_run_and_its_items_are_stored(
    tmp_path: Path, text: str
) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("Well?"))
    async with FaultyMCPServer() as server:
        async with run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
            _, conversation = await gateway.send("POST", "/v1/conversations", {})
            body = {"model": MODEL, "input": text, "conversation": conversation["id"]}
            sending = asyncio.create_task(gateway.send("POST", "/v1/responses", body))
            await server.received("tools/call", name="slow")
            sending.cancel()
            await server.received("notifications/cancelled")
        async with run_gateway(tmp_path, model) as again:  # the first gateway and its runs have ended
            _, page = await again.send("GET", f"/v1/conversations/{conversation['id']}/items?order=asc")
            assert [item["type"] for item in page["data"]] == ["message", "mcp_call"]
            assert (await again.send("POST", "/v1/responses", {**body, "input": "And?"}))[0] == 200
            (output,) = [each["content"] for each in again.model_requests[-1]["messages"] if each["role"] == "tool"]
            assert "ended before" in output


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_background_run_continues_when_its_reader_disconnects(tmp_path: Path) -> None:
    go = asyncio.Event()
    held = wait(go)
    model = ScriptedModel([say("Slow"), held, say("ly.")])
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        stream = await client.responses.create(model=MODEL, input="Wait", background=True, stream=True)
        seen = []
        async for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        response_id = seen[0].response.id  # type: ignore[union-attr]
        assert (await client.responses.retrieve(response_id)).status == "in_progress"
        go.set()
        rest = [
            event
            async for event in await client.responses.retrieve(
                response_id, stream=True, starting_after=seen[-1].sequence_number
            )
        ]
        assert rest[0].sequence_number == seen[-1].sequence_number + 1
        assert rest[-1].type == "response.completed"
        assert (await client.responses.retrieve(response_id)).output_text == "Slowly."


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_background_run_is_cancelled_at_the_server_and_a_second_cancel_changes_nothing(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("Hello."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client()
        queued = await client.responses.create(model=MODEL, input="Wait", background=True)
        assert queued.status in ("queued", "in_progress")
        await server.received("tools/call", name="slow")
        assert (await client.responses.cancel(queued.id)).status == "cancelled"
        await server.received("notifications/cancelled")
        assert (await client.responses.cancel(queued.id)).status == "cancelled"
        plain = await client.responses.create(model=MODEL, input="Hi")
        with pytest.raises(openai.BadRequestError, match="background"):
            await client.responses.cancel(plain.id)


@pytest.mark.proves("D-25", "D-29")
@async_test(30)
async def test_a_referenced_item_is_found_only_for_its_caller(tmp_path: Path) -> None:
    model = ScriptedModel(say("A blue one."), say("Blue."))
    async with run_gateway(tmp_path, model, keys=["hd-alice", "hd-bob"]) as gateway:
        _, first = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Buy one"}, key="hd-alice")
        _, listed = await gateway.send("GET", f"/v1/responses/{first['id']}/input_items", key="hd-alice")
        referred = [{"type": "item_reference", "id": item["id"]} for item in (*listed["data"], *first["output"])]
        body = {"model": MODEL, "input": [*referred, {"role": "user", "content": "Which?"}]}
        status_of_bob, error = await gateway.send("POST", "/v1/responses", body, key="hd-bob")
        assert (status_of_bob, error["error"]["code"]) == (400, "item_not_found")
        assert (await gateway.send("POST", "/v1/responses", body, key="hd-alice"))[0] == 200
        contents = [message["content"] for message in gateway.model_requests[-1]["messages"]]
        assert contents == ["Buy one", "A blue one.", "Which?"]


@pytest.mark.proves("D-25", "D-29")
@async_test(30)
async def test_a_referenced_item_of_a_conversation_is_found_only_for_its_caller(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Green.")), keys=["hd-alice", "hd-bob"]) as gateway:
        items = [{"role": "user", "content": "The door is green."}]
        _, made = await gateway.send("POST", "/v1/conversations", {"items": items}, key="hd-alice")
        _, listed = await gateway.send("GET", f"/v1/conversations/{made['id']}/items", key="hd-alice")
        referred = {"type": "item_reference", "id": listed["data"][0]["id"]}
        body = {"model": MODEL, "input": [referred, {"role": "user", "content": "Which colour?"}]}
        status_of_bob, error = await gateway.send("POST", "/v1/responses", body, key="hd-bob")
        assert (status_of_bob, error["error"]["code"]) == (400, "item_not_found")
        assert (await gateway.send("POST", "/v1/responses", body, key="hd-alice"))[0] == 200
        contents = [message["content"] for message in gateway.model_requests[-1]["messages"]]
        assert contents == ["The door is green.", "Which colour?"]


@pytest.mark.proves("D-25", "D-28")
@async_test(60)
async def test_a_context_that_is_too_long_is_refused_and_not_truncated(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        store = gateway.service.store
        _, first = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hello"})
        record = await store.get(first["id"], "local")
        assert record is not None
        for number in range(MAX_CONTEXT_DEPTH):
            await store.save(replace(record, id=f"resp_{number}", previous_id=f"resp_{number - 1}" if number else None))
        at_most = {"model": MODEL, "input": "And?", "previous_response_id": f"resp_{MAX_CONTEXT_DEPTH - 1}"}
        assert (await gateway.send("POST", "/v1/responses/input_tokens", at_most))[0] == 200
        await store.save(replace(record, id="resp_more", previous_id=f"resp_{MAX_CONTEXT_DEPTH - 1}"))
        items = [ConversationItem(id=f"msg_{number}", data=b"{}") for number in range(10_001)]
        await store.create_conversation(
            Conversation(id="conv_1", caller_id="local", created_at=record.created_at), items
        )
        await store.save(replace(record, id="resp_left", conversation_id="conv_1"))
        for where in (
            {"previous_response_id": "resp_more"},
            {"conversation": "conv_1"},
            {"previous_response_id": "resp_left"},
        ):
            status, answer = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "And?", **where})
            assert (status, answer["error"]["code"]) == (400, "context_too_long")
            assert answer["error"]["param"] in where


@pytest.mark.proves("D-28")
@async_test(30)
async def test_an_unstored_response_cannot_be_retrieved_or_deleted_while_it_runs(tmp_path: Path) -> None:
    go = asyncio.Event()
    step = wait(go)
    async with run_gateway(tmp_path, ScriptedModel([say("Al"), step, say("most.")])) as gateway:
        http = await gateway.http_client()
        body = {"model": MODEL, "input": "Go", "stream": True, "store": False}
        async with http.post("/v1/responses", data=orjson.dumps(body)) as answer:
            await answer.content.readline()
            created = orjson.loads((await answer.content.readline()).removeprefix(b"data: "))
            path = f"/v1/responses/{created['response']['id']}"
            await step.reached.wait()
            for method, where in (("GET", path), ("GET", f"{path}?stream=true"), ("DELETE", path)):
                assert (await gateway.send(method, where))[0] == 404
            go.set()
            assert b"event: response.completed" in await answer.read()


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_chain_whose_first_response_was_deleted_is_continued_without_it(tmp_path: Path) -> None:
    book = {"type": "function", "name": "book", "parameters": {"type": "object", "properties": {}}}
    model = ScriptedModel([call("add", a=1, b=2), call("book")], say("3, and booked."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, first = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": [book]})
        answer = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "Booked."}
        body = {"model": MODEL, "input": [answer], "tools": [book], "previous_response_id": first["id"]}
        _, second = await gateway.send("POST", "/v1/responses", body)
        await gateway.send("DELETE", f"/v1/responses/{first['id']}")
        assert await _continue_response(gateway, second["id"]) == ["3, and booked.", "And then?"]
