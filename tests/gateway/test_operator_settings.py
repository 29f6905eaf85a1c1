"""Settings of an operator: credentials of each server, limits, and errors that name the wrong field."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.lib.errors import ConfigError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend, wait

ADD = {"type": "function", "name": "add", "description": "Mine.", "parameters": {"type": "object"}, "strict": False}
CALLED = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
ANSWERED = {"type": "function_call_output", "call_id": "call_1", "output": "3"}


def _remote(name: str, server: FaultyMCPServer, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "mcp", "description": name, "transport": "http", "url": server.url, **more}


@pytest.mark.proves("004:US3-1", "004:FR-011", "004:FR-012", "004:FR-015", "004:FR-016", "004:SC-003")
@async_test(30)
async def test_each_server_gets_its_own_key_from_the_environment(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("regional", region="eu")], say("Done."))
    async with (
        FaultyMCPServer("requires-token", token="one") as one,
        FaultyMCPServer("requires-token", token="two", era="modern") as two,
        run_gateway(
            tmp_path,
            model,
            environ={"ONE": "one", "TWO": "two"},
            mcp_servers=[
                _remote("first", one, headers={"Authorization": "Bearer ${ONE}"}),
                _remote("second", two, headers={"Authorization": "Bearer ${TWO}"}),
            ],
        ) as gateway,
    ):
        response = await (await gateway.openai_client()).responses.create(model=MODEL, input="Go")
        assert response.output_text == "Done."
        for server, token in ((one, "one"), (two, "two")):
            assert {request.headers.get("authorization") for request in server.requests} == {f"Bearer {token}"}
            assert len(server.calls()) == 1


@pytest.mark.proves("004:US3-2", "004:US1-3")
@async_test(30)
async def test_wrong_credentials_are_shown_to_the_operator_and_the_request_is_answered(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer("requires-token", token="right") as server,
        run_gateway(
            tmp_path,
            ScriptedModel(say("Without it.")),
            environ={"KEY": "wrong"},
            mcp_servers=[_remote("locked", server, headers={"Authorization": "Bearer ${KEY}"})],
        ) as gateway,
    ):
        response = await (await gateway.openai_client()).responses.create(model=MODEL, input="Go")
        assert response.output_text == "Without it."
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        assert "401" in listed["data"][0]["last_error"]
        assert "wrong" not in repr(listed)


@pytest.mark.proves("004:US1-1", "004:FR-001", "004:FR-002", "004:FR-003")
@pytest.mark.parametrize("transport", ["http", "sse"])
@async_test(30)
async def test_the_first_request_connects_and_later_ones_use_what_it_found(tmp_path: Path, transport: Any) -> None:
    model = ScriptedModel(*[turn for _ in range(3) for turn in (call("add", a=1, b=2), say("3."))])
    async with (
        FaultyMCPServer(transport=transport) as server,
        run_gateway(tmp_path, model, mcp_servers=[_remote("sums", server, transport=transport)]) as gateway,
    ):
        assert not server.requests
        client = await gateway.openai_client()
        for _ in range(3):
            assert (await client.responses.create(model=MODEL, input="Go")).output_text == "3."
        methods = [request.method for request in server.requests]
        assert (methods.count("initialize"), methods.count("tools/list"), len(server.calls())) == (1, 1, 3)


@pytest.mark.proves("004:FR-009", "004:FR-010")
@async_test(30)
async def test_a_function_of_the_client_beats_a_tool_of_the_same_name(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(call("add", a=1, b=2)), mcp={"sums": server}) as gateway,
    ):
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": [ADD]})
        assert [(item["type"], item["name"]) for item in response["output"]] == [("function_call", "add")]
        assert not server.calls()
        offered = [tool["function"] for tool in gateway.model_requests[0]["tools"]]
        assert [tool["description"] for tool in offered if tool["name"] == "add"] == ["Mine."]
        assert "echo" in [tool["name"] for tool in offered]


@pytest.mark.proves("004:EDGE-3")
@async_test(30)
async def test_a_tool_result_that_is_not_json_is_an_error_that_names_the_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Odd."))
    async with (
        FaultyMCPServer("bad-json", on="tools/call") as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
    ):
        assert (await (await gateway.openai_client()).responses.create(model=MODEL, input="Go")).output_text == "Odd."
        assert "sums" in gateway.model_requests[1]["messages"][-1]["content"]


@pytest.mark.proves("D-29")
@async_test(30)
async def test_without_keys_a_gateway_serves_loopback_addresses_and_hosts_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without keys"):
        async with run_gateway(tmp_path, listen={"host": "0.0.0.0", "port": 0}):
            pass
    async with run_gateway(tmp_path) as gateway:
        session = await gateway.http_client()
        async with session.get("/v1/models", headers={"host": "evil.example"}) as answer:
            assert answer.status == 421
        async with session.get("/v1/models", headers={"origin": "https://evil.example"}) as answer:
            assert answer.status == 403


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_request_over_a_limit_gets_429_with_retry_after(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(900, 200)])
    async with run_gateway(tmp_path, model, limits={"key": {"tokens_per_minute": 1_000}}) as gateway:
        client = await gateway.openai_client()
        await client.responses.create(model=MODEL, input="Hi")
        for request in (client.responses.create(model=MODEL, input="Hi"), _chat(client)):
            with pytest.raises(openai.RateLimitError) as refused:
                await request
            assert 1 <= int(refused.value.response.headers["retry-after"]) <= 60
    async with run_gateway(tmp_path, model, limits={"key": {"requests_per_minute": 1}}) as gateway:
        client = await gateway.openai_client()
        await _chat(client)
        with pytest.raises(openai.RateLimitError):
            await client.responses.create(model=MODEL, input="Hi")


@async_test(30)
async def test_a_background_response_counts_until_it_has_ended(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("begun"), wait(asyncio.Event())])
    async with run_gateway(tmp_path, model, limits={"key": {"in_flight": 2}, "drain_seconds": 0}) as gateway:
        client = await gateway.openai_client()
        first, _ = [await client.responses.create(model=MODEL, input="Hi", background=True) for _ in range(2)]
        with pytest.raises(openai.RateLimitError):
            await client.responses.create(model=MODEL, input="Hi", background=True)
        await client.responses.cancel(first.id)
        await client.responses.create(model=MODEL, input="Hi", background=True)
        # Otherwise the model would be called during the shutdown.
        while len(gateway.model_requests) < 3:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0)


async def _chat(client: openai.AsyncOpenAI) -> object:
    return await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_request_that_cannot_be_answered_says_which_field_is_wrong(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits={"body_bytes": 2_048}) as gateway:
        for body, status, param in (
            ({"model": MODEL}, 400, "input"),
            ({"model": MODEL, "input": "x", "temperature": "hot"}, 400, "temperature"),
            ({"model": MODEL, "input": "x", "nonsense": 1}, 400, "nonsense"),
            ({"model": MODEL, "input": [{"type": "riddle"}]}, 400, "input[0].type"),
            (
                {"model": MODEL, "input": "x", "tools": [{"type": "mcp", "server_label": "gone"}]},
                400,
                "tools[0].server_label",
            ),
            ({"model": MODEL, "input": []}, 400, "input"),
            ({"model": MODEL, "input": [CALLED]}, 400, "input"),
            ({"model": MODEL, "input": [ANSWERED, CALLED]}, 400, "input"),
            ({"model": MODEL, "input": [CALLED, ANSWERED, ANSWERED]}, 400, "input"),
            ({"model": "other", "input": "x"}, 404, "model"),
            ({"model": MODEL, "input": "x" * 4_096}, 413, None),
        ):
            answered, error = await gateway.send("POST", "/v1/responses", body)
            assert (answered, error["error"]["param"]) == (status, param)
        assert (await gateway.send("GET", "/v1/responses"))[0] == 405
        assert (await gateway.send("GET", "/v1/nothing"))[0] == 404
        assert not gateway.model_requests


@async_test(30)
async def test_a_gateway_with_one_model_needs_no_model_in_a_request_of_any_api(tmp_path: Path) -> None:
    model = ScriptedModel(say("One."), say("Two."), say("Three."))
    async with run_gateway(tmp_path, model) as gateway:
        ask = [{"role": "user", "content": "Hi"}]
        for path, body in (
            ("/v1/responses", {"input": "Hi"}),
            ("/v1/chat/completions", {"messages": ask}),
            ("/v1/messages", {"messages": ask, "max_tokens": 50}),
            ("/v1/responses/compact", {"input": "Hi"}),
        ):
            status, answer = await gateway.send("POST", path, body)
            assert status == 200, (path, answer)
            assert answer.get("model", MODEL) == MODEL
