"""What an operator's collector receives: a span for every part of a request, joined to the client's own trace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, wait_refused, write_gateway_file
from gateway.otlp_collector import run_collector
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.lib.errors import ConfigError
from holodeck.runtime import read_gateway
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend
from holodeck.testing.mcp.faults import Era
from holodeck.testing.model.script import status

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = f"00-{TRACE}-00f067aa0ba902b7-01"
ROUTE = "POST /v1/responses"
SECRET_WORDS = ("grapefruit", "pomegranate", "tamarind")
SECONDS = 90.0


async def _create_response(gateway: RunningGateway, **more: Any) -> dict[str, Any]:
    session = await gateway.http_client()
    headers = {"traceparent": CALLER, "tracestate": "vendor=1"}
    body = orjson.dumps({"model": MODEL, "input": "grapefruit", **more})
    async with session.post("/v1/responses", data=body, headers=headers) as answer:
        text = await answer.read()
    return dict(orjson.loads(text)) if not more.get("stream") else {}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("stream", [False, True])
@async_test(SECONDS)
async def test_a_request_is_one_trace_from_the_client_to_the_mcp_server(tmp_path: Path, era: Era, stream: bool) -> None:
    model = ScriptedModel([call("echo", text="pomegranate")], [say("tamarind"), spend(9, 4)])
    async with run_collector() as collector, FaultyMCPServer(era=era) as mcp:
        otel = {"endpoint": collector.url, "service_name": "front"}
        async with run_gateway(tmp_path, model, mcp={"tools": mcp}, otel=otel) as gateway:
            await _create_response(gateway, stream=stream)
        meta = mcp.calls()[0].params["_meta"]
    request, agent = collector.span_named(ROUTE), collector.span_named(f"invoke_agent {MODEL}")
    tool, sent = collector.span_named("execute_tool echo"), collector.span_named("tools/call echo")
    assert {span.trace for span in collector.spans} == {TRACE}
    assert [request.parent, agent.parent, tool.parent, sent.parent] == [
        "00f067aa0ba902b7",
        request.id,
        agent.id,
        tool.id,
    ]
    assert collector.children(agent) == ["chat scripted", "chat scripted", "execute_tool echo"]
    assert (meta["traceparent"], meta["tracestate"]) == (f"00-{TRACE}-{sent.id}-01", "vendor=1")
    assert "progressToken" in meta
    assert {span.resource["service.name"] for span in collector.spans} == {"front"}
    assert not any(span.is_error for span in collector.spans)


@async_test(SECONDS)
async def test_spans_follow_the_semantic_conventions_and_hold_no_content(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="pomegranate"), spend(7, 2)], [say("tamarind"), spend(9, 4)])
    async with run_collector() as collector, FaultyMCPServer() as mcp:
        async with run_gateway(tmp_path, model, mcp={"tools": mcp}, otel={"endpoint": collector.url}) as gateway:
            response = await _create_response(gateway, temperature=0.5, instructions="grapefruit")
        port = int(mcp.url.split(":")[2].split("/")[0])
    request, agent = collector.span_named(ROUTE), collector.span_named(f"invoke_agent {MODEL}")
    tool, sent = collector.span_named("execute_tool echo"), collector.span_named("tools/call echo")
    chats = [span for span in collector.spans if span.name == "chat scripted"]
    assert [span.kind for span in (request, agent, chats[0], tool, sent)] == [
        *("server", "internal", "client"),
        *("internal", "client"),
    ]
    assert request.attributes.items() >= {
        ("http.request.method", "POST"),
        ("http.route", "/v1/responses"),
        ("http.response.status_code", 200),
    }
    assert agent.attributes.items() >= {
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", MODEL),
        ("gen_ai.provider.name", "openai_compatible"),
        ("gen_ai.usage.input_tokens", 16),
        ("gen_ai.usage.output_tokens", 6),
        ("holodeck.response.id", response["id"]),
        ("holodeck.turns", 2),
    }
    for chat, reason in zip(chats, ("tool_call", "stop"), strict=True):
        assert chat.attributes["gen_ai.response.finish_reasons"] == [reason]
        assert {"gen_ai.usage.input_tokens", "gen_ai.provider.name", "gen_ai.request.model"} <= set(chat.attributes)
        assert chat.attributes["gen_ai.request.temperature"] == 0.5
    assert tool.attributes["gen_ai.tool.name"] == "echo"
    assert sent.attributes.items() >= {
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "echo"),
        ("gen_ai.operation.name", "execute_tool"),
        ("holodeck.mcp.server", "tools"),
        ("network.transport", "tcp"),
        ("server.address", "127.0.0.1"),
        ("server.port", port),
    }
    assert sent.attributes["mcp.protocol.version"]
    assert sent.attributes["jsonrpc.request.id"].isdigit()
    everything = b"".join(collector.raw)
    assert not [word for word in SECRET_WORDS if word.encode() in everything]


@async_test(SECONDS)
async def test_a_failed_span_has_the_kind_of_its_error_and_not_its_message(tmp_path: Path) -> None:
    turns = [call("fail", text="pomegranate"), call("tamarind", text="pomegranate")], status(404)
    async with (
        run_collector() as collector,
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, ScriptedModel(*turns), mcp={"tools": mcp}, otel={"endpoint": collector.url}) as gateway,
    ):
        await _create_response(gateway)
    kinds = {span.name: span.attributes.get("error.type") for span in collector.spans if span.is_error}
    assert kinds.pop("tools/call fail") == "tool_error"
    assert kinds.pop("execute_tool fail") == "tool_error"
    assert kinds.pop("execute_tool") == "refused"
    assert kinds.pop(f"invoke_agent {MODEL}") == "model_error"
    assert kinds.pop(ROUTE) == "500"
    assert kinds.pop("chat scripted")
    assert not kinds
    assert not [word for word in SECRET_WORDS if word.encode() in b"".join(collector.raw)]


@async_test(SECONDS)
async def test_a_background_run_stays_in_the_trace_of_its_request(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="x")], say("Done."))
    async with (
        run_collector() as collector,
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, model, mcp={"tools": mcp}, otel={"endpoint": collector.url}) as gateway,
    ):
        begun = await _create_response(gateway, background=True)
        events = await gateway.stream(f"/v1/responses/{begun['id']}?stream=true")
        assert events[-1]["type"] == "response.completed"
    agent = collector.span_named(f"invoke_agent {MODEL}")
    assert (agent.trace, agent.parent) == (TRACE, collector.span_named(ROUTE).id)
    assert collector.span_named("tools/call echo").trace == TRACE


@async_test(SECONDS)
async def test_concurrent_requests_do_not_mix_their_spans(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: say("Done.") if _has_result(request) else call("echo", text="x"))
    async with run_collector() as collector, FaultyMCPServer() as mcp:
        async with run_gateway(tmp_path, model, mcp={"tools": mcp}, otel={"endpoint": collector.url}) as gateway:
            body = {"model": MODEL, "input": "Go"}
            await asyncio.gather(*(gateway.send("POST", "/v1/responses", body) for _ in range(8)))
        sent = {received.params["_meta"]["traceparent"].split("-")[1] for received in mcp.calls()}
    traces = {span.trace for span in collector.spans}
    assert sent == traces
    assert len(traces) == 8
    for trace in traces:
        assert len([span for span in collector.spans if span.trace == trace]) == 6


def _has_result(request: Any) -> bool:
    return any(message.get("role") == "tool" for message in request.json["messages"])


@async_test(SECONDS)
async def test_keys_of_the_collector_are_references_and_are_sent(tmp_path: Path) -> None:
    async with run_collector() as collector:
        otel = {"endpoint": collector.url, "headers": {"x-api-key": "${COLLECTOR_KEY}"}}
        async with run_gateway(
            tmp_path, ScriptedModel(say("Hi")), otel=otel, environ={"COLLECTOR_KEY": "sesame"}
        ) as gateway:
            await _create_response(gateway)
    assert {headers["x-api-key"] for headers in collector.headers} == {"sesame"}


@async_test(SECONDS)
async def test_an_unsampled_trace_is_not_exported_and_the_server_gets_an_unsampled_traceparent(tmp_path: Path) -> None:
    async with run_collector() as collector, FaultyMCPServer() as mcp:
        otel = {"endpoint": collector.url, "sample_ratio": 0}
        model = ScriptedModel([call("echo", text="x")], say("Hi"))
        async with run_gateway(tmp_path, model, mcp={"tools": mcp}, otel=otel) as gateway:
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        flags = mcp.calls()[0].params["_meta"]["traceparent"].split("-")[3]
        assert int(flags, 16) & 1 == 0  # the server is not to sample it either
    assert not collector.spans


@async_test(SECONDS)
async def test_without_configuration_nothing_is_traced_or_passed_on(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="x")], say("Hi"))
    async with FaultyMCPServer() as mcp, run_gateway(tmp_path, model, mcp={"tools": mcp}) as gateway:
        await _create_response(gateway)
        assert "traceparent" not in mcp.calls()[0].params["_meta"]


@async_test(SECONDS)
async def test_the_standard_otel_variables_enable_tracing(tmp_path: Path) -> None:
    async with run_collector() as collector, ScriptedModel(say("Hi")).serve() as scripted:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "named-by-variable"}
        async with run_gateway_process(write_gateway_file(tmp_path, scripted.url), environ=environ) as served:
            assert (await served.create_response())[0] == 200
            served.stop()
            assert await served.wait_exit() == 0
    assert collector.span_named(f"invoke_agent {MODEL}").resource["service.name"] == "named-by-variable"


@async_test(SECONDS)
async def test_an_unreachable_collector_affects_neither_requests_nor_the_shutdown(tmp_path: Path) -> None:
    async with ScriptedModel(say("Hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, otel={"endpoint": "http://127.0.0.1:9"})
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            served.stop()
            assert await served.wait_exit() == 0


@async_test(SECONDS)
async def test_a_websocket_has_its_runs_in_one_trace(tmp_path: Path) -> None:
    async with run_collector() as collector:
        model = ScriptedModel(say("One."), say("Two."))
        async with run_gateway(tmp_path, model, otel={"endpoint": collector.url}) as gateway:
            session = await gateway.http_client()
            async with session.ws_connect("/v1/responses", headers={"traceparent": CALLER}) as socket:
                for _ in range(2):
                    await socket.send_json({"type": "response.create", "model": MODEL, "input": "Go"})
                    await _until_done(socket)
    opened = collector.span_named("GET /v1/responses")
    assert opened.trace == TRACE
    assert collector.children(opened) == [f"invoke_agent {MODEL}"] * 2


async def _until_done(socket: aiohttp.ClientWebSocketResponse) -> None:
    while (await socket.receive_json())["type"] != "response.completed":
        pass


_WITHOUT_IT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
"""


@async_test(SECONDS)
async def test_a_file_that_configures_tracing_without_the_extra_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT_IT)
    environ = {"PYTHONPATH": str(tmp_path)}
    file = write_gateway_file(tmp_path, "http://127.0.0.1:9/v1", otel={"endpoint": "http://127.0.0.1:9"})
    for command in ("serve", "validate"):
        code, text = await wait_refused(file, command=command, environ=environ)
        assert code == 2
        assert "[otel]'" in text
    wished = environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    async with run_gateway_process(write_gateway_file(tmp_path, "http://127.0.0.1:9/v1"), environ=wished) as served:
        assert (await served.send("GET", "/v1/models"))[0] == 200
        served.stop()
        assert await served.wait_exit() == 0
    assert any("otel.not_installed" in line for line in served.stderr_lines)


def test_a_collector_key_in_the_file_is_refused(tmp_path: Path) -> None:
    file = write_gateway_file(
        tmp_path, "http://127.0.0.1:9/v1", otel={"endpoint": "x", "headers": {"api-key": "sesame"}}
    )
    with pytest.raises(ConfigError) as refusal:
        read_gateway(file, environ={}, home=tmp_path)
    keys = {problem.key for problem in refusal.value.problems}
    assert keys == {"otel.endpoint", "otel.headers.api-key"}
    assert "sesame" not in str(refusal.value)
