"""Sealed items: what a client stores for the gateway is its own alone, and cannot be made to take more than it may."""

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
async def bounded(folder: Path, **limits: Any) -> AsyncIterator[RunningGateway]:
    settings = {"drain_seconds": 0, "context_bytes": CONTEXT_BYTES, **limits}
    async with run_gateway(folder, ScriptedModel(say("Yes."), say("Yes.")), keys=[ANN, BOB], limits=settings) as stand:
        yield stand


async def send_items(stand: RunningGateway, route: str, items: list[Any], key: str) -> tuple[int, Any]:
    """A request of this route with these items, over HTTP or a WebSocket; the status and what was answered."""
    if route == "/v1/conversations":
        return await stand.send("POST", route, {"items": items}, key=key)
    if route != SOCKET:
        return await stand.send("POST", route, {"model": MODEL, "input": items}, key=key)
    async with (await stand.http_client(key)).ws_connect("/v1/responses") as socket:
        await socket.send_bytes(orjson.dumps({"type": "response.create", "model": MODEL, "input": items}))
        answer = await socket.receive_json()
        while answer["type"] not in {"error", "response.completed"}:
            answer = await socket.receive_json()
    return answer.get("status", 200), answer


async def folded(stand: RunningGateway, content: str, key: str = ANN) -> dict[str, Any]:
    """A compaction item that stands for a message."""
    status, answer = await stand.send("POST", "/v1/responses/compact", {"model": MODEL, "input": content}, key=key)
    assert status == 200, answer
    (item,) = answer["output"]
    assert isinstance(item, dict)
    return item


@pytest.mark.parametrize("route", ROUTES)
@async_test(30)
async def test_sealed_items_that_hold_more_than_a_context_are_refused(tmp_path: Path, route: str) -> None:
    async with bounded(tmp_path) as stand:
        item = await folded(stand, LONG)
        assert len(item["encrypted_content"]) < 10_000
        items = [{**item, "id": f"cmp_{index}"} for index in range(3)]
        status, answer = await send_items(stand, route, [*items, GO], ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long"), answer
        assert (await send_items(stand, route, [items[0], GO], ANN))[0] == 200


@async_test(30)
async def test_a_conversation_that_could_not_be_unfolded_again_is_not_folded(tmp_path: Path) -> None:
    async with bounded(tmp_path, context_bytes=len(LONG)) as stand:
        items = [{"role": "user", "content": LONG}] * 2
        status, answer = await send_items(stand, "/v1/responses/compact", items, ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long")


@async_test(30)
async def test_items_that_a_request_only_refers_to_count_like_those_that_it_sends(tmp_path: Path) -> None:
    async with bounded(tmp_path) as stand:
        item = {**await folded(stand, LONG), "id": "cmp_kept"}
        _, kept = await stand.send("POST", "/v1/conversations", {"items": [item]}, key=ANN)
        references = [{"type": "item_reference", "id": "cmp_kept"}] * 3
        status, answer = await send_items(stand, "/v1/responses", [*references, GO], ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long")
        body = {"model": MODEL, "conversation": kept["id"], "input": [{**item, "id": "cmp_new"}, GO]}
        assert (await stand.send("POST", "/v1/responses", body, key=ANN))[0] == 200
        status, answer = await stand.send("POST", "/v1/responses", {**body, "input": [references[0], GO]}, key=ANN)
        assert (status, answer["error"]["code"]) == (400, "context_too_long")


@pytest.mark.parametrize("route", ROUTES)
@async_test(30)
async def test_sealed_items_take_from_the_budget_of_bodies_until_the_request_ends(tmp_path: Path, route: str) -> None:
    async with bounded(tmp_path, body_bytes=500_000, bodies_bytes=500_000) as stand:
        item = await folded(stand, LONG)
        whole = stand.service.budget.available
        status, answer = await send_items(stand, route, [item, {**item, "id": "cmp_2"}, GO], ANN)
        assert (status, answer["error"]["type"]) == (429, "too_many_requests"), answer
        assert (await send_items(stand, route, [item, GO], ANN))[0] == 200
        while stand.service.budget.available != whole:  # noqa: ASYNC110 - a WebSocket ends a request after its last event
            await asyncio.sleep(0)


@pytest.mark.parametrize("place", [6, 12, 18])
@async_test(30)
async def test_a_header_that_lies_about_the_size_is_refused(tmp_path: Path, place: int) -> None:
    async with bounded(tmp_path) as stand:
        item = await folded(stand, LONG)
        text = item["encrypted_content"]
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        status, answer = await send_items(stand, "/v1/responses", [{**item, "encrypted_content": changed}, GO], ANN)
        assert (status, answer["error"]["code"]) in {(400, "invalid_encrypted_content"), (400, "context_too_long")}


@pytest.mark.parametrize("route", ROUTES)
@async_test(30)
async def test_a_caller_cannot_use_the_sealed_item_of_another(tmp_path: Path, route: str) -> None:
    async with bounded(tmp_path) as stand:
        item = await folded(stand, "Ann's secret.")
        status, answer = await send_items(stand, route, [item, GO], BOB)
        assert (status, answer["error"]["code"]) == (400, "invalid_encrypted_content")
        assert "was not sealed for this caller by this gateway" in answer["error"]["message"]
        assert (await send_items(stand, route, [item, GO], ANN))[0] == 200
        assert not any("secret" in str(asked) for asked in stand.model_requests[:-1])


@async_test(30)
async def test_sealed_reasoning_and_calls_are_their_callers_alone(tmp_path: Path) -> None:
    model = ScriptedModel([think("hm", signature="s3cret"), call("add", a=1, b=2)], say("3."), say("As I said."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[ANN, BOB], mcp_output="openai") as stand,
    ):
        body: dict[str, Any] = {"model": MODEL, "input": [GO], **INCLUDE}
        async with (await stand.http_client(ANN)).post("/v1/responses", json=body) as sent:
            output = (await sent.json())["output"]
        sealed = [item for item in output if item.get("encrypted_content")]
        assert len(sealed) == 2
        for item in sealed:
            status, answer = await stand.send("POST", "/v1/responses", {**body, "input": [item, GO]}, key=BOB)
            assert (status, answer["error"]["code"]) == (400, "invalid_encrypted_content")
        status, answer = await stand.send("POST", "/v1/responses", {**body, "input": [GO, *output, GO]}, key=ANN)
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
    async with run_gateway(tmp_path, environ={"OLD": keys[1]}, seal_key="${OLD}") as stand:
        old = await folded(stand, "Old.")
    async with run_gateway(tmp_path, ScriptedModel(say("Yes.")), environ=environ, **config) as stand:
        assert (await send_items(stand, "/v1/responses", [old, GO], ANN))[0] == 200
        new = await folded(stand, "New.")
    SealKeys([keys[0].encode()]).for_caller("local").open("compaction", new["encrypted_content"])
