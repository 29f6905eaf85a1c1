"""Tools that run as tasks behind a gateway: a client in front of it calls them like any others."""

from __future__ import annotations

import json
from pathlib import Path

import mcp_types as types
import pytest
from async_tests import async_test
from gateway.mcp_endpoint.sdk_client import MODES, Mode, connect, text_of
from gateway.running_gateway import run_gateway

from holodeck.testing import Era, FaultyMCPServer

ERAS: tuple[Era, ...] = ("legacy", "modern")


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
@async_test
async def test_a_client_gets_the_result_of_a_task_and_its_states_as_progress(
    tmp_path: Path, mode: Mode, era: Era
) -> None:
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, mcp={"all": server}) as gateway,
        connect(gateway, mode) as client,
    ):
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "task"]
        result = await client.call_tool("task", {"polls": 1, "text": "found"}, progress_callback=hear)
    assert tool.execution is None, "the gateway waits for the task itself"
    assert text_of(result) == "found"
    assert heard == [(1, "working: step 0"), (2, "working: step 1")]


@pytest.mark.proves("D-38", "D-20")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
@async_test
async def test_the_question_of_a_task_is_put_to_the_client_that_made_the_call(
    tmp_path: Path, mode: Mode, era: Era
) -> None:
    async def answer(context: object, params: object) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, mcp={"all": server}) as gateway,
        connect(gateway, mode, elicitation_callback=answer) as client,
    ):
        told = json.loads(text_of(await client.call_tool("task", {"ask": True})))
    assert (told["action"], told["content"]) == ("accept", {"name": "Ada"})
    assert len(server.calls("task")) == 1
