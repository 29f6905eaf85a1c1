"""Sessions of MCP clients behind several gateways with one database: any of them answers any request."""

from __future__ import annotations

import asyncio
import shutil
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process
from gateway.mcp_endpoint.raw_client import RawClient, build_call, build_request, raw_client, read_events
from gateway.mcp_endpoint.request_balancer import run_balancer
from gateway.mcp_endpoint.sdk_client import connect, text_of
from gateway.running_gateway import gateway_config, run_gateway
from installed_servers import PACKAGES
from mcp import MCPDeprecationWarning, types

from holodeck.lib.byte_budget import Reservation
from holodeck.lib.limits import MIB
from holodeck.testing import FaultyMCPServer

SECONDS = 120.0
KEYS = ("hd-ada", "hd-eve")
OPERATOR = "hd-operator"
NOTES = "test://notes.txt"
LOST = "The gateway that ran this request has ended. Whether it was done is not known. The session goes on."


@dataclass
class Group:
    """Gateways with one database, and the MCP server behind them."""

    gateways: list[GatewayProcess]
    server: FaultyMCPServer
    stack: AsyncExitStack

    async def client(self, place: int, key: str = KEYS[0], like: RawClient | None = None) -> RawClient:
        """A client at one of them, with the session of another client."""
        http = aiohttp.ClientSession(
            self.gateways[place].url,
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        client = RawClient(await self.stack.enter_async_context(http), "/mcp", "2025-11-25")
        client.session_id = None if like is None else like.session_id
        return client


@asynccontextmanager
async def run_group(folder: Path, storage: Mapping[str, Any], count: int = 2, **config: Any) -> AsyncIterator[Group]:
    """`storage`: as the fixture has it."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FaultyMCPServer(era="legacy"))
        file = folder / "gateway.yaml"
        written = gateway_config("http://127.0.0.1:9/v1", {"all": server}, KEYS, admins=[OPERATOR])
        file.write_bytes(orjson.dumps({**written, "storage": storage["storage"], **config}))
        environ = storage.get("environ", {})
        gateways = [await stack.enter_async_context(run_gateway_process(file, environ=environ)) for _ in range(count)]
        yield Group(gateways=gateways, server=server, stack=stack)


@pytest.mark.proves("D-38")
@async_test(SECONDS)
async def test_a_session_of_one_gateway_is_served_by_another(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_group(tmp_path, storage, 3) as group:
        first = await group.client(0)
        await first.initialize()
        for place in (1, 2, 0, 1):
            client = await group.client(place, like=first)
            assert (await client.request("tools/call", {"name": "add", "arguments": {"a": place, "b": 1}}))["content"][
                0
            ]["text"] == str(place + 1)
        assert await (await group.client(2, like=first)).end() == 204
        for place in range(3):
            assert (await (await group.client(place, like=first)).send(build_request("ping")))[0] == 404


@pytest.mark.proves("D-38")
@async_test(SECONDS)
async def test_a_question_is_answered_and_a_call_cancelled_at_another_gateway(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_group(tmp_path, storage) as group:
        first = await group.client(0)
        await first.initialize({"elicitation": {}})
        second = await group.client(1, like=first)
        for asking, answering in ((first, second), (second, first)):
            async with asking.post(build_call("ask_elicitation")) as reply:
                question = await _read_question(reply)
                answer = {"action": "accept", "content": {"name": "Ada"}}
                assert (await answering.send({"jsonrpc": "2.0", "id": question["id"], "result": answer}))[0] == 202
                assert "Ada" in await reply.text()
        async with first.post(build_call("slow", 7, seconds=60, steps=600)) as reply:
            await anext(read_events(reply))
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
            assert (await second.send({"jsonrpc": "2.0", **cancelled}))[0] == 202
            await reply.read()
        await group.server.received("notifications/cancelled")


@pytest.mark.proves("D-38")
@async_test(SECONDS)
async def test_a_stream_is_gone_on_with_at_another_gateway(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_group(tmp_path, storage) as group:
        first = await group.client(0)
        await first.initialize()
        second = await group.client(1, like=first)
        for starting, resuming in ((first, second), (second, first)):
            async with starting.post(build_call("slow", 5, seconds=1, steps=2)) as reply:
                events = read_events(reply)
                assert (await anext(events))[1] is None
                last_id, message = await anext(events)
                assert message["params"]["progress"] == 1
            async with resuming.open_stream(last_id) as reply:
                rest = [message async for _, message in read_events(reply)]
            assert [message.get("method", message.get("id")) for message in rest] == ["notifications/progress", 5]
            assert rest[-1]["result"]["content"][0]["text"] == "done"
        assert len(group.server.calls("slow")) == 2, "no call is run twice"


@pytest.mark.proves("D-38")
@async_test(SECONDS)
async def test_updates_of_a_resource_reach_a_stream_at_another_gateway(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_group(tmp_path, storage) as group:
        first = await group.client(0)
        await first.initialize()
        second = await group.client(1, like=first)
        async with second.open_stream() as reply:
            assert reply.status == 200
            assert (await second.send(build_request("resources/subscribe", {"uri": NOTES})))[0] == 200
            await group.server.received("resources/subscribe")
            await group.server.listening()
            await group.server.put_resource(NOTES)
            _, message = await anext(read_events(reply))
            assert (message["method"], message["params"]["uri"]) == ("notifications/resources/updated", NOTES)


@pytest.mark.proves("D-38", "D-29")
@async_test(SECONDS)
async def test_no_other_caller_finds_a_session_at_any_gateway(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_group(tmp_path, storage) as group:
        first = await group.client(0)
        await first.initialize()
        for place in range(2):
            foreign = await group.client(place, KEYS[1], like=first)
            assert (await foreign.send(build_call("add", a=1, b=1)))[0] == 404
            assert (await foreign.send(build_request("ping")))[0] == 404
            assert await foreign.end() == 404
            async with foreign.open_stream() as reply:
                assert reply.status == 404
        assert group.server.calls() == []
        assert (await (await group.client(1, like=first)).send(build_request("ping")))[0] == 200


@pytest.mark.proves("D-38", "D-29")
@async_test(SECONDS)
async def test_a_session_is_not_found_where_its_caller_has_another_scope(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_group(tmp_path, storage, 1) as group:
        first = await group.client(0)
        await first.initialize()
        file = tmp_path / "gateway.yaml"
        written = orjson.loads(file.read_bytes())
        written["keys"][0]["allow"] = {"tools": ["all.add"]}
        file.write_bytes(orjson.dumps(written))
        served = run_gateway_process(file, environ=storage.get("environ", {}))
        group.gateways.append(await group.stack.enter_async_context(served))
        elsewhere = await group.client(1, like=first)
        assert (await elsewhere.send(build_request("ping")))[0] == 404
        group.gateways[0].stop(signal.SIGKILL)
        await group.gateways[0].wait_exit()
        assert (await elsewhere.send(build_request("ping")))[0] == 404, "nor does it take the session over"


@pytest.mark.proves("D-38", "D-29")
@async_test(SECONDS)
async def test_a_revoked_key_ends_its_sessions_at_every_gateway_and_its_name_finds_none_again(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_group(tmp_path, storage) as group:
        operator = {"authorization": f"Bearer {OPERATOR}"}
        status, made, _ = await group.gateways[0].send("POST", "/v1/keys", {"name": "bob"}, operator)
        assert status in (200, 201), made
        first = await group.client(0, made["key"])
        await first.initialize()
        second = await group.client(1, made["key"], like=first)
        while (status := (await second.send(build_request("ping")))[0]) != 200:
            assert status == 401, "the other gateway learns of the key a little later"
        async with second.open_stream() as reply:
            assert reply.status == 200
            assert (await group.gateways[1].send("DELETE", "/v1/keys/bob", None, operator))[0] == 200
            with suppress(aiohttp.ClientPayloadError):
                await reply.read()
        for client in (first, second):
            while (status := (await client.send(build_request("ping")))[0]) != 401:
                assert status in (200, 404)
        _, again, _ = await group.gateways[0].send("POST", "/v1/keys", {"name": "bob"}, operator)
        for place in range(2):
            client = await group.client(place, again["key"], like=first)
            while (status := (await client.send(build_request("ping")))[0]) == 401:
                pass
            assert status == 404


@pytest.mark.proves("D-38")
@async_test(SECONDS)
async def test_a_session_outlives_its_gateway_and_a_call_in_it_is_answered_with_an_error(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_group(tmp_path, storage, 3) as group:
        first = await group.client(0)
        await first.initialize({"elicitation": {}})
        second, third = [await group.client(place, like=first) for place in (1, 2)]
        assert (await second.send(build_request("resources/subscribe", {"uri": NOTES})))[0] == 200
        assert (await second.send(build_request("logging/setLevel", {"level": "error"})))[0] == 200
        async with (
            first.post(build_call("slow", 5, seconds=600, steps=600)) as lost,
            second.post(build_call("slow", 6, seconds=600, steps=600)) as relayed,
        ):
            events = read_events(lost)
            last_id = (await anext(events))[0]
            await anext(read_events(relayed))
            await group.server.received("tools/call", count=2)
            group.gateways[0].stop(signal.SIGKILL)
            await group.gateways[0].wait_exit()
            told = (await relayed.text()).strip().rpartition("data: ")[2]
            assert orjson.loads(told)["error"]["message"] == LOST
        async with third.open_stream(last_id) as reply:
            (line,) = [line async for line in reply.content if line.startswith(b"data: ")]
        answer = orjson.loads(line.removeprefix(b"data: "))
        assert (answer["id"], answer["error"]["message"]) == (5, LOST)
        assert len(group.server.calls("slow")) == 2, "no call is run twice"
        assert (await second.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 2}}))["content"]
        await group.server.received("resources/subscribe", count=2)
        async with second.post(build_call("ask_elicitation")) as reply:
            assert await _read_question(reply), "what the client has declared is known"
            assert await third.end() == 204


@pytest.mark.proves("D-38")
@async_test(SECONDS)
async def test_a_gateway_that_stops_hands_its_sessions_over(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_group(tmp_path, storage) as group:
        first = await group.client(0)
        await first.initialize()
        second = await group.client(1, like=first)
        async with second.open_stream() as reply:
            assert reply.status == 200
            group.gateways[0].stop()
            assert await group.gateways[0].wait_exit() == 0
            assert await reply.text() == ""
        assert (await second.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 2}}))["content"]


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("place", [0, 1], ids=["holder", "other"])
@async_test(SECONDS)
async def test_a_relayed_call_is_answered_before_either_of_its_gateways_stops(
    tmp_path: Path, storage: dict[str, Any], place: int
) -> None:
    async with run_group(tmp_path, storage, limits={"drain_seconds": 60}) as group:
        first = await group.client(0)
        await first.initialize()
        second = await group.client(1, like=first)
        async with second.post(build_call("slow", 5, seconds=3, steps=3)) as reply:
            await anext(read_events(reply))
            group.gateways[place].stop()
            answers = [message async for _, message in read_events(reply)]
            assert answers[-1]["result"]["content"][0]["text"] == "done"
        assert await group.gateways[place].wait_exit() == 0
        still = await group.client(1 - place, like=first)
        assert (await still.send(build_request("ping")))[0] == 200


@pytest.mark.proves("D-38", "D-29")
@async_test(SECONDS)
async def test_what_is_relayed_is_in_the_budgets_of_both_gateways(tmp_path: Path, storage: dict[str, Any]) -> None:
    text, limits = "x" * 400_000, {"body_bytes": MIB, "bodies_bytes": 4 * MIB}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"all": server}, limits=limits, **storage) as one,
        run_gateway(tmp_path, mcp={"all": server}, limits=limits, **storage) as other,
        raw_client(one) as first,
        raw_client(other) as second,
    ):
        await first.initialize()
        second.session_id = first.session_id
        status, answer = await second.send(build_call("echo", text=text))
        assert (status, answer["result"]["content"][0]["text"]) == (200, text)
        with Reservation(one.service.budget) as taken:
            taken.extend(one.service.budget.available - len(text))
            status, refused = await second.send(build_call("echo", text=text))
            assert (status, "limit of bytes" in refused["error"]["message"]) == (429, True)
        assert len(server.calls("echo")) == 1
        for gateway in (one, other):
            while gateway.service.budget.used:
                assert (await second.send(build_request("ping")))[0] == 200


@pytest.mark.proves("D-38", "D-29")
@async_test(SECONDS)
async def test_a_paused_call_of_a_modern_client_goes_on_at_another_gateway(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    async with run_group(tmp_path, storage) as group:
        call = {"name": "ask_elicitation", "arguments": {}}
        clients = [await group.client(place, key) for place, key in ((0, KEYS[0]), (1, KEYS[0]), (1, KEYS[1]))]
        for client in clients:
            client.version = "2026-07-28"
        first, second, foreign = clients
        paused = await first.request_modern("tools/call", call, {"elicitation": {}})
        assert paused["resultType"] == "input_required", paused
        answers = {key: {"action": "accept", "content": {"name": "Ada"}} for key in paused["inputRequests"]}
        again = {**call, "requestState": paused["requestState"], "inputResponses": answers}
        refused = await foreign.request_modern("tools/call", again, {"elicitation": {}})
        assert "'requestState' is not known" in refused["message"]
        done = await second.request_modern("tools/call", again, {"elicitation": {}})
        assert "Ada" in done["content"][0]["text"]
        assert len(group.server.calls("ask_elicitation")) == 1


@pytest.mark.proves("D-38", "D-20")
@async_test(SECONDS)
async def test_the_official_client_for_python_has_one_session_behind_a_balancer(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        run_group(tmp_path, storage, 3) as group,
        run_balancer(tmp_path, [each.url for each in group.gateways]) as url,
        connect(url, "legacy", key=KEYS[0], elicitation_callback=answer, message_handler=heard.put) as client,
    ):
        for number in range(6):
            assert text_of(await client.call_tool("add", {"a": number, "b": 1})) == str(number + 1)
        for _ in range(3):
            assert "Ada" in text_of(await client.call_tool("ask_elicitation", {}))
        with pytest.warns(MCPDeprecationWarning):
            await client.subscribe_resource(NOTES)
        await group.server.received("resources/subscribe")
        await group.server.listening()
        await group.server.put_resource(NOTES)
        assert (await heard.get()).method == "notifications/resources/updated"


@pytest.mark.proves("D-38", "D-20")
@async_test(SECONDS)
async def test_the_official_client_for_typescript_has_one_session_behind_a_balancer(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    (tmp_path / "node_modules").symlink_to(PACKAGES)
    program = shutil.copy(Path(__file__).with_name("shared_session.mjs"), tmp_path)
    async with (
        run_group(tmp_path, storage, 3) as group,
        run_balancer(tmp_path, [each.url for each in group.gateways]) as url,
    ):
        process = await asyncio.create_subprocess_exec("node", program, f"{url}/mcp", KEYS[0], NOTES, stdout=PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"subscribed\n"
        await group.server.listening()
        await group.server.put_resource(NOTES)
        answers = orjson.loads(await process.stdout.read())
        assert await process.wait() == 0
    assert "Ada" in answers.pop("answer")
    assert answers == {"tools": True, "sums": ["3", "7"], "slow": "done", "updated": NOTES, "after": [404, 404, 404]}


async def _read_question(reply: aiohttp.ClientResponse) -> dict[str, Any]:
    """The first request of the server in a stream."""
    async for _, message in read_events(reply):
        if message is not None and "method" in message and "id" in message:
            return dict(message)
    raise AssertionError("the stream has no question")
