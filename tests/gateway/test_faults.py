"""Models and MCP servers that are down, broken or gone: what the client of the gateway gets, and what goes on."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest
from aio import aio
from gateway.stand import MODEL, serving

from holodeck.lib.errors import ModelError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, fail, say
from holodeck.testing.script import Turn, cut, page, status


@pytest.mark.proves("004:US1-3", "004:FR-017", "004:SC-004", "D-29")
@aio(60)
async def test_a_server_that_is_down_takes_nothing_with_it_and_is_used_when_it_is_back(tmp_path: Path) -> None:
    model = ScriptedModel(say("Without."), call("add", a=1, b=2), say("With: 3."))
    async with (
        FaultyMCPServer(down=True) as server,
        serving(tmp_path, model, mcp={"sums": server}) as stand,
    ):
        client = await stand.openai()
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "Without."
        assert "tools" not in stand.asked[0]
        for path in ("/healthz", "/readyz"):
            assert (await stand.send("GET", path))[0] == 200
        _, servers = await stand.send("GET", "/v1/mcp/servers")
        assert servers["data"][0]["last_error"]
        await server.come_up()
        assert (await stand.send("POST", "/v1/mcp/servers/sums/refresh"))[1]["state"] == "connected"
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "With: 3."


@pytest.mark.proves("004:EDGE-1", "004:FR-018")
@aio(60)
async def test_a_server_killed_in_a_call_is_an_error_for_the_model_and_is_used_again(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), call("add", a=1, b=2), say("3 after all."))
    async with (
        FaultyMCPServer("dies-mid-call", on="tools/call:slow", times=1) as server,
        serving(tmp_path, model, mcp={"sums": server}) as stand,
    ):
        response = await (await stand.openai()).responses.create(model=MODEL, input="Hi")
        assert response.output_text == "3 after all."
        told = stand.asked[1]["messages"][-1]
        assert (told["role"], "sums" in told["content"]) == ("tool", True)


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("fault", [status(400), page(), [say("Hal"), cut()], status(401), status(500)])
@aio(60)
async def test_a_broken_model_is_a_model_error_and_the_next_request_is_answered(tmp_path: Path, fault: Turn) -> None:
    broken = True
    model = ScriptedModel(lambda _: fault if broken else say("Well again."))
    async with serving(tmp_path, model) as stand:
        client = await stand.openai()
        with pytest.raises(openai.InternalServerError) as failed:
            await client.responses.create(model=MODEL, input="Hi")
        body = failed.value.body
        assert isinstance(body, dict)
        assert body["type"] == "model_error"
        broken = False
        assert (await client.responses.create(model=MODEL, input="Hi")).output_text == "Well again."


@pytest.mark.proves("D-25")
@aio(60)
async def test_a_model_that_is_busy_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    busy = ModelError("busy", status=429, retry_after=0.01)
    async with serving(tmp_path, ScriptedModel(fail(busy), say("Now."))) as stand:
        assert (await (await stand.openai()).responses.create(model=MODEL, input="Hi")).output_text == "Now."


@pytest.mark.proves("D-25")
@aio(60)
async def test_a_model_that_is_down_is_a_model_error(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel()) as stand:
        await stand.model.stop()
        with pytest.raises(openai.InternalServerError, match="scripted"):
            await (await stand.openai()).responses.create(model=MODEL, input="Hi")
