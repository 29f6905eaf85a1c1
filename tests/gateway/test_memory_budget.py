"""One memory budget for the data of clients, MCP servers and models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.lib.limits import KIB, MIB
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Raw, Step, raw, think, wait

OWN = {"type": "function", "name": "own", "parameters": {"type": "object", "properties": {}}}
SMALL = {"drain_seconds": 0, "body_bytes": 64 * KIB, "bodies_bytes": MIB}


@pytest.mark.proves("D-17")
@async_test(60)
async def test_a_tool_output_over_the_memory_budget_is_a_failed_call_and_the_run_continues(tmp_path: Path) -> None:
    model = ScriptedModel(call("big", bytes=2 * MIB), call("big", bytes=200 * KIB), say("Half of it."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"files": server}, limits=SMALL) as gateway,
    ):
        status, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Read it"})
        assert (status, response["status"]) == (200, "completed")
        dropped, taken, _ = response["output"]
        assert "too many bytes of requests and answers are in memory at once" in str(dropped["error"])
        assert taken["output"].startswith("x")
        assert (await gateway.send("GET", "/readyz"))[0] == 200
        assert gateway.service.budget.used == 0


_LONG = "ab" * KIB
_DELTAS: dict[str, Callable[[], Step]] = {
    "many pieces": lambda: say(_LONG * 10),
    "one event": lambda: raw({"choices": [{"index": 0, "delta": {"content": _LONG * 10}}]}),
    "thoughts": lambda: think(_LONG * 10),
    "arguments": lambda: call("own", text=_LONG * 10),
    "calls": lambda: raw(
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "tool_calls": [
                            {"index": number, "id": f"c{number}", "function": {"name": "own", "arguments": "{}"}}
                            for number in range(100)
                        ]
                    },
                }
            ]
        }
    ),
}


@pytest.mark.proves("D-22")
@pytest.mark.parametrize("form", _DELTAS)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@async_test(60)
async def test_a_model_answer_over_the_limit_is_cut_and_the_response_is_incomplete(
    tmp_path: Path, form: str, is_streamed: bool
) -> None:
    delta, endless = _DELTAS[form](), wait(asyncio.Event())
    # A document has an end: an answer without one is only read as a stream.
    is_endless = is_streamed or isinstance(delta, Raw)
    model = ScriptedModel([delta, endless] if is_endless else delta, say("Next."), chunk=100)
    limits = {"drain_seconds": 0, "answer_bytes": 8 * KIB}
    async with run_gateway(tmp_path, model, limits=limits) as gateway:
        body = {"model": MODEL, "input": "Go on", "tools": [OWN], "stream": is_streamed}
        if is_streamed:
            response = (await gateway.stream("/v1/responses", body))[-1]["response"]
        else:
            response = (await gateway.send("POST", "/v1/responses", body))[1]
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert len(orjson.dumps(response["output"])) < 12 * KIB
        if is_endless:
            await gateway.model.left.wait()
        assert (await gateway.send("GET", f"/v1/responses/{response['id']}"))[1] == response
        assert (await (await gateway.openai_client()).responses.create(model=MODEL, input="Hi")).output_text == "Next."


@pytest.mark.proves("D-22")
@async_test(60)
async def test_a_document_many_times_over_the_limit_is_not_read_to_its_end(tmp_path: Path) -> None:
    limits = {"drain_seconds": 0, "answer_bytes": 8 * KIB}
    async with run_gateway(tmp_path, ScriptedModel(say("x" * 2 * MIB)), limits=limits) as gateway:
        status, refusal = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go on"})
        assert (status, refusal["error"]["type"]) == (500, "server_error")
        assert gateway.service.budget.used == 0


@pytest.mark.proves("D-17", "D-22")
@async_test(60)
async def test_a_document_is_counted_while_it_is_read(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("x" * 2 * MIB), say("short")), limits=SMALL) as gateway:
        body = {"model": MODEL, "input": "Write"}
        status, refusal = await gateway.send("POST", "/v1/responses", body)
        assert (status, refusal["error"]["code"]) == (503, "overloaded")
        assert gateway.service.budget.used == 0
        assert (await gateway.send("POST", "/v1/responses", body))[1]["status"] == "completed"


@pytest.mark.proves("D-22")
@async_test(60)
async def test_the_answers_of_all_turns_of_a_response_have_a_limit(tmp_path: Path) -> None:
    model = ScriptedModel(*[[say("x" * 3000), call("echo", text="more")]] * 4)
    limits = {"drain_seconds": 0, "answer_bytes": 4 * KIB, "response_bytes": 8 * KIB}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, limits=limits) as gateway,
    ):
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go on"})
        assert response["status"] == "incomplete"
        assert len(gateway.model_requests) == 3


@pytest.mark.proves("D-17", "D-22")
@async_test(60)
async def test_a_model_answer_over_the_memory_budget_is_cut_and_its_memory_released(tmp_path: Path) -> None:
    rest = asyncio.Event()
    long = say("b" * 600 * KIB)
    model = ScriptedModel([say("a" * 600 * KIB), wait(rest), say(" end")], long, long, chunk=64 * KIB)
    async with run_gateway(tmp_path, model, limits=SMALL) as gateway:
        body = {"model": MODEL, "input": "Write"}
        session = await gateway.http_client()
        async with session.post("/v1/responses", json={**body, "stream": True}, read_bufsize=MIB) as first:
            for _ in range(10):
                while not (await first.content.readline()).startswith(b"event: response.output_text.delta"):
                    pass
            # An answer that may be this long is streamed, and can be cut.
            _, second = await gateway.send("POST", "/v1/responses", {**body, "max_output_tokens": 30_000})
            assert (second["status"], second["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
            status, third = await gateway.send("POST", "/v1/responses", body)
            assert (status, third["error"]["code"]) == (503, "overloaded")
            rest.set()
            assert b"event: response.completed" in await first.read()
        assert gateway.service.budget.used == 0


@pytest.mark.proves("D-17")
@pytest.mark.parametrize("value", [b"{}", b'{"type": "input_text", "text": "a"}'], ids=["empty", "parts"])
@async_test(30)
async def test_many_small_values_count_for_the_memory_that_they_take(tmp_path: Path, value: bytes) -> None:
    """A parsed value takes hundreds of bytes, its text only a few."""
    content = b",".join([value] * 29_000)
    body = b'{"model": "%b", "input": [{"role": "user", "content": [%b]}]}' % (MODEL.encode(), content)
    limits = {"body_bytes": 2 * MIB, "bodies_bytes": 2 * MIB}
    async with run_gateway(tmp_path, limits=limits) as gateway:
        headers = {"content-type": "application/json"}
        async with (await gateway.http_client()).post("/v1/responses", data=body, headers=headers) as refused:
            assert (refused.status, (await refused.json())["error"]["code"]) == (413, "too_large")
        async with (await gateway.http_client()).ws_connect("/v1/responses") as socket:
            await socket.send_str(body.decode())
            assert (await socket.receive_json())["error"]["code"] == "too_large"
        assert not gateway.model_requests
        assert gateway.service.budget.used == 0
