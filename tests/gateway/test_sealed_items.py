"""Sealed items open only for the caller that got them, and their contents count against the limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.sealing import SealKeys
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, think

ANN, BOB = "hd-ann", "hd-bob"
CONTEXT_BYTES = 1_000_000
LONG = "a" * 400_000
GO = {"role": "user", "content": "Go on."}
INCLUDE = {"store": False, "include": ["reasoning.encrypted_content"]}
SOCKET = "WebSocket"
ROUTES = ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens", "/v1/conversations", SOCKET)


@asynccontextmanager
async def run_limited_gateway(folder: Path, **limits: Any) -> AsyncIterator[RunningGateway]:
    settings = {"drain_seconds": 0, "context_bytes": CONTEXT_BYTES, **limits}
    async with run_gateway(
        folder, ScriptedModel(say("Yes."), say("Yes.")), keys=[ANN, BOB], limits=settings
    ) as gateway:
        yield gateway


async def send_items(gateway: RunningGateway, route: str, items: list[Any], key: str) -> tuple[int, Any]:
    """Send these items to a route, over HTTP or a WebSocket. Returns the status and the answer."""
    if route == "/v1/conversations":
        return await gateway.send("POST", route, {"items": items}, key=key)
    if route != SOCKET:
        return await gateway.send("POST", route, {"model": MODEL, "input": items}, key=key)
    async with (await gateway.http_client(key)).ws_connect("/v1/responses") as socket:
        await socket.send_bytes(orjson.dumps({"type": "response.create", "model": MODEL, "input": items}))
        answer = await socket.receive_json()
        while answer["type"] not in {"error", "response.completed"}:
            answer = await socket.receive_json()
    return answer.get("status", 200), answer


async def compact_message(gateway: RunningGateway, content: str, key: str = ANN) -> dict[str, Any]:
    """Compact a message and return the compaction item."""
    status, answer = await gateway.send("POST", "/v1/responses/compact", {"model": MODEL, "input": content}, key=key)
    assert status == 200, answer
    *_, item = answer["output"]
    assert isinstance(item, dict)
    return item


@pytest.mark.parametrize("route", ROUTES)
@async_test(30)
async def test_sealed_items_that_hold_more_than_a_context_are_refused(tmp_path: Path, route: str) -> None:
    async with run_limited_gateway(tmp_path) as gateway:
        item = await compact_message(gateway, LONG)
        assert len(item["encrypted_content"]) < 10_000
        items = [{**item, "id": f"cmp_{index}"} for index in range(3)]
        status, answer = await send_items(gateway, route, [*items, GO], ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long"), answer
        assert (await send_items(gateway, route, [items[0], GO], ANN))[0] == 200


@async_test(30)
async def test_a_conversation_that_is_too_long_to_be_sent_back_is_not_compacted(tmp_path: Path) -> None:
    async with run_limited_gateway(tmp_path, context_bytes=len(LONG)) as gateway:
        items = [{"role": "user", "content": LONG}] * 2
        status, answer = await send_items(gateway, "/v1/responses/compact", items, ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long")


@async_test(30)
async def test_referenced_items_count_like_items_in_the_request(tmp_path: Path) -> None:
    async with run_limited_gateway(tmp_path) as gateway:
        item = {**await compact_message(gateway, LONG), "id": "cmp_stored"}
        _, conversation = await gateway.send("POST", "/v1/conversations", {"items": [item]}, key=ANN)
        references = [{"type": "item_reference", "id": "cmp_stored"}] * 3
        status, answer = await send_items(gateway, "/v1/responses", [*references, GO], ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long")
        body = {"model": MODEL, "conversation": conversation["id"], "input": [{**item, "id": "cmp_new"}, GO]}
        assert (await gateway.send("POST", "/v1/responses", body, key=ANN))[0] == 200
        status, answer = await gateway.send("POST", "/v1/responses", {**body, "input": [references[0], GO]}, key=ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long")


@pytest.mark.parametrize("route", ROUTES)
@async_test(30)
async def test_sealed_items_count_against_the_byte_budget_until_the_request_ends(tmp_path: Path, route: str) -> None:
    async with run_limited_gateway(tmp_path, body_bytes=500_000, bodies_bytes=500_000) as gateway:
        item = await compact_message(gateway, LONG)
        whole = gateway.service.budget.available
        status, answer = await send_items(gateway, route, [item, {**item, "id": "cmp_2"}, GO], ANN)
        assert (status, answer["error"]["type"]) == (429, "too_many_requests"), answer
        assert (await send_items(gateway, route, [item, GO], ANN))[0] == 200
        while gateway.service.budget.available != whole:  # noqa: ASYNC110 - a WebSocket ends a request after its last event
            await asyncio.sleep(0)


@pytest.mark.parametrize("position", [6, 12, 18])
@async_test(30)
async def test_a_sealed_item_with_a_changed_header_is_refused(tmp_path: Path, position: int) -> None:
    async with run_limited_gateway(tmp_path) as gateway:
        item = await compact_message(gateway, LONG)
        text = item["encrypted_content"]
        changed = text[:position] + ("A" if text[position] != "A" else "B") + text[position + 1 :]
        status, answer = await send_items(gateway, "/v1/responses", [{**item, "encrypted_content": changed}, GO], ANN)
        assert (status, answer["error"]["code"]) in {(400, "invalid_encrypted_content"), (400, "context_too_long")}


@pytest.mark.parametrize("route", ROUTES)
@async_test(30)
async def test_a_caller_cannot_use_the_sealed_item_of_another(tmp_path: Path, route: str) -> None:
    async with run_limited_gateway(tmp_path) as gateway:
        item = await compact_message(gateway, "Ann's secret.")
        status, answer = await send_items(gateway, route, [item, GO], BOB)
        assert (status, answer["error"]["code"]) == (400, "invalid_encrypted_content")
        assert "was not sealed for this caller by this gateway" in answer["error"]["message"]
        assert (await send_items(gateway, route, [item, GO], ANN))[0] == 200
        assert not any("secret" in str(request) for request in gateway.model_requests[:-1])


@async_test(30)
async def test_sealed_reasoning_and_calls_open_only_for_their_caller(tmp_path: Path) -> None:
    model = ScriptedModel([think("hm", signature="s3cret"), call("add", a=1, b=2)], say("3."), say("As I said."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[ANN, BOB], mcp_output="openai") as gateway,
    ):
        body: dict[str, Any] = {"model": MODEL, "input": [GO], **INCLUDE}
        async with (await gateway.http_client(ANN)).post("/v1/responses", json=body) as sent:
            output = (await sent.json())["output"]
        sealed = [item for item in output if item.get("encrypted_content")]
        assert len(sealed) == 2
        for item in sealed:
            status, answer = await gateway.send("POST", "/v1/responses", {**body, "input": [item, GO]}, key=BOB)
            assert (status, answer["error"]["code"]) == (400, "invalid_encrypted_content")
        status, answer = await gateway.send("POST", "/v1/responses", {**body, "input": [GO, *output, GO]}, key=ANN)
        assert status == 200, answer


@pytest.mark.parametrize("form", ["key", "file", "environment"])
@async_test(30)
async def test_a_new_key_seals_and_the_old_one_still_opens(tmp_path: Path, form: str) -> None:
    keys = ["n" * 32, "o" * 32]
    environ: dict[str, str] = {}
    config: dict[str, Any] = {}
    if form == "environment":
        environ = {"HOLODECK_SEAL_KEY": orjson.dumps(keys).decode()}
    elif form == "key":
        environ, config = {"NEW": keys[0], "OLD": keys[1]}, {"seal_key": ["${NEW}", "${OLD}"]}
    else:
        for key in keys:
            (tmp_path / key[0]).write_text(key)
        config = {"seal_key_file": ["n", "o"]}
    async with run_gateway(tmp_path, environ={"OLD": keys[1]}, seal_key="${OLD}") as gateway:
        old = await compact_message(gateway, "Old.")
    async with run_gateway(tmp_path, ScriptedModel(say("Yes.")), environ=environ, **config) as gateway:
        assert (await send_items(gateway, "/v1/responses", [old, GO], ANN))[0] == 200
        new = await compact_message(gateway, "New.")
    SealKeys([keys[0].encode()]).for_caller("local").open("compaction", new["encrypted_content"])
