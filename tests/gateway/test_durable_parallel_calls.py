"""Parallel calls of a durable background response: each output is stored for its own call, in any order."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.test_durable_runs import SECONDS, mcp_server_entry, wait_ended, wait_model_requests

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

MANY = [str(number) for number in range(8)]


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_outputs_of_parallel_calls_survive_a_kill(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel([call("echo", text=text) for text in MANY], [wait(never)], say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response("Say all of it", background=True)
            await wait_model_requests(scripted, 2)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
    assert found["status"] == "completed"
    assert sorted(one.params["arguments"]["text"] for one in mcp.calls()) == MANY
    outputs = [message["content"] for message in scripted.received[-1].json["messages"] if message["role"] == "tool"]
    assert outputs == MANY
