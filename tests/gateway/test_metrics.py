"""Metrics use the public model names, and the number of series has a limit."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import ANY_KEY, MODEL, RunningGateway, run_gateway
from gateway.scraped_metrics import ScrapedMetrics, parse_metrics
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from holodeck.gateway.metrics.counters import MAX_METRIC_SERIES, Metrics
from holodeck.gateway.metrics.exposition import Exposition, Gauge
from holodeck.models.events import RunResult
from holodeck.models.items import Usage
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend
from holodeck.testing.model.script import status, wait

OWN = {"type": "function", "name": "mine", "parameters": {"type": "object"}}


async def _scrape(gateway: RunningGateway, key: str = ANY_KEY) -> ScrapedMetrics:
    code, text = await gateway.send("GET", "/metrics", key=key)
    assert code == 200
    return parse_metrics(text)


@async_test(30)
async def test_runs_tools_tokens_and_servers_are_counted(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="x"), call("fail"), spend(7, 2)], [say("Done."), spend(9, 4)])
    async with FaultyMCPServer() as mcp, run_gateway(tmp_path, model, mcp={"tools": mcp}) as gateway:
        before = await _scrape(gateway)
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        after = await _scrape(gateway)
    states = {"created": (1, 0), "connected": (0, 1)}
    for state, (first, last) in states.items():
        assert before.value("holodeck_mcp_server_state", server="tools", state=state) == first
        assert after.value("holodeck_mcp_server_state", server="tools", state=state) == last
    assert not before.list_labels("holodeck_mcp_server_up"), "it was not asked yet"
    assert after.value("holodeck_mcp_server_up", server="tools") == 1
    assert after.value("holodeck_runs_total", model=MODEL, status="completed") == 1
    assert after.value("holodeck_turns_total", model=MODEL) == 2
    assert after.value("holodeck_turn_seconds_count", model=MODEL) == 2
    assert after.value("holodeck_first_token_seconds_count", model=MODEL) == 2
    assert after.value("holodeck_tokens_total", model=MODEL, kind="input") == 16
    assert after.value("holodeck_tokens_total", model=MODEL, kind="output") == 6
    assert after.value("holodeck_run_seconds_count", model=MODEL) == 1
    assert after.value("holodeck_tool_calls_total", server="tools", tool="echo", outcome="ok") == 1
    assert after.value("holodeck_tool_calls_total", server="tools", tool="fail", outcome="error") == 1
    assert after.value("holodeck_tool_seconds_count", server="tools", tool="echo") == 1
    assert after.value("holodeck_model_breaker_open", model=MODEL) == 0


@async_test(30)
async def test_a_server_that_no_model_uses_has_a_state_and_is_listed(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp:
        entry = {"name": "tools", "description": "Tools", "transport": "http", "url": mcp.url}
        async with run_gateway(tmp_path, models=[], mcp_servers=[entry]) as gateway:
            scraped = await _scrape(gateway)
            _, listed = await gateway.send("GET", "/v1/mcp/servers")
    assert scraped.value("holodeck_mcp_server_state", server="tools", state="created") == 1
    assert [server["name"] for server in listed["data"]] == ["tools"]


@async_test(30)
async def test_names_invented_by_models_and_clients_are_not_metric_labels(tmp_path: Path) -> None:
    calls = [call(f"invented_{number}") for number in range(20)]
    async with run_gateway(tmp_path, ScriptedModel([*calls, call("mine")], say("Done."))) as gateway:
        choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]}
        tools = [OWN, OWN | {"name": "other"}]
        body = {"model": MODEL, "input": "Go", "tools": tools, "tool_choice": choice}
        await gateway.send("POST", "/v1/responses", body)
        scraped = await _scrape(gateway)
    assert scraped.value("holodeck_tool_calls_total", server="", tool="unknown", outcome="error") == 21
    assert not scraped.has_text("invented")
    assert not scraped.has_text("mine")


@async_test(30)
async def test_the_open_breaker_of_a_failing_model_is_a_metric(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: status(500, retry_after="600"))) as gateway:
        for _ in range(20):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        assert (await _scrape(gateway)).value("holodeck_model_breaker_open", model=MODEL) == 1


@async_test(30)
async def test_times_of_turns_are_those_of_the_model(tmp_path: Path) -> None:
    rest = asyncio.Event()
    async with run_gateway(tmp_path, ScriptedModel([say("First."), wait(rest), say(" Last.")])) as gateway:
        client = await gateway.openai_client()
        async for event in await client.responses.create(model=MODEL, input="Go", stream=True):
            if event.type == "response.output_text.delta":
                rest.set()
        scraped = await _scrape(gateway)
    first = scraped.value("holodeck_first_token_seconds_sum", model=MODEL)
    turn = scraped.value("holodeck_turn_seconds_sum", model=MODEL)
    run = scraped.value("holodeck_run_seconds_sum", model=MODEL)
    assert 0 < first < turn <= run


@async_test(30)
async def test_cost_is_counted_for_models_with_a_price(tmp_path: Path) -> None:
    model = ScriptedModel([say("Hi."), spend(1_000_000, 500_000)], [say("Hi."), spend(1_000_000, 500_000)])
    async with run_gateway(tmp_path, model) as gateway:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": gateway.model.url}
        models = [
            {"name": "free", "model": llm},
            {"name": "priced", "model": {**llm, "price": {"input": 3, "output": 8}}},
        ]
        assert await gateway.reload(models=models)
        for name in ("free", "priced"):
            assert (await gateway.send("POST", "/v1/responses", {"model": name, "input": "Go"}))[0] == 200
        scraped = await _scrape(gateway)
    assert scraped.value("holodeck_cost_total", model="priced") == 3 + 8 / 2
    assert not scraped.has("holodeck_cost_total", model="free")


@async_test(30)
async def test_no_token_is_counted_in_two_kinds(tmp_path: Path) -> None:
    metrics = Metrics()
    usage = Usage(input_tokens=100, cached_tokens=60, cache_write_tokens=10, output_tokens=50, reasoning_tokens=20)
    metrics.count_run("m", RunResult(status="completed", text="", usage=usage))
    body, _ = await Exposition(metrics).render([], "")
    scraped = parse_metrics(body)
    kinds = {
        labels["kind"]: scraped.value("holodeck_tokens_total", **labels)
        for labels in scraped.list_labels("holodeck_tokens_total")
    }
    assert kinds == {"input": 30, "cached_input": 60, "cache_write_input": 10, "output": 30, "reasoning": 20}


@async_test(30)
async def test_callers_are_labels_only_where_the_operator_asks_for_it(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"keys": ["hd-a", "hd-b", "hd-c"], "admins": ["hd-ops"]}
    body = {"model": MODEL, "input": "Go"}
    async with run_gateway(tmp_path, ScriptedModel(lambda _: [say("Hi."), spend(3, 4)]), **keys) as gateway:
        await gateway.send("POST", "/v1/responses", body, key="hd-a")
        assert not (await _scrape(gateway, "hd-ops")).has_text("hd-a")
    settings = {"by_caller": True, "max_callers": 2}
    model = ScriptedModel(lambda _: [say("Hi."), spend(3, 4)])
    async with run_gateway(tmp_path, model, metrics=settings, **keys) as gateway:
        for key in ("hd-a", "hd-b", "hd-c", "hd-a"):
            await gateway.send("POST", "/v1/responses", body, key=key)
        await gateway.send("POST", "/v1/responses", {}, key="hd-c")
        scraped = await _scrape(gateway, "hd-ops")
    runs = {"model": MODEL, "status": "completed"}
    assert scraped.value("holodeck_runs_total", caller="key:hd-a", **runs) == 2
    assert scraped.value("holodeck_runs_total", caller="key:hd-b", **runs) == 1
    assert scraped.value("holodeck_runs_total", caller="other", **runs) == 1
    assert scraped.value("holodeck_tokens_total", model=MODEL, kind="input", caller="key:hd-a") == 6
    posts = {"route": "/v1/responses", "method": "POST"}
    assert scraped.value("holodeck_requests_total", status="200", caller="key:hd-a", **posts) == 2
    assert scraped.value("holodeck_refused_requests_total", code="missing_required_parameter", caller="other") == 1
    assert not scraped.has_text("hd-c")


@async_test(30)
async def test_refused_requests_are_counted_by_code_and_only_by_known_ones(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=["hd-a"], admins=["hd-ops"]) as gateway:
        await gateway.send("GET", "/v1/models", key="hd-wrong")
        await gateway.send("GET", "/metrics", key="hd-a")
        await gateway.send("GET", "/v1/nothing", key="hd-a")
        await gateway.send("POST", "/v1/responses", {"model": "none", "input": "x"}, key="hd-a")
        scraped = await _scrape(gateway, "hd-ops")
    codes = [labels["code"] for labels in scraped.list_labels("holodeck_refused_requests_total")]
    assert sorted(codes) == ["forbidden", "invalid_api_key", "model_not_found", "unknown_url"]
    assert {code for code in codes if scraped.value("holodeck_refused_requests_total", code=code) != 1} == set()


@async_test(30)
async def test_two_gateways_in_one_process_count_for_themselves(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    async with run_gateway(folders[0]) as one, run_gateway(folders[1]) as two:
        await one.send("GET", "/v1/models")
        scraped, other = await _scrape(one), await _scrape(two)
    models = {"route": "/v1/models", "method": "GET", "status": "200"}
    assert scraped.value("holodeck_requests_total", **models) == 1
    assert not other.has("holodeck_requests_total", **models)
    assert other.value("process_open_fds") > 0


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=1.0.0;q=0.5,*/*;q=0.1", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text; version=nonsense",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ],
)
@async_test(30)
async def test_the_accept_header_chooses_the_format(tmp_path: Path, accept: str, content_type: str) -> None:
    async with run_gateway(tmp_path) as gateway:
        session = await gateway.http_client()
        await gateway.send("GET", "/v1/models")
        async with session.get("/metrics", headers={"accept": accept}) as answer:
            text = await answer.text()
    assert answer.headers["content-type"] == content_type
    is_open_metrics = "openmetrics" in content_type
    assert text.endswith("# EOF\n") is is_open_metrics
    families = _parse_open_metrics(text) if is_open_metrics else parse_metrics(text).families
    documented = {family.name: family.documentation for family in families}
    assert "holodeck_requests" in documented
    assert all(documented.values()), "each metric has a HELP"


def _parse_open_metrics(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call] # it has no types


async def _render(metrics: Metrics, *gauges: Gauge) -> ScrapedMetrics:
    return parse_metrics((await Exposition(metrics).render(gauges, ""))[0])


@async_test(30)
async def test_a_dashboard_never_gets_more_series_than_the_limit() -> None:
    metrics = Metrics()
    for number in range(MAX_METRIC_SERIES + 50):
        metrics.count_tool_call(f"server-{number}", "tool", 0.1, is_error=False)
    scraped = await _render(metrics)
    assert len(scraped.list_labels("holodeck_tool_calls_total")) == MAX_METRIC_SERIES + 1
    assert scraped.value("holodeck_tool_calls_total", server="other", tool="other", outcome="ok") == 50


@async_test(30)
async def test_servers_declared_by_requests_are_counted_as_one() -> None:
    metrics = Metrics(frozenset({"ours"}))
    for server in ("ours", "theirs-1", "theirs-2"):
        metrics.count_tool_call(server, "tool", 0.1, is_error=False)
    scraped = await _render(metrics)
    assert scraped.value("holodeck_tool_calls_total", server="ours", tool="tool", outcome="ok") == 1
    assert scraped.value("holodeck_tool_calls_total", server="(request)", tool="other", outcome="ok") == 2
    assert len(scraped.list_labels("holodeck_tool_calls_total")) == 2


@async_test(30)
async def test_a_large_count_is_rendered_with_all_digits() -> None:
    metrics = Metrics()
    metrics.turns.values["m",] += 123_456_789_012
    metrics.turns.values["m",] += 1
    waiting = Gauge(name="waiting", text="Waiting.", values=[((), math.nan)])
    scraped = await _render(metrics, waiting)
    assert scraped.value("holodeck_turns_total", model="m") == 123_456_789_013
    assert math.isnan(scraped.value("waiting"))
