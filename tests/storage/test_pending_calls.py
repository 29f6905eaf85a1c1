"""Pending calls of a conversation outlive the gateway, and only one of the gateways that share it continues them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.conversation_client import (
    APPROVAL_SERVER,
    GET_TIME,
    MIXED_CALLS,
    answer_get_time,
    approve_call,
    conversation_item_types,
    create_conversation,
    create_response,
    last_model_messages,
    output_types,
)
from gateway.gateway_process import run_gateway_process
from gateway.running_gateway import MODEL, gateway_config, run_gateway

from holodeck.storage.conversations import Conversation, ConversationContents, ConversationItem
from holodeck.storage.factory import open_store
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

UNKNOWN = "Whether the call took effect is unknown"


def storage_config(folder: Path, url: str) -> dict[str, str]:
    """The part of a gateway file that names the storage."""
    file = folder / "database-url"
    file.write_text(url.replace("///", f"///{folder}/") if url.startswith("sqlite") else url)
    return {"url_file": str(file)}


@pytest.mark.proves("D-23", "D-28")
@async_test(60)
async def test_pending_calls_can_be_continued_after_a_restart(tmp_path: Path, url: str) -> None:
    storage, tools = storage_config(tmp_path, url), (GET_TIME, APPROVAL_SERVER)
    async with FaultyMCPServer() as server:
        one = ScriptedModel([call("echo", text="hi"), *MIXED_CALLS])
        async with run_gateway(tmp_path, one, mcp={"sums": server}, storage=storage) as gateway:
            here = await create_conversation(gateway)
            first = await create_response(gateway, "Go", *tools, **here)
        async with run_gateway(tmp_path, ScriptedModel(say("Done.")), mcp={"sums": server}, storage=storage) as gateway:
            second = await create_response(gateway, [answer_get_time(first), approve_call(first)], *tools, **here)
            assert output_types(second) == ["mcp_call", "mcp_call", "message"]
            assert last_model_messages(gateway)[:2] == ["Go", ["echo", "add", "get_time"]]
            assert set(last_model_messages(gateway)[2:]) == {("echo", "hi"), ("add", "3"), ("get_time", "noon")}
            assert (await conversation_item_types(gateway, here))[-4:] == [
                "mcp_approval_response",
                *output_types(second),
            ]
        assert len(server.calls()) == 2


@pytest.mark.proves("D-23", "D-32", "D-16")
@async_test(60)
async def test_only_one_of_two_gateways_continues_pending_calls(tmp_path: Path, url: str) -> None:
    go = asyncio.Event()
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    storage = storage_config(tmp_path, url)
    slow, other = ScriptedModel(MIXED_CALLS, [wait(go), say("3, at noon.")]), ScriptedModel(say("Bye."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(folders[0], slow, mcp={"sums": server}, storage=storage) as one,
        run_gateway(folders[1], other, mcp={"sums": server}, storage=storage) as two,
    ):
        here = await create_conversation(one)
        first = await create_response(one, "Go", **here)
        going = asyncio.create_task(create_response(one, [answer_get_time(first)], **here))
        await server.received("tools/call", name="add")
        body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], **here}
        for _ in range(2):
            status, error = await two.send("POST", "/v1/responses", body)
            assert (status, error["error"]["code"]) == (400, "conversation_locked")
        go.set()
        assert output_types(await going)[-1] == "message"
        status, error = await two.send("POST", "/v1/responses", body)
        assert (status, error["error"]["code"]) == (400, "duplicate_tool_output")
        await create_response(two, "Thanks", **here)
        assert last_model_messages(two)[-2:] == ["3, at noon.", "Thanks"]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-16")
@pytest.mark.parametrize("is_answered", [True, False], ids=["again", "something else"])
@async_test(90)
async def test_a_call_under_way_when_its_gateway_died_is_not_made_again(
    tmp_path: Path, url: str, is_answered: bool
) -> None:
    storage = storage_config(tmp_path, url)
    model = ScriptedModel([call("slow", seconds=60), call("get_time")], say("I shall look."), say("Bye."))
    async with FaultyMCPServer() as server:
        async with model.serve() as scripted:
            file = tmp_path / "gateway.yaml"
            config = gateway_config(scripted.url, {"sums": server}) | {"storage": storage}
            file.write_bytes(orjson.dumps(config))
            async with run_gateway_process(file) as gateway:
                _, made, _ = await gateway.send("POST", "/v1/conversations", {})
                here = {"conversation": made["id"], "tools": [GET_TIME]}
                _, first, _ = await gateway.create_response("Go", **here)
                going = asyncio.create_task(gateway.create_response(**here, input=[answer_get_time(first)]))
                await server.received("tools/call", name="slow")
                gateway.stop(signal.SIGKILL)
                await gateway.wait_exit()
                await asyncio.gather(going, return_exceptions=True)
            async with run_gateway_process(file) as gateway:
                answer: Any = [answer_get_time(first)] if is_answered else "Something else"
                status, second, _ = await gateway.create_response(**here, input=answer)
                assert status == 200, second
                assert output_types(second) == ["mcp_call", "message"]
                outputs = {m["tool_call_id"]: m["content"] for m in _messages(scripted) if m["role"] == "tool"}
                assert [UNKNOWN in output for output in outputs.values()].count(True) == 1
                assert len(outputs) == 2
                status, _, _ = await gateway.create_response("Bye", **here)
                assert status == 200
                assert sum(UNKNOWN in str(m["content"]) for m in _messages(scripted)) == 1
        assert len(server.calls("slow")) == 1


@pytest.mark.proves("D-23", "D-32")
@async_test(90)
async def test_a_background_response_finished_by_another_gateway_has_continued_the_pending_calls(
    tmp_path: Path, url: str
) -> None:
    storage = storage_config(tmp_path, url)
    model = ScriptedModel([call("slow", seconds=60), call("get_time")], say("I shall look."), say("Bye."))
    async with FaultyMCPServer() as server, model.serve() as scripted:
        file = tmp_path / "gateway.yaml"
        config = gateway_config(scripted.url, {"sums": server}) | {"storage": storage, "background": {"durable": True}}
        file.write_bytes(orjson.dumps(config))
        async with run_gateway_process(file) as gateway:
            _, made, _ = await gateway.send("POST", "/v1/conversations", {})
            here = {"conversation": made["id"], "tools": [GET_TIME]}
            _, first, _ = await gateway.create_response("Go", **here)
            _, queued, _ = await gateway.create_response(**here, input=[answer_get_time(first)], background=True)
            await server.received("tools/call", name="slow")
            gateway.stop(signal.SIGKILL)
            await gateway.wait_exit()
        async with run_gateway_process(file) as gateway:
            status, error, _ = await gateway.create_response(**here, input=[answer_get_time(first)])
            assert (status, error["error"]["code"] in ("conversation_locked", "duplicate_tool_output")) == (400, True)
            await gateway.send("GET", f"/v1/responses/{queued['id']}?stream=true")
            _, ended, _ = await gateway.send("GET", f"/v1/responses/{queued['id']}")
            assert (ended["status"], output_types(ended)[-1]) == ("completed", "message")
            status, _, _ = await gateway.create_response("Bye", **here)
            assert status == 200
            assert [m["role"] for m in _messages(scripted)].count("tool") == 2
            assert sum(UNKNOWN in str(m["content"]) for m in _messages(scripted)) == 1
        assert len(server.calls("slow")) == 1


@pytest.mark.proves("D-23", "D-28", "D-16")
@async_test(90)
async def test_a_background_response_that_died_with_its_gateway_can_be_continued(tmp_path: Path) -> None:
    model = ScriptedModel([call("slow", seconds=60), call("get_time")], say("Bye."))
    async with FaultyMCPServer() as server, model.serve() as scripted:
        file = tmp_path / "gateway.yaml"
        file.write_bytes(orjson.dumps(gateway_config(scripted.url, {"sums": server})))
        async with run_gateway_process(file) as gateway:
            _, first, _ = await gateway.create_response("Go", tools=[GET_TIME])
            before = {"previous_response_id": first["id"], "tools": [GET_TIME]}
            _, queued, _ = await gateway.create_response(**before, input=[answer_get_time(first)], background=True)
            await server.received("tools/call", name="slow")
            gateway.stop(signal.SIGKILL)
            await gateway.wait_exit()
        async with run_gateway_process(file) as gateway:
            _, failed, _ = await gateway.send("GET", f"/v1/responses/{queued['id']}")
            assert failed["status"] == "failed"
            status, answer, _ = await gateway.create_response("And?", previous_response_id=queued["id"])
            assert status == 200, answer
            outputs = sorted(m["content"] for m in _messages(scripted) if m["role"] == "tool")
            assert [len(outputs), outputs[1]] == [2, "noon"]
            assert "not known whether" in outputs[0]
        assert len(server.calls("slow")) == 1


def _messages(scripted: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scripted.received[-1].json["messages"]
    return found


@pytest.mark.proves("D-23", "D-29")
@async_test(90)
async def test_a_conversation_is_locked_once_by_its_caller_and_can_be_unlocked(tmp_path: Path, url: str) -> None:
    stores = [open_store(url, folder=tmp_path) for _ in range(2)]
    one, two = stores
    item = ConversationItem(id="fc_1", data=b"{}")
    try:
        await one.create_conversation(Conversation(id="c", caller_id="alice", created_at=1.0), [])
        assert await two.read_conversation("c", "alice", limit=10) == ConversationContents()
        assert await two.read_conversation("c", "bob", limit=10) is None
        assert await one.add_items("c", "alice", [item], response_id="resp_1", pending_calls=b"calls")
        seen = await two.read_conversation("c", "alice", limit=10)
        assert seen == ConversationContents(items=(item,), last_position=1, pending_calls=b"calls")
        assert not await two.lease_conversation("c", "bob", seen, "resp_9")
        taken = await asyncio.gather(
            *(store.lease_conversation("c", "alice", seen, f"resp_{n}") for n, store in enumerate(stores))
        )
        assert sorted(taken) == [False, True]
        winner = taken.index(True)
        assert await stores[winner].lease_conversation("c", "alice", seen, f"resp_{winner}"), "the same call again"
        for number, store in enumerate(stores):
            found = await store.read_conversation("c", "alice", limit=10)
            assert found is not None
            assert (found.leased_by, found.is_leased_here) == (f"resp_{winner}", number == winner)
            assert found.is_leaseholder_alive
        await two.release_conversation("c", "alice", "resp_9")
        assert (await one.read_conversation("c", "alice", limit=10)) != seen
        await two.release_conversation("c", "alice", f"resp_{winner}")
        assert await one.read_conversation("c", "alice", limit=10) == seen
        await one.add_items("c", "alice", [ConversationItem(id="msg_1", data=b"{}")])
        assert not await one.lease_conversation("c", "alice", seen, "resp_3"), "it has changed"
        newer = await one.read_conversation("c", "alice", limit=10)
        assert newer is not None
        assert newer.pending_calls == b"calls"
        assert await one.lease_conversation("c", "alice", newer, "resp_3")
        await one.close()
        conversation = await two.read_conversation("c", "alice", limit=10)
        assert conversation is not None
        assert (conversation.leased_by, conversation.is_leaseholder_alive) == ("resp_3", False)
        await two.add_items("c", "alice", [], response_id="resp_3")
        ended = await two.read_conversation("c", "alice", limit=1)
        assert ended == ConversationContents(items=(item,), last_position=1)
    finally:
        for store in stores:
            await store.close()
