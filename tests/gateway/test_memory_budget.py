"""What a gateway has in memory at once, of its clients, its MCP servers and its models, has one limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from aio import aio
from gateway.stand import MODEL, serving

from holodeck.lib.limits import KIB, MIB
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

SMALL = {"drain_seconds": 0, "body_bytes": 64 * KIB, "bodies_bytes": MIB}


@pytest.mark.proves("D-17")
@aio(60)
async def test_the_model_is_told_of_an_answer_that_the_gateway_has_no_memory_for_and_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel(call("big", bytes=2 * MIB), call("big", bytes=200 * KIB), say("Half of it."))
    async with FaultyMCPServer() as server, serving(tmp_path, model, mcp={"files": server}, limits=SMALL) as stand:
        status, response = await stand.send("POST", "/v1/responses", {"model": MODEL, "input": "Read it"})
        assert (status, response["status"]) == (200, "completed")
        dropped, taken = (item["output"] for item in response["output"] if item["type"] == "function_call_output")
        assert "too many bytes of requests and answers are in memory at once" in dropped
        assert taken.startswith("x")
        assert (await stand.send("GET", "/readyz"))[0] == 200
        assert stand.service.room.used == 0
