"""The pages for operators name what the gateway really has: its metrics and the events of its log."""

from __future__ import annotations

import re
from pathlib import Path

from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

ROOT = Path(__file__).parents[2]
METRICS_PAGE = (ROOT / "docs/operate/metrics-and-alerts.md").read_text()
LOGS_PAGE = (ROOT / "docs/operate/logs.md").read_text()


@async_test(60)
async def test_the_table_of_metrics_has_those_of_a_gateway_and_no_others(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": gateway.model.url}
        assert await gateway.reload(models=[{"name": MODEL, "model": {**llm, "price": {"input": 1, "output": 1}}}])
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        await gateway.send("POST", "/v1/responses", {"model": MODEL})
        _, text = await gateway.send("GET", "/metrics")
    served = set(re.findall(r"^# TYPE (holodeck_\w+) (\w+)$", text.decode(), re.MULTILINE))
    assert set(re.findall(r"^\| `(holodeck_\w+)` \| (\w+) \|", METRICS_PAGE, re.MULTILINE)) == served


def test_alerts_ask_for_metrics_of_the_table() -> None:
    table = set(re.findall(r"^\| `(holodeck_\w+)`", METRICS_PAGE, re.MULTILINE))
    queried = set(re.findall(r"\b(holodeck_\w+?)(?:_bucket|_sum)?\b(?=[\[{) ])", METRICS_PAGE))
    assert queried
    assert queried <= table


def test_every_event_of_the_page_about_logs_is_one_that_is_logged() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src/holodeck").rglob("*.py"))
    named = set(re.findall(r"\b(?:gateway|mcp|model|request|storage|process|function|audit|log)\.[a-z_]+", LOGS_PAGE))
    files = {"gateway.log", "gateway.yaml", "log.format", "log.md"}
    assert {event for event in named - files if f'"{event}"' not in source} == set()
