"""Sessions of clients up to 2025-11-25: they belong to one caller, and a lost connection loses no message."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from async_tests import async_test
from gateway.mcp_endpoint.raw_client import build_call, build_modern_request, build_request, raw_client, read_events
from gateway.running_gateway import run_gateway

from holodeck.gateway.mcp_endpoint.posted_messages import MAX_BATCH
from holodeck.lib.limits import MIB
from holodeck.mcp_server.methods import MAX_SUBSCRIPTIONS
from holodeck.testing import FaultyMCPServer


@pytest.mark.proves("D-38")
@async_test
async def test_a_client_that_loses_its_connection_in_a_call_comes_back_for_the_rest(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"all": server}) as gateway,
        raw_client(gateway) as client,
    ):
        await client.initialize()
        async with client.post(build_call("slow", seconds=1, steps=2)) as reply:
            assert reply.content_type == "text/event-stream"
            events = read_events(reply)
            assert (await anext(events))[1] is None
            last_id, message = await anext(events)
            assert message["params"]["progress"] == 1
        async with client.open_stream(last_id) as reply:
            rest = [message async for _, message in read_events(reply)]
        assert [message.get("method", message.get("id")) for message in rest] == ["notifications/progress", 1]
        assert rest[-1]["result"]["content"][0]["text"] == "done"
        assert len(server.calls("slow")) == 1


@pytest.mark.proves("D-38")
@async_test
async def test_the_first_event_of_a_stream_is_empty_only_for_clients_that_know_it(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, run_gateway(tmp_path, mcp={"all": server}) as gateway:
        for version, is_empty in (("2025-06-18", False), ("2025-11-25", True)):
            async with raw_client(gateway, version=version) as client:
                await client.initialize()
                async with client.post(build_call("slow", seconds=0.1, steps=1)) as reply:
                    first = await anext(read_events(reply))
                    assert (first[1] is None) is is_empty


@pytest.mark.proves("D-38", "D-29")
@async_test
async def test_a_session_is_not_found_by_another_caller(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"all": server}, keys=["hd-ada", "hd-eve"]) as gateway,
        raw_client(gateway, key="hd-ada") as ada,
        raw_client(gateway, key="hd-eve") as eve,
    ):
        await ada.initialize()
        eve.session_id = ada.session_id
        status, answer = await eve.send(build_call("add", a=1, b=1))
        assert (status, answer["error"]["message"]) == (404, "Session not found: it has ended. Initialize anew.")
        assert await eve.end() == 404
        assert (await ada.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}))["content"]


@pytest.mark.proves("D-38")
@async_test
async def test_a_session_of_one_server_is_not_one_of_all(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"all": server}) as gateway,
        raw_client(gateway, path="/mcp/all") as one,
        raw_client(gateway) as every,
    ):
        await one.initialize()
        every.session_id = one.session_id
        assert (await every.send(build_request("tools/list")))[0] == 404


@pytest.mark.proves("D-38")
@async_test
async def test_a_session_that_was_ended_is_gone(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway, raw_client(gateway) as client:
        await client.initialize()
        assert await client.end() == 204
        assert (await client.send(build_request("ping")))[0] == 404


@pytest.mark.proves("D-38")
@async_test
async def test_a_request_without_a_session_is_answered_by_itself(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"all": server}) as gateway,
        raw_client(gateway) as client,
    ):
        result = await client.request("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
        assert result["content"][0]["text"] == "5"


@pytest.mark.proves("D-38")
@async_test
async def test_a_batch_is_answered_in_the_one_version_that_has_batches(tmp_path: Path) -> None:
    batch = [build_request("ping", request_id=1), build_call("add", 2, a=1, b=1)]
    async with FaultyMCPServer() as server, run_gateway(tmp_path, mcp={"all": server}) as gateway:
        async with raw_client(gateway, version="2025-03-26") as client:
            await client.initialize()
            status, answers = await client.send(batch)
            assert (status, [answer["id"] for answer in answers]) == (200, [1, 2])
        async with raw_client(gateway) as client:
            await client.initialize()
            assert (await client.send(batch))[0] == 400


@pytest.mark.proves("D-38", "D-29")
@async_test
async def test_a_batch_that_is_too_long_or_over_a_limit_is_refused_before_any_of_it_runs(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"all": server}, limits={"key": {"in_flight": 3}}) as gateway,
        raw_client(gateway, version="2025-03-26") as client,
    ):
        await client.initialize()
        status, refused = await client.send([build_call("add", number, a=1, b=1) for number in range(MAX_BATCH + 1)])
        assert (status, refused["error"]["code"]) == (400, -32600)
        assert refused["error"]["message"] == "A batch has at most 100 messages, and this one has 101"
        status, refused = await client.send([build_call("add", number, a=1, b=1) for number in range(4)])
        assert (status, "limit of 3 requests at once" in refused["error"]["message"]) == (429, True)
        assert server.calls() == []
        status, answers = await client.send([build_request("ping", request_id=number) for number in range(MAX_BATCH)])
        assert (status, len(answers)) == (200, MAX_BATCH)
        assert (await client.send([build_call("add", number, a=1, b=1) for number in range(3)]))[0] == 200


@pytest.mark.proves("D-38", "D-29")
@async_test
async def test_a_client_without_a_key_is_told_how_to_get_one(tmp_path: Path) -> None:
    issuer = "https://login.example.com"
    identity = {"issuer": issuer, "audience": "gateway", "jwks_url": f"{issuer}/keys"}
    async with run_gateway(tmp_path, jwt=identity) as gateway, raw_client(gateway, key="wrong") as client:
        async with client.post(build_request("ping")) as reply:
            assert reply.status == 401
            challenge = reply.headers["www-authenticate"]
        address = challenge.removeprefix('Bearer resource_metadata="').removesuffix('"')
        assert address == f"{gateway.url}/.well-known/oauth-protected-resource/mcp"
        status, metadata = await gateway.send("GET", address.removeprefix(gateway.url), key="wrong")
        assert status == 200
        assert metadata["authorization_servers"] == ["https://login.example.com"]
        assert metadata["resource"] == f"{gateway.url}/mcp"


@pytest.mark.proves("D-38")
@async_test
async def test_an_operator_can_switch_the_endpoint_off(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, mcp_endpoint={"enabled": False}) as gateway:
        status, answer = await gateway.send("POST", "/mcp", build_request("ping"))
        assert status == 404
        assert "'mcp_endpoint: {enabled: false}'" in answer["error"]["message"]


@pytest.mark.proves("D-38", "D-29")
@async_test
async def test_calls_count_against_the_limits_of_a_key_and_answers_to_questions_do_not(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(
            tmp_path, mcp={"all": server}, keys=["hd-ada"], limits={"drain_seconds": 0, "key": {"in_flight": 1}}
        ) as gateway,
        raw_client(gateway, key="hd-ada") as client,
    ):
        await client.initialize({"elicitation": {}})
        async with client.post(build_call("ask_elicitation", 1)) as reply:
            question = await _read_question(reply)
            assert (await client.send(build_call("add", 2, a=1, b=1)))[0] == 429
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "A"}}}
            assert (await client.send(answer))[0] == 202
            assert b"accept" in await reply.content.read()
        assert (await client.send(build_call("add", 3, a=1, b=1)))[0] == 200


@pytest.mark.proves("D-38", "D-29")
@async_test
async def test_a_stream_on_which_a_client_listens_counts_apart_from_requests(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "key": {"in_flight": 1, "mcp_streams": 1}}
    listen, headers = build_modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"all": server}, keys=["hd-ada"], limits=limits) as gateway,
        raw_client(gateway, key="hd-ada") as client,
        raw_client(gateway, key="hd-ada", version="2026-07-28") as modern,
    ):
        await client.initialize()
        async with client.open_stream() as reply:
            assert reply.status == 200
            assert (await client.send(build_call("add", a=1, b=1)))[0] == 200, "a stream takes no request away"
            async with client.open_stream() as second:
                assert second.status == 429
                assert "1 streams of MCP clients" in await second.text()
            assert (await modern.send(listen, **headers))[0] == 429
        # The gateway notices a little later that the client has left.
        status = 429
        while status == 429:
            async with modern.post(listen, **headers) as reply:
                status = reply.status
                if status == 200:
                    async with client.open_stream() as second:
                        assert second.status == 429
        assert status == 200


@pytest.mark.proves("D-38")
@async_test
async def test_an_event_that_is_not_known_is_refused_whatever_its_id(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway, raw_client(gateway) as client:
        await client.initialize()
        for last_id in ("7.1", "0", "0.x", "0.", ".1", "0.-1", "0." + "9" * 5_000, "9" * 5_000 + ".1"):
            async with client.open_stream(last_id) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (400, -32600), last_id[:10]


async def _read_question(reply: aiohttp.ClientResponse) -> dict[str, Any]:
    """The first request of the server in a stream."""
    async for _, message in read_events(reply):
        if message is not None and "method" in message and "id" in message:
            return dict(message)
    raise AssertionError("the stream has no question")


@pytest.mark.proves("D-38")
@async_test
async def test_a_page_of_an_allowed_origin_can_read_the_id_of_its_session(tmp_path: Path) -> None:
    origin = "https://app.example.com"
    async with run_gateway(tmp_path, cors_origins=[origin]) as gateway, raw_client(gateway) as client:
        params = {"protocolVersion": client.version, "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}}
        async with client.post(build_request("initialize", params), origin=origin) as reply:
            assert reply.headers["access-control-allow-origin"] == origin
            assert "mcp-session-id" in reply.headers["access-control-expose-headers"].split(", ")


@pytest.mark.proves("D-38", "D-29")
@async_test(60)
async def test_what_streams_keep_is_in_the_budget_and_is_dropped_when_others_need_it(tmp_path: Path) -> None:
    text, limits = "x" * 400_000, {"body_bytes": MIB, "bodies_bytes": 4 * MIB}
    async with FaultyMCPServer() as server, run_gateway(tmp_path, mcp={"all": server}, limits=limits) as gateway:
        budget, last_ids = gateway.service.budget, []
        async with raw_client(gateway) as client:
            await client.initialize()
            assert (await client.send(build_call("echo", text=text)))[0] == 200
            assert budget.used < 1_000, "an answer that was not a stream is not kept"
            for number in range(16):
                async with client.post(build_call("echo", number, text=text), accept="text/event-stream") as reply:
                    events = [(event_id, message) async for event_id, message in read_events(reply)]
                assert events[-1][1]["result"]["content"][0]["text"] == text, "no call is refused for what is kept"
                last_ids.append(events[0][0])
            assert budget.used > 2 * MIB
            for last_id, status in ((last_ids[0], 400), (last_ids[-1], 200)):
                async with client.open_stream(last_id) as reply:
                    assert reply.status == status
                    assert (text in await reply.text()) is (status == 200)
            await client.end()
            while budget.used:
                assert (await client.send(build_request("ping")))[0] == 404


@pytest.mark.proves("D-38", "D-29")
@async_test(60)
async def test_what_a_client_sends_is_kept_after_its_request_only_within_the_budget(tmp_path: Path) -> None:
    long, limits = "x" * 400_000, {"body_bytes": MIB, "bodies_bytes": MIB}
    call = {"name": "add", "arguments": {"a": 1, "b": 1}, "padding": long}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FaultyMCPServer())
        entry = {"name": "all", "transport": "http", "url": server.url, "approval": "always"}
        gateway = await stack.enter_async_context(run_gateway(tmp_path, mcp_servers=[entry], limits=limits))
        budget = gateway.service.budget
        async with raw_client(gateway, version="2026-07-28") as client:
            paused = await client.request_modern("tools/call", call, {"elicitation": {}})
            assert paused["resultType"] == "input_required"
            assert budget.used > len(long)
            others = [await client.request_modern("tools/call", call, {"elicitation": {}}) for _ in range(2)]
            assert "message" in others[-1], "what cannot be kept is refused"
            answers = {key: {"action": "decline"} for key in paused["inputRequests"]}
            more = {"requestState": paused["requestState"], "inputResponses": answers}
            assert "content" in await client.request_modern("tools/call", {**call, **more}, {"elicitation": {}})
        tracemalloc.start()
        async with raw_client(gateway) as client:
            for _ in range(8):
                await client.initialize({"elicitation": {}, "experimental": {"padding": long}})
            kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 4 * len(long), "a session keeps of the capabilities of its client only what it uses"


@pytest.mark.proves("D-38")
@async_test
async def test_a_resource_is_watched_once_however_often_a_client_names_it(tmp_path: Path) -> None:
    uri = "test://notes.txt"
    async with FaultyMCPServer() as server:
        entry = {"name": "all", "transport": "http", "url": server.url, "protocol": "legacy"}
        async with (
            run_gateway(tmp_path, mcp_servers=[entry]) as gateway,
            raw_client(gateway) as client,
            raw_client(gateway, version="2026-07-28") as modern,
        ):
            too_many = [f"test://{number}" for number in range(MAX_SUBSCRIPTIONS + 1)]
            refused = await modern.request_modern("subscriptions/listen", _watching(too_many))
            assert f"at most {MAX_SUBSCRIPTIONS} resources" in refused["message"]
            listen, headers = build_modern_request("subscriptions/listen", _watching([uri] * 10_000))
            async with modern.post(listen, **headers) as reply:
                lines = (line async for line in reply.content if line.startswith(b"data: "))
                assert (await anext(lines)).count(uri.encode()) == 1
                await server.received("resources/subscribe")
            await server.received("resources/unsubscribe")
            await client.initialize()
            watch = build_request("resources/subscribe", {"uri": uri})
            await asyncio.gather(client.send(watch), client.send({**watch, "id": 2}))
            await client.request("resources/unsubscribe", {"uri": uri})
            await server.received("resources/unsubscribe", count=2)


def _watching(uris: list[str]) -> dict[str, Any]:
    return {"notifications": {"resourceSubscriptions": uris}}
