"""Models and MCP servers that are down, broken or killed: what the client gets, and what keeps working."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.lib.errors import ModelError
from holodeck.providers.wrappers.guarded import MODEL_BREAKER_FAILURES, MODEL_BREAKER_PAUSE
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say
from holodeck.testing.model.script import Turn, cut, page, raw, status, wait


@pytest.mark.proves("004:US1-3", "004:FR-017", "004:SC-004", "D-29")
@async_test(60)
async def test_a_server_that_is_down_fails_no_request_and_is_used_once_it_is_up(tmp_path: Path) -> None:
    model = ScriptedModel(say("Without."), call("add", a=1, b=2), say("With: 3."))
    async with (
        FaultyMCPServer(down=True) as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
    ):
        client = await gateway.openai_client()
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "Without."
        assert "tools" not in gateway.model_requests[0]
        for path in ("/healthz", "/readyz"):
            assert (await gateway.send("GET", path))[0] == 200
        _, servers = await gateway.send("GET", "/v1/mcp/servers")
        assert servers["data"][0]["last_error"]
        await server.come_up()
        assert (await gateway.send("POST", "/v1/mcp/servers/sums/refresh"))[1]["state"] == "connected"
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "With: 3."


@pytest.mark.proves("D-26")
@async_test(30)
async def test_a_tool_list_that_failed_is_sent_once_after_its_server_comes_up(tmp_path: Path) -> None:
    model = ScriptedModel(say("Without."), say("With."), say("Still."))
    async with FaultyMCPServer(down=True) as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:

        async def ask(previous: str | None = None) -> dict[str, Any]:
            tool = {"type": "mcp", "server_label": "sums", "require_approval": "never"}
            body = {"model": MODEL, "input": "Hi", "tools": [tool], "previous_response_id": previous}
            return dict((await gateway.send("POST", "/v1/responses", body))[1])

        first = await ask()
        assert first["output"][0]["error"]
        await server.come_up()
        await gateway.send("POST", "/v1/mcp/servers/sums/refresh")
        second = await ask(first["id"])
        assert [item["type"] for item in second["output"]] == ["mcp_list_tools", "message"]
        assert second["output"][0]["tools"]
        third = await ask(second["id"])
        assert [item["type"] for item in third["output"]] == ["message"]


@pytest.mark.parametrize(
    ("count", "names"), [(0, "There are none."), (2, "There are: s0, s1."), (22, "s18, s19 and 2 more.")]
)
@async_test(60)
async def test_an_unknown_server_is_refused_with_the_names_of_the_configured_ones(
    tmp_path: Path, count: int, names: str
) -> None:
    servers = [{"name": f"s{number}", "url": "http://127.0.0.1:9/mcp"} for number in range(count)]
    async with run_gateway(tmp_path, mcp_servers=servers) as gateway:
        declared = {"model": MODEL, "input": "Hi", "tools": [{"type": "mcp", "server_label": "filez"}]}
        for path, body, code in (("mcp/servers/filez/refresh", {}, 404), ("responses", declared, 400)):
            answered, reply = await gateway.send("POST", f"/v1/{path}", body)
            message = reply["error"]["message"]
            assert (answered, message.startswith("There is no MCP server 'filez' here. There are")) == (code, True)
            assert message.endswith(names)


@async_test(60)
async def test_a_dead_server_can_be_refreshed_by_several_operators_at_once(tmp_path: Path) -> None:
    async with FaultyMCPServer(down=True) as server, run_gateway(tmp_path, mcp={"sums": server}) as gateway:
        path = "/v1/mcp/servers/sums/refresh"
        for status_, shown in await asyncio.gather(*(gateway.send("POST", path) for _ in range(8))):
            assert (status_, "cannot be reached" in shown["last_error"]) == (200, True)
        await server.come_up()
        for _, shown in await asyncio.gather(*(gateway.send("POST", path) for _ in range(8))):
            assert (shown["state"], shown["last_error"]) == ("connected", None)


@pytest.mark.proves("004:FR-017", "004:SC-004", "D-14", "D-29")
@async_test(60)
async def test_a_dead_server_is_tried_again_in_the_background_and_no_request_waits_for_it(tmp_path: Path) -> None:
    model = ScriptedModel(*[say("Without.")] * 3, call("add", a=1, b=2), say("With: 3."))
    async with (
        FaultyMCPServer(down=True) as server,
        run_gateway(
            tmp_path, model, mcp={"sums": server}, limits={"discovery_seconds": 30, "drain_seconds": 0}
        ) as gateway,
    ):
        client = await gateway.openai_client()
        for _ in range(3):
            assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "Without."
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        shown = listed["data"][0]
        assert (shown["state"], "cannot be reached" in shown["last_error"]) == ("error", True)
        assert time.time() - 1 <= shown["next_try_at"] <= time.time() + 60
        await server.come_up()
        await server.received("tools/list")
        while (await gateway.send("GET", "/v1/mcp/servers"))[1]["data"][0]["last_error"]:
            pass
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        assert (listed["data"][0]["state"], listed["data"][0]["next_try_at"]) == ("connected", None)
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "With: 3."


@pytest.mark.proves("004:FR-017", "D-14")
@async_test(60)
async def test_a_server_that_never_answers_costs_the_first_request_its_limit_and_the_next_nothing(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(lambda _: say("Without."))
    async with (
        FaultyMCPServer("hangs-at-start") as server,
        run_gateway(
            tmp_path, model, mcp={"sums": server}, limits={"discovery_seconds": 0.2, "drain_seconds": 0}
        ) as gateway,
    ):
        client = await gateway.openai_client()
        declared: Any = [{"type": "mcp", "server_label": "sums", "require_approval": "never"}]
        for _ in range(20):
            response = await client.responses.create(model=MODEL, input="Hi", tools=declared)
            assert response.output_text == "Without."
            assert "not said yet" in str(response.output[0].error)  # type: ignore[union-attr]
        assert len([one for one in server.requests if one.method]) <= 2


@pytest.mark.proves("004:EDGE-1", "004:FR-018")
@async_test(60)
async def test_a_server_killed_in_a_call_is_an_error_for_the_model_and_is_used_again(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), call("add", a=1, b=2), say("3 after all."))
    async with (
        FaultyMCPServer("dies-mid-call", on="tools/call:slow", times=1) as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
    ):
        response = await (await gateway.openai_client()).responses.create(model=MODEL, input="Hi")
        assert response.output_text == "3 after all."
        tool_message = gateway.model_requests[1]["messages"][-1]
        assert (tool_message["role"], "sums" in tool_message["content"]) == ("tool", True)


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("fault", [status(404), page(), [say("Hal"), cut()], status(401), status(500)])
@async_test(60)
async def test_a_broken_model_is_a_server_error_and_the_next_request_is_answered(tmp_path: Path, fault: Turn) -> None:
    broken = True
    model = ScriptedModel(lambda _: fault if broken else say("Well again."))
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        with pytest.raises(openai.InternalServerError) as failed:
            await client.responses.create(model=MODEL, input="Hi")
        body = failed.value.body
        assert isinstance(body, dict)
        assert body["type"] == "server_error"
        broken = False
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "Well again."


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    "error",
    [
        {"message": "Too long.", "code": "context_length_exceeded", "type": "invalid_request_error"},
        {"message": "This model's maximum context length is 8192 tokens.", "code": 400},
        {"message": "prompt is too long: 210000 tokens > 200000 maximum", "type": "invalid_request_error"},
    ],
)
@async_test(60)
async def test_a_conversation_too_long_for_the_model_is_an_invalid_request(
    tmp_path: Path, error: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(*[status(400, {"error": error})] * 2)) as gateway:
        client = await gateway.openai_client(max_retries=2)
        with pytest.raises(openai.BadRequestError) as failed:
            await client.responses.create(model=MODEL, input="All of it", truncation="disabled")
        assert failed.value.code == "context_length_exceeded"
        assert len(gateway.model_requests) == 1, "a retry cannot succeed"
        events = await gateway.stream("/v1/responses", {"model": MODEL, "input": "All of it", "stream": True})
        assert (events[-2]["error"]["type"], events[-2]["code"]) == ("invalid_request", "context_length_exceeded")
        assert events[-1]["response"]["error"]["code"] == "context_length_exceeded"


@pytest.mark.proves("D-25", "D-31")
@pytest.mark.parametrize(
    ("fault", "raised", "headers"),
    [
        (status(429, retry_after="90"), openai.RateLimitError, {"retry-after": "90"}),
        (status(400, {"error": {"message": "No pictures."}}), openai.BadRequestError, {"x-should-retry": "false"}),
        (status(404), openai.InternalServerError, {"x-should-retry": "false"}),
        (status(500, retry_after="90"), openai.InternalServerError, {"retry-after": "90"}),
    ],
)
@async_test(60)
async def test_a_model_error_reaches_the_client_with_the_status_and_retry_headers_that_fit_it(
    tmp_path: Path, fault: Turn, raised: type[openai.APIStatusError], headers: dict[str, str]
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(fault)) as gateway:
        client = await gateway.openai_client()
        with pytest.raises(raised) as failed:
            await client.responses.create(model=MODEL, input="Hi")
        known = ("retry-after", "x-should-retry")
        assert {
            name: failed.value.response.headers[name] for name in known if name in failed.value.response.headers
        } == headers


@pytest.mark.proves("D-25")
@async_test(60)
async def test_a_request_to_a_briefly_busy_model_is_retried(tmp_path: Path) -> None:
    busy = ModelError("busy", status=429, retry_after=0.01)
    async with run_gateway(tmp_path, ScriptedModel(fail(busy), say("Now."))) as gateway:
        assert (await (await gateway.openai_client()).responses.create(model=MODEL, input="Hi")).output_text == "Now."


@pytest.mark.proves("D-25", "D-28")
@pytest.mark.parametrize("begins", [True, False])
@async_test(60)
async def test_a_model_that_falls_silent_ends_the_response_as_failed_and_the_next_is_answered(
    tmp_path: Path, begins: bool
) -> None:
    silent = wait(asyncio.Event())
    turn = [say("Hal"), silent] if begins else [raw(), silent]
    async with ScriptedModel(*[turn] * 2, say("Well again.")).serve() as stalling:
        llm = {"provider": "openai_compatible", "name": "m", "endpoint": stalling.url, "timeout": 0.2}
        async with run_gateway(tmp_path, models=[{"name": MODEL, "model": llm}]) as gateway:
            events = await gateway.stream("/v1/responses", {"model": MODEL, "input": "Hi", "stream": True})
            assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
            failed = events[-1]["response"]
            assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
            assert "0.2 s" in failed["error"]["message"]
            assert (await gateway.send("GET", f"/v1/responses/{failed['id']}"))[1] == failed
            client = await gateway.openai_client()
            with pytest.raises(openai.InternalServerError, match="silent" if begins else "begin"):
                await client.responses.create(model=MODEL, input="Hi")
            assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "Well again."
            await stalling.left.wait()


@pytest.mark.proves("D-25")
@async_test(60)
async def test_a_model_that_is_down_is_a_503_before_and_after_the_breaker_opens(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel()) as gateway:
        await gateway.model.stop()
        answers = [await _refusal(gateway, "/v1/responses") for _ in range(MODEL_BREAKER_FAILURES + 1)]
        assert {(status, error["code"], error["type"]) for status, _, error in answers} == {
            (503, "model_unavailable", "server_error")
        }
        assert all(int(after or 0) >= 1 for _, after, _ in answers)


_BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": MODEL, "input": "Hi"},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]},
}


async def _refusal(gateway: RunningGateway, path: str) -> tuple[int, str | None, Any]:
    """The status of one request, its `Retry-After`, and its error, if there is one."""
    async with (await gateway.http_client()).post(path, json=_BODIES[path]) as answer:
        return answer.status, answer.headers.get("Retry-After"), (await answer.json()).get("error")


@pytest.mark.proves("D-25", "D-31")
@pytest.mark.parametrize("path", _BODIES)
@async_test(60)
async def test_a_model_that_answers_429_gets_every_request_and_answers_as_soon_as_it_can(
    tmp_path: Path, path: str
) -> None:
    many = 2 * MODEL_BREAKER_FAILURES
    async with run_gateway(tmp_path, ScriptedModel(*[status(429, retry_after="90")] * many, say("Now."))) as gateway:
        for _ in range(many):
            code, after, error = await _refusal(gateway, path)
            assert (code, after, error["code"]) == (429, "90", "rate_limit_exceeded")
        assert (await _refusal(gateway, path))[0] == 200


@pytest.mark.proves("D-25", "D-31")
@pytest.mark.parametrize("path", _BODIES)
@async_test(60)
async def test_a_request_that_the_open_breaker_stops_is_a_503_with_retry_after(tmp_path: Path, path: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: status(500, retry_after="90"))) as gateway:
        for _ in range(MODEL_BREAKER_FAILURES):
            assert (await _refusal(gateway, path))[0] == 500
        code, after, error = await _refusal(gateway, path)
        assert (code, error["type"], error["code"]) == (503, "server_error", "model_unavailable")
        assert 1 <= int(after or 0) <= MODEL_BREAKER_PAUSE
        assert len(gateway.model_requests) == MODEL_BREAKER_FAILURES
        events = await gateway.stream("/v1/responses", _BODIES["/v1/responses"] | {"stream": True})
        assert (events[-1]["type"], events[-1]["response"]["error"]["code"]) == ("response.failed", "server_error")


@async_test(60)
async def test_a_caller_whose_requests_fail_does_not_take_the_model_from_the_others(tmp_path: Path) -> None:
    def answer(received: Any) -> Turn:
        return status(500, retry_after="90") if "bad" in str(received.json["messages"]) else say("Fine.")

    async with run_gateway(tmp_path, ScriptedModel(answer), keys=["alice", "bob"]) as gateway:
        alice, bob = await gateway.openai_client("alice"), await gateway.openai_client("bob")
        for _ in range(MODEL_BREAKER_FAILURES + 1):
            with pytest.raises(openai.InternalServerError):
                await alice.responses.create(model=MODEL, input="bad")
        assert len(gateway.model_requests) == MODEL_BREAKER_FAILURES, "it is left alone, for alice"
        for _ in range(3):
            assert (await bob.responses.create(model=MODEL, input="good")).output_text == "Fine."


@pytest.mark.proves("D-25", "D-31")
@pytest.mark.parametrize(
    ("fault", "wait_seconds"),
    [
        (status(503, retry_after="90"), "90"),
        (status(529, retry_after="90"), "90"),
        (raw({"choices": [{"index": 0, "delta": {"content": "Hal"}}]}, {"error": {"code": "overloaded_error"}}), "1"),
    ],
)
@async_test(60)
async def test_an_overloaded_provider_is_a_503_with_retry_after(tmp_path: Path, fault: Turn, wait_seconds: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(fault)) as gateway:
        code, after, error = await _refusal(gateway, "/v1/responses")
        assert (code, after, error["code"]) == (503, wait_seconds, "model_unavailable")
