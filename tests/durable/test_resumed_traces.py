"""A background response is one trace, whichever process made which part of it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from async_tests import async_test
from durable.crash_cases import mcp_server_entry, wait_ended, wait_model_requests
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.otlp_collector import run_collector

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

SECONDS = 120.0
TRACE, REQUEST = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{REQUEST}-01", "tracestate": "vendor=1"}


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_run_resumed_after_a_kill_is_in_the_trace_of_its_request(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel(call("echo", text="one"), [wait(never)], call("echo", text="two"), say("done"))
    async with run_collector() as collector, FaultyMCPServer() as mcp, model.serve() as scripted:
        config = {"background": {"durable": True}, "otel": {"endpoint": collector.url}}
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], **config)
        async with run_gateway_process(file) as served:
            body = {"model": "demo", "input": "Go", "background": True}
            _, begun, _ = await served.send("POST", "/v1/responses", body, HEADERS)
            await wait_model_requests(scripted, 2)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        collector.spans.clear()
        async with run_gateway_process(file) as served:
            assert (await wait_ended(served, begun["id"]))["status"] == "completed"
            served.stop()
            await served.wait_exit()
    meta = [one.params["_meta"] for one in mcp.calls()]
    assert [each["traceparent"].split("-")[1] for each in meta] == [TRACE, TRACE]
    assert meta[1]["tracestate"] == "vendor=1"
    resumed, agent = collector.span_named("resume_response"), collector.span_named("invoke_agent demo")
    assert (resumed.trace, resumed.attributes["holodeck.response.id"]) == (TRACE, begun["id"])
    assert resumed.parent, "the span of the request, which may have died with its gateway"
    assert (agent.trace, agent.parent) == (TRACE, resumed.id)
    assert collector.span_named("tools/call echo").trace == TRACE
