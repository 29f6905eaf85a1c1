"""Query parameters are checked as strictly as a body: a wrong one is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import ScriptedModel, say


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_wrong_query_parameter_is_refused_by_its_name(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        items = [{"role": "user", "content": str(number)} for number in range(3)]
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": items})
        path = f"/v1/responses/{response['id']}"
        wrong = {
            f"{path}/input_items?order=upwards": "order",
            f"{path}/input_items?limit=0": "limit",
            f"{path}/input_items?limit=101": "limit",
            f"{path}/input_items?limit=many": "limit",
            f"{path}/input_items?after=msg_of_another": "after",
            f"{path}?stream=perhaps": "stream",
            f"{path}?stream=true&starting_after=-5": "starting_after",
            f"{path}?stream=true&starting_after=last": "starting_after",
            f"{path}?stream=true&starting_after={2**63}": "starting_after",
        }
        for query, param in wrong.items():
            status, answer = await gateway.send("GET", query)
            assert (status, answer["error"]["param"]) == (400, param), query


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("yes", ["true", "True", "1"])
@async_test(30)
async def test_a_boolean_query_parameter_accepts_the_spellings_of_all_sdks(tmp_path: Path, yes: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hello"})
        events = await gateway.stream(f"/v1/responses/{response['id']}?stream={yes}&starting_after=0")
        assert events[0]["sequence_number"] == 1
        assert events[-1]["response"] == response
