"""The context of a request has a limit in bytes, whether it is stored or held by a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from websockets.asyncio.client import ClientConnection, connect

from holodeck.gateway.endpoints.conversations import MAX_PAGE_BYTES
from holodeck.testing import ScriptedModel, say, wait

MOST = 4096
LIMITS = {"context_bytes": MOST, "drain_seconds": 0}
TEXT = "x" * 1000


def _run_gateway(folder: Path) -> Any:
    return run_gateway(folder, ScriptedModel(lambda _: say("Yes.")), limits=LIMITS)


def _user_message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def _check_refused(answer: tuple[int, Any], param: str) -> None:
    status, error = answer
    assert (status, error["error"]["code"], error["error"]["param"]) == (400, "context_too_long", param)
    assert f"{MOST} bytes" in error["error"]["message"]


async def _conversation(gateway: RunningGateway, items: int) -> tuple[str, list[str]]:
    _, made = await gateway.send("POST", "/v1/conversations", {})
    path, ids = f"/v1/conversations/{made['id']}/items", []
    for _ in range(items):
        status, page = await gateway.send("POST", path, {"items": [_user_message(TEXT)]})
        assert status == 200, page
        ids.append(page["data"][0]["id"])
    return made["id"], ids


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_conversation_that_is_too_large_is_refused_and_can_still_be_read(tmp_path: Path) -> None:
    async with _run_gateway(tmp_path) as gateway:
        conversation, ids = await _conversation(gateway, 6)
        path = f"/v1/conversations/{conversation}/items"
        _check_refused(await gateway.send("POST", "/v1/responses", _body(conversation=conversation)), "conversation")
        assert not gateway.model_requests
        _, page = await gateway.send("GET", f"{path}?order=asc&limit=4")
        assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[:4], True)
        _, page = await gateway.send("GET", f"{path}?order=asc&after={ids[3]}")
        assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[4:], False)
        _, page = await gateway.send("GET", f"{path}?after={ids[0]}")
        assert (page["data"], page["first_id"], page["has_more"]) == ([], None, False)
        status, error = await gateway.send("GET", f"{path}?after=msg_nobody")
        assert (status, error["error"]["code"]) == (400, "item_not_found")
        for item in ids[:3]:
            assert (await gateway.send("DELETE", f"{path}/{item}"))[0] == 200
        assert (await gateway.send("POST", "/v1/responses", _body(conversation=conversation)))[0] == 200


def _body(text: str = "Go", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": text, **more}


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_chain_of_responses_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with _run_gateway(tmp_path) as gateway:
        before: dict[str, str] = {}
        for _ in range(4):
            status, made = await gateway.send("POST", "/v1/responses", _body(TEXT, **before))
            assert status == 200, made
            before = {"previous_response_id": made["id"]}
        request_count = len(gateway.model_requests)
        for path in ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"):
            _check_refused(await gateway.send("POST", path, _body(**before)), "previous_response_id")
        assert len(gateway.model_requests) == request_count


@pytest.mark.proves("D-28")
@async_test(30)
async def test_referenced_items_over_the_context_limit_are_refused(tmp_path: Path) -> None:
    async with _run_gateway(tmp_path) as gateway:
        _, ids = await _conversation(gateway, 6)
        references = [{"type": "item_reference", "id": item} for item in ids]
        body = {"model": MODEL, "input": [_user_message("Go"), *references]}
        _check_refused(await gateway.send("POST", "/v1/responses", body), "input")
        body["input"] = [_user_message("Go"), *references[:3]]
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 200


async def _turn(socket: ClientConnection, **body: Any) -> dict[str, Any]:
    """The last event of a response over a socket."""
    await socket.send(orjson.dumps({"type": "response.create", "model": MODEL, "store": False, **body}).decode())
    while True:
        event: dict[str, Any] = orjson.loads(await socket.recv())
        if event["type"] in ("response.completed", "error"):
            return event


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_context_stored_for_a_socket_has_a_limit(tmp_path: Path) -> None:
    async with (
        _run_gateway(tmp_path) as gateway,
        connect(gateway.url.replace("http", "ws", 1) + "/v1/responses") as socket,
    ):
        before: dict[str, str] = {}
        for _ in range(4):
            ended = await _turn(socket, input=TEXT, **before)
            assert ended["type"] == "response.completed"
            before = {"previous_response_id": ended["response"]["id"]}
        refused = await _turn(socket, input="Go", **before)
        _check_refused((refused["status"], refused), "previous_response_id")
        assert (await _turn(socket, input="Anew"))["type"] == "response.completed"


@pytest.mark.proves("D-25")
@async_test(30)
async def test_queued_messages_on_a_socket_have_a_limit(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("One.")], say("Two."))
    limits = {"body_bytes": MOST, "drain_seconds": 0}
    async with run_gateway(tmp_path, model, limits=limits) as gateway:
        async with connect(gateway.url.replace("http", "ws", 1) + "/v1/responses") as socket:
            message = orjson.dumps({"type": "response.create", "model": MODEL, "input": "x" * 3000}).decode()
            await socket.send(message)
            while not gateway.model_requests:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
            await socket.send(message)
            await socket.send(message)
            events: list[dict[str, Any]] = []
            while not events or events[-1]["type"] != "error":
                events.append(orjson.loads(await socket.recv()))
            assert (events[-1]["status"], events[-1]["error"]["code"]) == (429, "too_many_messages")
            go.set()
            while [event["type"] for event in events].count("response.completed") < 2:
                events.append(orjson.loads(await socket.recv()))
        assert len(gateway.model_requests) == 2


@pytest.mark.proves("D-28")
@async_test(60)
async def test_a_page_of_large_items_ends_early_with_has_more(tmp_path: Path) -> None:
    size = MAX_PAGE_BYTES // 4 + 1
    async with run_gateway(tmp_path) as gateway:
        client = await gateway.openai_client()
        conversation = (await client.conversations.create()).id
        ids = []
        for _ in range(6):
            added = await client.conversations.items.create(
                conversation, items=[{"type": "message", "role": "user", "content": "x" * size}]
            )
            ids.append(added.data[0].id)
        _, page = await gateway.send("GET", f"/v1/conversations/{conversation}/items?order=asc")
        assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[:3], True)
        assert [item.id async for item in client.conversations.items.list(conversation, order="asc")] == ids
