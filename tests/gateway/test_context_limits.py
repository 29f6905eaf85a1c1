"""What comes before a request has a limit in bytes, wherever it is kept: nobody fills the gateway's memory with it."""

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


def _stand(folder: Path) -> Any:
    return run_gateway(folder, ScriptedModel(lambda _: say("Yes.")), limits=LIMITS)


def _said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def _check_refused(answer: tuple[int, Any], param: str) -> None:
    status, said = answer
    assert (status, said["error"]["code"], said["error"]["param"]) == (400, "context_too_long", param)
    assert f"{MOST} bytes" in said["error"]["message"]


async def _conversation(stand: RunningGateway, items: int) -> tuple[str, list[str]]:
    _, made = await stand.send("POST", "/v1/conversations", {})
    path, ids = f"/v1/conversations/{made['id']}/items", []
    for _ in range(items):
        status, page = await stand.send("POST", path, {"items": [_said(TEXT)]})
        assert status == 200, page
        ids.append(page["data"][0]["id"])
    return made["id"], ids


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_conversation_that_is_too_large_is_refused_and_can_still_be_read(tmp_path: Path) -> None:
    async with _stand(tmp_path) as stand:
        conversation, ids = await _conversation(stand, 6)
        path = f"/v1/conversations/{conversation}/items"
        _check_refused(await stand.send("POST", "/v1/responses", _body(conversation=conversation)), "conversation")
        assert not stand.model_requests
        _, page = await stand.send("GET", f"{path}?order=asc&limit=4")
        assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[:4], True)
        _, page = await stand.send("GET", f"{path}?order=asc&after={ids[3]}")
        assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[4:], False)
        _, page = await stand.send("GET", f"{path}?after={ids[0]}")
        assert (page["data"], page["first_id"], page["has_more"]) == ([], None, False)
        status, said = await stand.send("GET", f"{path}?after=msg_nobody")
        assert (status, said["error"]["code"]) == (400, "item_not_found")
        for item in ids[:3]:
            assert (await stand.send("DELETE", f"{path}/{item}"))[0] == 200
        assert (await stand.send("POST", "/v1/responses", _body(conversation=conversation)))[0] == 200


def _body(text: str = "Go", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": text, **more}


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_chain_of_responses_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with _stand(tmp_path) as stand:
        before: dict[str, str] = {}
        for _ in range(4):
            status, made = await stand.send("POST", "/v1/responses", _body(TEXT, **before))
            assert status == 200, made
            before = {"previous_response_id": made["id"]}
        asked = len(stand.model_requests)
        for path in ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"):
            _check_refused(await stand.send("POST", path, _body(**before)), "previous_response_id")
        assert len(stand.model_requests) == asked


@pytest.mark.proves("D-28")
@async_test(30)
async def test_items_that_a_request_only_refers_to_are_not_too_large_together(tmp_path: Path) -> None:
    async with _stand(tmp_path) as stand:
        _, ids = await _conversation(stand, 6)
        references = [{"type": "item_reference", "id": item} for item in ids]
        body = {"model": MODEL, "input": [_said("Go"), *references]}
        _check_refused(await stand.send("POST", "/v1/responses", body), "input")
        body["input"] = [_said("Go"), *references[:3]]
        assert (await stand.send("POST", "/v1/responses", body))[0] == 200


async def _turn(socket: ClientConnection, **body: Any) -> dict[str, Any]:
    """The last event of a response over a socket."""
    await socket.send(orjson.dumps({"type": "response.create", "model": MODEL, "store": False, **body}).decode())
    while True:
        event: dict[str, Any] = orjson.loads(await socket.recv())
        if event["type"] in ("response.completed", "error"):
            return event


@pytest.mark.proves("D-25")
@async_test(30)
async def test_what_a_socket_remembers_is_not_too_large(tmp_path: Path) -> None:
    async with _stand(tmp_path) as stand, connect(stand.url.replace("http", "ws", 1) + "/v1/responses") as socket:
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
async def test_messages_that_wait_on_a_socket_are_not_too_large_together(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("One.")], say("Two."))
    limits = {"body_bytes": MOST, "drain_seconds": 0}
    async with run_gateway(tmp_path, model, limits=limits) as stand:
        async with connect(stand.url.replace("http", "ws", 1) + "/v1/responses") as socket:
            message = orjson.dumps({"type": "response.create", "model": MODEL, "input": "x" * 3000}).decode()
            await socket.send(message)
            while not stand.model_requests:  # noqa: ASYNC110 - it is told nowhere
                await asyncio.sleep(0)
            await socket.send(message)
            await socket.send(message)
            heard: list[dict[str, Any]] = []
            while not heard or heard[-1]["type"] != "error":
                heard.append(orjson.loads(await socket.recv()))
            assert (heard[-1]["status"], heard[-1]["error"]["code"]) == (429, "too_many_messages")
            go.set()
            while [event["type"] for event in heard].count("response.completed") < 2:
                heard.append(orjson.loads(await socket.recv()))
        assert len(stand.model_requests) == 2


@pytest.mark.proves("D-28")
@async_test(60)
async def test_a_page_of_large_items_ends_early_and_says_that_there_is_more(tmp_path: Path) -> None:
    size = MAX_PAGE_BYTES // 4 + 1
    async with run_gateway(tmp_path) as stand:
        client = await stand.openai_client()
        conversation = (await client.conversations.create()).id
        ids = []
        for _ in range(6):
            added = await client.conversations.items.create(
                conversation, items=[{"type": "message", "role": "user", "content": "x" * size}]
            )
            ids.append(added.data[0].id)
        _, page = await stand.send("GET", f"/v1/conversations/{conversation}/items?order=asc")
        assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[:3], True)
        assert [item.id async for item in client.conversations.items.list(conversation, order="asc")] == ids
