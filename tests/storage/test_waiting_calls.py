"""Calls that wait in a conversation outlive the gateway, and of all gateways that share it one goes on with them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from aio import aio
from gateway.conversing import ASKING, GET_TIME, MIXED, ask, begin, items, noon, told, types, yes
from gateway.process import process_of
from gateway.stand import MODEL, gateway_file, serving

from holodeck.storage.factory import open_store
from holodeck.storage.store import Conversation, ConversationItem, Thread
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

UNKNOWN = "Whether the call took effect is unknown"


def shared(folder: Path, url: str) -> dict[str, str]:
    """The part of a gateway file that names the storage."""
    file = folder / "database-url"
    file.write_text(url.replace("///", f"///{folder}/") if url.startswith("sqlite") else url)
    return {"url_file": str(file)}


@pytest.mark.proves("D-23", "D-28")
@aio(60)
async def test_what_waits_is_gone_on_with_after_a_restart(tmp_path: Path, url: str) -> None:
    storage, tools = shared(tmp_path, url), (GET_TIME, ASKING)
    async with FaultyMCPServer() as server:
        one = ScriptedModel([call("echo", text="hi"), *MIXED])
        async with serving(tmp_path, one, mcp={"sums": server}, storage=storage) as stand:
            here = await begin(stand)
            first = await ask(stand, "Go", *tools, **here)
        async with serving(tmp_path, ScriptedModel(say("Done.")), mcp={"sums": server}, storage=storage) as stand:
            second = await ask(stand, [noon(first), yes(first)], *tools, **here)
            assert types(second) == ["mcp_call", "mcp_call", "message"]
            assert told(stand)[:2] == ["Go", ["echo", "add", "get_time"]]
            assert set(told(stand)[2:]) == {("echo", "hi"), ("add", "3"), ("get_time", "noon")}
            assert (await items(stand, here))[-4:] == ["mcp_approval_response", *types(second)]
        assert len(server.calls()) == 2


@pytest.mark.proves("D-23", "D-32", "D-16")
@aio(60)
async def test_of_two_gateways_one_goes_on_with_what_waits(tmp_path: Path, url: str) -> None:
    go = asyncio.Event()
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    storage = shared(tmp_path, url)
    slow, other = ScriptedModel(MIXED, [wait(go), say("3, at noon.")]), ScriptedModel(say("Bye."))
    async with (
        FaultyMCPServer() as server,
        serving(folders[0], slow, mcp={"sums": server}, storage=storage) as one,
        serving(folders[1], other, mcp={"sums": server}, storage=storage) as two,
    ):
        here = await begin(one)
        first = await ask(one, "Go", **here)
        going = asyncio.create_task(ask(one, [noon(first)], **here))
        await server.received("tools/call", name="add")
        body = {"model": MODEL, "input": [noon(first)], "tools": [GET_TIME], **here}
        for _ in range(2):
            status, error = await two.send("POST", "/v1/responses", body)
            assert (status, error["error"]["code"]) == (400, "conversation_locked")
        go.set()
        assert types(await going)[-1] == "message"
        status, error = await two.send("POST", "/v1/responses", body)
        assert (status, error["error"]["code"]) == (400, "duplicate_tool_output")
        await ask(two, "Thanks", **here)
        assert told(two)[-2:] == ["3, at noon.", "Thanks"]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-23", "D-16")
@pytest.mark.parametrize("is_answered", [True, False], ids=["again", "something else"])
@aio(90)
async def test_a_call_under_way_when_its_gateway_died_is_not_made_again(
    tmp_path: Path, url: str, is_answered: bool
) -> None:
    storage = shared(tmp_path, url)
    model = ScriptedModel([call("slow", seconds=60), call("get_time")], say("I shall look."), say("Bye."))
    async with FaultyMCPServer() as server:
        async with model.serve() as scripted:
            file = tmp_path / "gateway.yaml"
            config = gateway_file(scripted.url, {"sums": server}) | {"storage": storage}
            file.write_bytes(orjson.dumps(config))
            async with process_of(file) as gateway:
                _, made, _ = await gateway.send("POST", "/v1/conversations", {})
                here = {"conversation": made["id"], "tools": [GET_TIME]}
                _, first, _ = await gateway.ask("Go", **here)
                going = asyncio.create_task(gateway.ask(**here, input=[noon(first)]))
                await server.received("tools/call", name="slow")
                gateway.stop(signal.SIGKILL)
                await gateway.ended()
                await asyncio.gather(going, return_exceptions=True)
            async with process_of(file) as gateway:
                given: Any = [noon(first)] if is_answered else "Something else"
                status, second, _ = await gateway.ask(**here, input=given)
                assert status == 200, second
                assert types(second) == ["function_call", "function_call_output", "message"]
                words = {m["tool_call_id"]: m["content"] for m in _messages(scripted) if m["role"] == "tool"}
                assert [UNKNOWN in word for word in words.values()].count(True) == 1
                assert len(words) == 2
                status, _, _ = await gateway.ask("Bye", **here)
                assert status == 200
                assert sum(UNKNOWN in str(m["content"]) for m in _messages(scripted)) == 1
        assert len(server.calls("slow")) == 1


@pytest.mark.proves("D-23", "D-32")
@aio(90)
async def test_a_background_response_that_another_gateway_ends_has_gone_on_with_what_waited(
    tmp_path: Path, url: str
) -> None:
    storage = shared(tmp_path, url)
    model = ScriptedModel([call("slow", seconds=60), call("get_time")], say("I shall look."), say("Bye."))
    async with FaultyMCPServer() as server, model.serve() as scripted:
        file = tmp_path / "gateway.yaml"
        config = gateway_file(scripted.url, {"sums": server}) | {"storage": storage, "background": {"durable": True}}
        file.write_bytes(orjson.dumps(config))
        async with process_of(file) as gateway:
            _, made, _ = await gateway.send("POST", "/v1/conversations", {})
            here = {"conversation": made["id"], "tools": [GET_TIME]}
            _, first, _ = await gateway.ask("Go", **here)
            _, queued, _ = await gateway.ask(**here, input=[noon(first)], background=True)
            await server.received("tools/call", name="slow")
            gateway.stop(signal.SIGKILL)
            await gateway.ended()
        async with process_of(file) as gateway:
            status, error, _ = await gateway.ask(**here, input=[noon(first)])
            assert (status, error["error"]["code"] in ("conversation_locked", "duplicate_tool_output")) == (400, True)
            await gateway.send("GET", f"/v1/responses/{queued['id']}?stream=true")
            _, ended, _ = await gateway.send("GET", f"/v1/responses/{queued['id']}")
            assert (ended["status"], types(ended)[-1]) == ("completed", "message")
            status, _, _ = await gateway.ask("Bye", **here)
            assert status == 200
            assert [m["role"] for m in _messages(scripted)].count("tool") == 2
            assert sum(UNKNOWN in str(m["content"]) for m in _messages(scripted)) == 1
        assert len(server.calls("slow")) == 1


@pytest.mark.proves("D-23", "D-28", "D-16")
@aio(90)
async def test_a_background_response_that_died_with_its_gateway_can_be_gone_on_from(tmp_path: Path) -> None:
    model = ScriptedModel([call("slow", seconds=60), call("get_time")], say("Bye."))
    async with FaultyMCPServer() as server, model.serve() as scripted:
        file = tmp_path / "gateway.yaml"
        file.write_bytes(orjson.dumps(gateway_file(scripted.url, {"sums": server})))
        async with process_of(file) as gateway:
            _, first, _ = await gateway.ask("Go", tools=[GET_TIME])
            before = {"previous_response_id": first["id"], "tools": [GET_TIME]}
            _, queued, _ = await gateway.ask(**before, input=[noon(first)], background=True)
            await server.received("tools/call", name="slow")
            gateway.stop(signal.SIGKILL)
            await gateway.ended()
        async with process_of(file) as gateway:
            _, failed, _ = await gateway.send("GET", f"/v1/responses/{queued['id']}")
            assert failed["status"] == "failed"
            status, answer, _ = await gateway.ask("And?", previous_response_id=queued["id"])
            assert status == 200, answer
            words = sorted(m["content"] for m in _messages(scripted) if m["role"] == "tool")
            assert [len(words), words[1]] == [2, "noon"]
            assert "not known whether" in words[0]
        assert len(server.calls("slow")) == 1


def _messages(scripted: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scripted.received[-1].json["messages"]
    return found


@pytest.mark.proves("D-23", "D-29")
@aio(90)
async def test_what_waits_is_taken_once_by_its_owner_and_may_be_given_back(tmp_path: Path, url: str) -> None:
    stores = [open_store(url, folder=tmp_path) for _ in range(2)]
    one, two = stores
    item = ConversationItem(id="fc_1", data=b"{}")
    try:
        await one.create_conversation(Conversation(id="c", owner="alice", created_at=1.0), [])
        assert await two.thread("c", "alice", limit=10) == Thread()
        assert await two.thread("c", "bob", limit=10) is None
        assert await one.add_items("c", "alice", [item], by="resp_1", waiting=b"calls")
        seen = await two.thread("c", "alice", limit=10)
        assert seen == Thread(items=(item,), end=1, waiting=b"calls")
        assert not await two.take("c", "bob", seen, "resp_9")
        taken = await asyncio.gather(*(store.take("c", "alice", seen, f"resp_{n}") for n, store in enumerate(stores)))
        assert sorted(taken) == [False, True]
        winner = taken.index(True)
        assert await stores[winner].take("c", "alice", seen, f"resp_{winner}"), "the same call again"
        for number, store in enumerate(stores):
            found = await store.thread("c", "alice", limit=10)
            assert found is not None
            assert (found.taken_by, found.is_taken_here) == (f"resp_{winner}", number == winner)
            assert found.is_taker_there
        await two.give_back("c", "alice", "resp_9")
        assert (await one.thread("c", "alice", limit=10)) != seen
        await two.give_back("c", "alice", f"resp_{winner}")
        assert await one.thread("c", "alice", limit=10) == seen
        await one.add_items("c", "alice", [ConversationItem(id="msg_1", data=b"{}")])
        assert not await one.take("c", "alice", seen, "resp_3"), "it has changed"
        newer = await one.thread("c", "alice", limit=10)
        assert newer is not None
        assert newer.waiting == b"calls"
        assert await one.take("c", "alice", newer, "resp_3")
        await one.close()
        left = await two.thread("c", "alice", limit=10)
        assert left is not None
        assert (left.taken_by, left.is_taker_there) == ("resp_3", False)
        await two.add_items("c", "alice", [], by="resp_3")
        ended = await two.thread("c", "alice", limit=1)
        assert ended == Thread(items=(item,), end=1)
    finally:
        for store in stores:
            await store.close()
