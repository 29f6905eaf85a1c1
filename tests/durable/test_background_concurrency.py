"""`background.at_once`: how many durable runs a gateway has at once: new, queued and recovered ones."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import mcp_server_entry, wait_ended
from gateway.gateway_process import run_gateway_process, write_gateway_file

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Turn

SECONDS = 90.0
AT_ONCE, RUNS = 2, 6


class _Crowd:
    """A model that calls a slow tool once in each run, and knows how many of them are under way."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0
        self.is_full = asyncio.Event()

    def __call__(self, received: Any) -> Turn:
        question, *rest = received.json["messages"]
        if rest:
            self.running.discard(question["content"])
            return say("done")
        self.running.add(question["content"])
        self.most = max(self.most, len(self.running))
        if len(self.running) >= AT_ONCE:
            self.is_full.set()
        # Longer than it takes until what waits is looked at again.
        return call("slow", seconds=1.5)


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_new_queued_and_recovered_runs_together_stay_within_the_configured_number(tmp_path: Path) -> None:
    crowd = _Crowd()
    async with FaultyMCPServer() as mcp, ScriptedModel(crowd).serve() as model:
        background = {"durable": True, "at_once": AT_ONCE}
        file = write_gateway_file(tmp_path, model.url, mcp_servers=[mcp_server_entry(mcp.url)], background=background)
        async with run_gateway_process(file) as served:
            begun = await asyncio.gather(
                *(served.create_response(f"{number}", background=True) for number in range(RUNS))
            )
            assert [status for status, _, _ in begun] == [200] * RUNS
            made = [answer["id"] for _, answer, _ in begun]
            for response_id in made[:AT_ONCE]:
                await wait_ended(served, response_id)
            await crowd.is_full.wait()
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            more = [
                (await served.create_response(f"{number}", background=True))[1]["id"]
                for number in range(RUNS, RUNS + 2)
            ]
            for response_id in [*made, *more]:
                assert (await wait_ended(served, response_id))["status"] == "completed"
    assert crowd.most == AT_ONCE
    assert not crowd.running
