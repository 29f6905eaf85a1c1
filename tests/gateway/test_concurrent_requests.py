"""Many requests at once: each is offered every tool, and each of its calls reaches the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Turn

AT_ONCE = 16
EACH = 6


def _add_then_answer(received: Any) -> Turn:
    """Call `add`, then answer with its output."""
    last = received.json["messages"][-1]
    return say(last["content"]) if last["role"] == "tool" else call("add", a=2, b=3)


@pytest.mark.proves("001:DEC-9", "004:US1-1")
@async_test(60)
async def test_concurrent_requests_are_all_offered_the_tools(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(_add_then_answer), mcp={"calc": server}) as gateway,
    ):
        client = await gateway.openai_client()

        async def some() -> list[str]:
            return [(await client.responses.create(model=MODEL, input="2 + 3?")).output_text for _ in range(EACH)]

        answers = await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        assert {text for each in answers for text in each} == {"5"}
        assert all(
            "add" in [tool["function"]["name"] for tool in request["tools"]] for request in gateway.model_requests
        )
