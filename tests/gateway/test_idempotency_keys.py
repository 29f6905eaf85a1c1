"""A request that is sent again with the same `Idempotency-Key` has the response of the first, and does nothing more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, parse_events, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Turn, status
from holodeck.testing.model.scripted import Received

SECONDS = 60.0
BODY = {"model": MODEL, "input": "Add"}
ADD = call("add", a=1, b=2)


def add_then_say(received: Received) -> Turn:
    return [say("Three.")] if received.json["messages"][-1]["role"] == "tool" else [ADD]


async def send(gateway: RunningGateway, key: str, *, caller: str = "alice", **more: Any) -> tuple[int, Any, bool]:
    """The status and the answer of a request with a key, and whether it is said to be a repeated one."""
    client = await gateway.http_client(caller)
    async with client.post(
        "/v1/responses", data=orjson.dumps({**BODY, **more}), headers={"Idempotency-Key": key}
    ) as reply:
        text = await reply.text()
        is_replayed = reply.headers.get("idempotent-replayed") == "true"
        return reply.status, parse_events(text) if more.get("stream") else orjson.loads(text), is_replayed


async def wait_ended(gateway: RunningGateway, response_id: str) -> dict[str, Any]:
    client = await gateway.http_client("alice")
    async with client.get(f"/v1/responses/{response_id}?stream=true") as reply:
        await reply.read()
    _, ended = await gateway.send("GET", f"/v1/responses/{response_id}", key="alice")
    assert isinstance(ended, dict)
    return ended


@pytest.mark.parametrize("more", [{}, {"stream": True}, {"background": True}], ids=["whole", "streamed", "background"])
@async_test(SECONDS)
async def test_a_key_has_one_response_and_its_tools_act_once(tmp_path: Path, more: dict[str, Any]) -> None:
    keys = ("alice", "bob")
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(add_then_say), mcp={"sums": server}, keys=keys) as gateway,
    ):
        status_code, first, is_replayed = await send(gateway, "one", **more)
        assert (status_code, is_replayed) == (200, False)
        if "background" in more:
            first = await wait_ended(gateway, first["id"])
        assert len(server.calls("add")) == 1
        assert await send(gateway, "one", **more) == (200, first, True)
        assert len(server.calls("add")) == 1
        # Another key, and the same key of another caller, are other requests.
        for again in (await send(gateway, "two", **more), await send(gateway, "one", caller="bob", **more)):
            assert (again[0], again[2]) == (200, False)
        code, refused, _ = await send(gateway, "one", input="Other")
        assert (code, refused["error"]["code"]) == (422, "idempotency_key_reused")


@async_test(SECONDS)
async def test_requests_with_one_key_at_once_wait_for_one_run(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(
            tmp_path, ScriptedModel([call("slow", seconds=60)], say("Done.")), mcp={"sums": server}, keys=["alice"]
        ) as gateway,
    ):
        both = [asyncio.create_task(send(gateway, "one")) for _ in range(2)]
        await server.received("tools/call", name="slow")
        late = asyncio.create_task(send(gateway, "one"))
        await gateway.send("GET", "/healthz")
        server.release()
        answers = [await each for each in (*both, late)]
        assert {code for code, _, _ in answers} == {200}
        assert len({answer["id"] for _, answer, _ in answers}) == 1
        assert [is_replayed for _, _, is_replayed in answers].count(False) == 1
        assert len(server.calls("slow")) == 1
        _, runs = await gateway.send("GET", "/v1/runs", key="alice")
        assert len(runs["data"]) == 1, "the request that came second leaves nothing"


@async_test(SECONDS)
async def test_a_request_that_did_nothing_can_be_sent_again_and_one_whose_tools_ran_cannot(tmp_path: Path) -> None:
    model = ScriptedModel(status(400), say("Hi."), ADD, status(400))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=["alice"]) as gateway,
    ):
        assert (await send(gateway, "one"))[0] != 200
        code, answer, is_replayed = await send(gateway, "one")
        assert (code, answer["status"], is_replayed) == (200, "completed", False)
        code, failed, _ = await send(gateway, "two")
        assert code == 500
        again = await send(gateway, "two")
        assert (again[0], again[2]) == (500, True)
        assert again[1]["error"]["response_id"] == failed["error"]["response_id"]
        assert len(server.calls("add")) == 1
        # A deleted response leaves its key free.
        await gateway.send("DELETE", f"/v1/responses/{answer['id']}", key="alice")
        store = gateway.service.store.idempotency_keys
        assert await store.find_key("key:alice", "one") is None


@pytest.mark.parametrize(
    ("key", "more"), [("", {}), ("k" * 256, {}), ("one", {"store": False})], ids=["empty", "too long", "not stored"]
)
@async_test(SECONDS)
async def test_a_key_that_cannot_be_used_is_refused(tmp_path: Path, key: str, more: dict[str, Any]) -> None:
    async with run_gateway(tmp_path, keys=["alice"]) as gateway:
        code, answer, _ = await send(gateway, key, **more)
        assert (code, answer["error"]["param"]) == (400, "Idempotency-Key")
        assert not gateway.model_requests
