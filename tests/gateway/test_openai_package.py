"""The stock `openai` package, unchanged, against the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say


@pytest.mark.proves("D-25", "004:US1-1", "004:US1-2", "004:US2-1", "004:FR-009", "004:SC-001")
@async_test
async def test_a_stock_client_gets_an_answer_that_used_the_tools_of_the_gateway(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        response = await (await gateway.openai_client()).responses.create(model=MODEL, input="1 + 2?")
        assert response.output_text == "It is 3."
        assert [call.params["arguments"] for call in server.calls("add")] == [{"a": 1, "b": 2}]
        assert gateway.model_requests[1]["messages"][-1]["content"] == "3"
