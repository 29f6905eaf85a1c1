"""An approval is used once, also when a user clicks twice, an SDK retries or another gateway receives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.conversation_client import (
    MIXED_CALLS,
    answer_get_time,
    create_conversation,
    create_response,
    last_model_messages,
    output_types,
)
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from storage.test_pending_calls import storage_config

from holodeck.storage.factory import open_store
from holodeck.storage.pending_calls import PendingCall
from holodeck.storage.store import ResponseStore
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.mcp.faults import Fault
from holodeck.testing.model.script import status

DECLARED = {"type": "mcp", "server_label": "sums", "require_approval": "always"}
USED = "approval_request_used"
GO = {"role": "user", "content": "Go"}


def approval_of(response: dict[str, Any], **more: Any) -> dict[str, Any]:
    request_id = response["output"][-1]["id"]
    return {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": True, **more}


def body(items: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": items, "tools": [DECLARED], **more}


async def send_refused(gateway: RunningGateway, request: dict[str, Any]) -> dict[str, Any]:
    """The error of a request that is refused, in a way that no SDK repeats by itself."""
    code, answer = await gateway.send("POST", "/v1/responses", request)
    assert code == 400, answer
    return dict(answer["error"])


@asynccontextmanager
async def gateways(
    folder: Path, url: str, model: ScriptedModel, server: FaultyMCPServer, **config: Any
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways that share one database and one model."""
    storage = storage_config(folder, url)
    async with model.serve() as scripted:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        config |= {"storage": storage, "models": [{"name": MODEL, "model": llm}]}
        for name in ("one", "two"):
            (folder / name).mkdir()
        async with (
            run_gateway(folder / "one", mcp={"sums": server}, **config) as one,
            run_gateway(folder / "two", mcp={"sums": server}, **config) as two,
        ):
            one.model = two.model = scripted
            yield one, two


@pytest.mark.proves("D-16", "D-26", "D-32")
@pytest.mark.parametrize("store", [True, False])
@async_test(60)
async def test_an_approval_that_is_sent_twice_runs_its_call_once(tmp_path: Path, url: str, store: bool) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("Bye."), say("Never mind."))
    async with FaultyMCPServer() as server, gateways(tmp_path, url, model, server) as (one, two):
        first = await create_response(one, [GO], DECLARED, store=store)
        items = [approval_of(first)] if store else [GO, *first["output"], approval_of(first)]
        approved = body(items, store=store, **({"previous_response_id": first["id"]} if store else {}))
        second = await create_response(
            one, items, DECLARED, **{key: approved[key] for key in approved if key != "input"}
        )
        for gateway in (one, two):
            error = await send_refused(gateway, approved)
            assert error["code"] == USED
            assert second["id"] in error["message"], "it names the response that ran the call"
        assert error["param"] == f"input[{len(items) - 1}].approval_request_id"
        no = {**approved, "input": [*items[:-1], approval_of(first, approve=False)]}
        assert (await send_refused(two, no))["code"] == USED, "the call was run, so it can no longer be refused"
        assert len(server.calls("add")) == 1
        if store:
            await create_response(two, "Go on", DECLARED, previous_response_id=first["id"])
            assert last_model_messages(two)[-2:] == [("add", "3"), "Go on"], (
                "the response may still be forked, and the fork has the output"
            )
            await create_response(two, "Go on", DECLARED, previous_response_id=second["id"])
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-16", "D-26", "D-32")
@pytest.mark.parametrize("stream", [True, False])
@async_test(60)
async def test_of_concurrent_approvals_one_is_used(tmp_path: Path, url: str, stream: bool) -> None:
    go = asyncio.Event()
    model = ScriptedModel(call("add", a=1, b=2), [wait(go), say("3.")])
    async with FaultyMCPServer() as server, gateways(tmp_path, url, model, server) as both:
        first = await create_response(both[0], [GO], DECLARED)
        approved = body([approval_of(first)], previous_response_id=first["id"], stream=stream)
        sent = [asyncio.create_task(both[n % 2].send("POST", "/v1/responses", approved)) for n in range(8)]
        for done in asyncio.as_completed(sent):
            code, answer = await done
            if code == 400:
                assert answer["error"]["code"] == USED
            if sum(each.done() for each in sent) == len(sent) - 1:
                go.set()
        assert sorted(each.result()[0] for each in sent) == [200, *[400] * 7]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-16", "D-26")
@async_test(60)
async def test_an_approval_in_a_conversation_is_not_used_again_outside_of_it(tmp_path: Path, url: str) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), call("add", a=3, b=4), say("7."), say("Well."))
    async with FaultyMCPServer() as server, gateways(tmp_path, url, model, server) as (one, two):
        here = await create_conversation(one)
        first = await create_response(one, [GO], DECLARED, **here)
        await create_response(one, [approval_of(first)], DECLARED, **here)
        error = await send_refused(two, body([approval_of(first)], previous_response_id=first["id"]))
        assert error["code"] == USED
        third = await create_response(one, "Again", DECLARED, **here)
        await create_response(two, [approval_of(third)], DECLARED, previous_response_id=third["id"])
        assert (await send_refused(one, body([approval_of(third)], **here)))["code"] == USED
        await create_response(one, "Well?", DECLARED, **here)
        assert [one.params["arguments"]["a"] for one in server.calls("add")] == [1, 3]


@pytest.mark.proves("D-16", "D-26")
@async_test(60)
async def test_an_approval_can_be_used_again_when_its_call_did_not_begin(tmp_path: Path, url: str) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is down."), say("3."))
    server = FaultyMCPServer()
    async with server, gateways(tmp_path, url, model, server) as (one, two):
        first = await create_response(one, [GO], DECLARED)
        before = {"previous_response_id": first["id"]}
        wrong = body([approval_of(first)], **before, tool_choice={"type": "function", "name": "nothing"})
        assert (await send_refused(one, wrong))["param"] == "tool_choice"
        port = int(server.url.split(":")[2].split("/")[0])
        await server.__aexit__(None, None, None)
        second = await create_response(one, [approval_of(first)], DECLARED, **before)
        assert (second["output"][0]["type"], second["output"][0]["status"]) == ("mcp_call", "failed")
        async with FaultyMCPServer(port=port) as back:
            third = await create_response(two, [approval_of(first)], DECLARED, **before)
            assert output_types(third) == ["mcp_call", "message"]
            assert len(back.calls("add")) == 1
            assert (await send_refused(one, body([approval_of(first)], **before)))["code"] == USED


@pytest.mark.proves("D-16", "D-31")
@async_test(60)
async def test_an_approval_stays_used_when_the_model_fails_after_its_call(tmp_path: Path, url: str) -> None:
    model = ScriptedModel(call("add", a=1, b=2), status(400), say("3."))
    async with FaultyMCPServer() as server, gateways(tmp_path, url, model, server) as (one, _):
        first = await create_response(one, [GO], DECLARED)
        approved = body([approval_of(first)], previous_response_id=first["id"])
        code, failed = await one.send("POST", "/v1/responses", approved)
        assert code >= 400
        error = await send_refused(one, approved)
        assert error["code"] == USED
        await create_response(one, "So?", DECLARED, previous_response_id=failed["error"]["response_id"])
        assert last_model_messages(one) == ["Go", ["add"], ("add", "3"), "So?"]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-23", "D-16")
@async_test(60)
async def test_a_call_that_waited_for_the_client_runs_once_however_often_the_client_answers(
    tmp_path: Path, url: str
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("Noon."), say("Noon again."))
    async with FaultyMCPServer() as server, gateways(tmp_path, url, model, server) as both:
        first = await create_response(both[0], [GO])
        for gateway in both:
            await create_response(gateway, [answer_get_time(first)], previous_response_id=first["id"])
            assert last_model_messages(gateway) == ["Go", ["add", "get_time"], ("add", "3"), ("get_time", "noon")]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-28", "D-29")
@async_test(30)
async def test_a_pending_call_is_claimed_once_and_only_by_its_caller(tmp_path: Path, url: str) -> None:
    async with _opened(tmp_path, url) as store, _opened(tmp_path, url) as other:
        await store.add_pending_calls("alice", "resp_1", {"a": b"1", "b": b"2"}, client_call_ids=["call_1"])
        assert await store.claim_calls("alice", ["b", "c"], "resp_2") == {}
        assert await other.claim_calls("alice", ["b", "c"], "resp_2") == {}, "its answer may have been lost"
        assert await other.claim_calls("alice", ["a", "c", "b"], "resp_3") == {"b": "resp_2", "c": "resp_2"}
        assert await other.claim_calls("bob", ["b"], "resp_4") == {}
        assert await other.read_pending_calls("alice", ["a", "b", "c", "d"]) == {
            "a": PendingCall(digest=b"1"),
            "b": PendingCall(digest=b"2", claimed_by="resp_2"),
            "c": PendingCall(claimed_by="resp_2"),
        }
        await store.release_calls("alice", "resp_3", ["b"])
        await store.release_calls("alice", "resp_2", ["c"])
        assert await other.claim_calls("alice", ["c"], "resp_3") == {}
        assert await other.claim_calls("alice", ["b"], "resp_3") == {"b": "resp_2"}
        await store.release_calls("alice", "resp_2")
        assert await other.claim_calls("alice", ["b"], "resp_3") == {}
        assert await other.find_paused_responses("alice", "call_1") == ["resp_1"]
        assert await other.find_paused_responses("bob", "call_1") == []
        await store.delete_older_than(0)
        assert await other.find_paused_responses("alice", "call_1") == ["resp_1"]
        await store.delete_older_than(9e9)
        assert await other.find_paused_responses("alice", "call_1") == []
        assert await other.read_pending_calls("alice", ["a", "b", "c"]) == {}


@asynccontextmanager
async def _opened(folder: Path, url: str) -> AsyncIterator[ResponseStore]:
    store = open_store(url, folder=folder)
    try:
        yield store
    finally:
        await store.close()


async def _ask_by_socket(gateway: RunningGateway, message: dict[str, Any]) -> Any:
    session = await gateway.http_client()
    async with session.ws_connect("/v1/responses") as socket:
        await socket.send_json(message | {"type": "response.create", "stream": True})
        return await socket.receive()


@pytest.mark.proves("D-16", "D-32")
@async_test(60)
async def test_a_claim_ends_with_its_gateway_unless_it_was_confirmed_before(tmp_path: Path, url: str) -> None:
    async with _opened(tmp_path, url) as living:
        async with _opened(tmp_path, url) as ended:
            await ended.add_pending_calls("alice", "resp_0", {"sent": b"1", "unsent": b"2"})
            assert await ended.claim_calls("alice", ["sent"], "resp_1") == {}
            assert await ended.confirm_claim("alice", "resp_1", ["sent", "sent"])
            assert await ended.claim_calls("alice", ["unsent"], "resp_2") == {}
            claimed = {"sent": "resp_1", "unsent": "resp_2"}
            assert await living.claim_calls("alice", ["sent", "unsent"], "resp_3") == claimed
        while await living.claim_calls("alice", ["unsent"], "resp_3"):  # noqa: ASYNC110 - PostgreSQL soon sees its end
            await asyncio.sleep(0.02)
        assert await living.claim_calls("alice", ["sent"], "resp_3") == {"sent": "resp_1"}
        assert not await living.confirm_claim("alice", "resp_2", ["unsent"]), "the gateway only seemed to be dead"
        assert await living.confirm_claim("alice", "resp_3", ["unsent"])
        assert await living.confirm_claim("alice", "resp_3", ["unsent"]), "its acknowledgement may have been lost"


@pytest.mark.proves("D-16", "D-26")
@pytest.mark.parametrize("door", ["json", "stream", "websocket"])
@async_test(60)
async def test_an_approval_can_be_used_again_when_its_client_disconnected_before_the_call(
    tmp_path: Path, url: str, door: str
) -> None:
    storage = storage_config(tmp_path, url)
    async with FaultyMCPServer() as server:
        async with run_gateway(
            tmp_path, ScriptedModel(call("add", a=1, b=2)), mcp={"sums": server}, storage=storage
        ) as one:
            first = await create_response(one, [GO], DECLARED)
        approved = body([approval_of(first)], previous_response_id=first["id"], stream=door == "stream")
        server.mode = Fault.HANGS_AT_START
        known = len(server.requests)
        async with run_gateway(tmp_path, mcp={"sums": server}, storage=storage) as two:
            leaving = asyncio.create_task(
                _ask_by_socket(two, approved) if door == "websocket" else two.send("POST", "/v1/responses", approved)
            )
            while len(server.requests) == known:  # noqa: ASYNC110 - it receives a request, and answers none
                await asyncio.sleep(0.01)
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
        server.mode = Fault.NORMAL
        async with run_gateway(tmp_path, ScriptedModel(say("3.")), mcp={"sums": server}, storage=storage) as three:
            answer = await create_response(three, [approval_of(first)], DECLARED, previous_response_id=first["id"])
            assert output_types(answer) == ["mcp_call", "message"]
        assert len(server.calls("add")) == 1
