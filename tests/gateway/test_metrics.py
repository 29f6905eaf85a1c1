"""Metrics use the public model names, and the number of series has a limit."""

from __future__ import annotations

import math
from pathlib import Path

from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.metrics import MAX_METRIC_SERIES, Metrics
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend
from holodeck.testing.model.script import status

OWN = {"type": "function", "name": "mine", "parameters": {"type": "object"}}


async def _samples(gateway: RunningGateway) -> dict[str, float]:
    code, text = await gateway.send("GET", "/metrics")
    assert code == 200
    lines = [line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


@async_test(30)
async def test_runs_tools_tokens_and_servers_are_counted(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="x"), call("fail"), spend(7, 2)], [say("Done."), spend(9, 4)])
    async with FaultyMCPServer() as mcp, run_gateway(tmp_path, model, mcp={"tools": mcp}) as gateway:
        before = await _samples(gateway)
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        after = await _samples(gateway)
    state = 'holodeck_mcp_server_state{server="tools",state="%s"}'
    assert (before[state % "created"], before[state % "connected"]) == (1, 0)
    assert (after[state % "created"], after[state % "connected"]) == (0, 1)
    for name, value in {
        f'holodeck_runs_total{{model="{MODEL}",status="completed"}}': 1,
        f'holodeck_turns_total{{model="{MODEL}"}}': 2,
        f'holodeck_tokens_total{{model="{MODEL}",direction="input"}}': 16,
        f'holodeck_tokens_total{{model="{MODEL}",direction="output"}}': 6,
        f'holodeck_run_seconds_count{{model="{MODEL}"}}': 1,
        'holodeck_tool_calls_total{server="tools",tool="echo",outcome="ok"}': 1,
        'holodeck_tool_calls_total{server="tools",tool="fail",outcome="error"}': 1,
        'holodeck_tool_seconds_count{server="tools",tool="echo"}': 1,
        f'holodeck_model_breaker_open{{model="{MODEL}"}}': 0,
    }.items():
        assert after[name] == value, name


@async_test(30)
async def test_a_server_that_no_model_uses_has_a_state_and_is_listed(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp:
        entry = {"name": "tools", "description": "Tools", "transport": "http", "url": mcp.url}
        async with run_gateway(tmp_path, models=[], mcp_servers=[entry]) as gateway:
            samples = await _samples(gateway)
            _, listed = await gateway.send("GET", "/v1/mcp/servers")
    assert samples['holodeck_mcp_server_state{server="tools",state="created"}'] == 1
    assert [server["name"] for server in listed["data"]] == ["tools"]


@async_test(30)
async def test_names_invented_by_models_and_clients_are_not_metric_labels(tmp_path: Path) -> None:
    calls = [call(f"invented_{number}") for number in range(20)]
    async with run_gateway(tmp_path, ScriptedModel([*calls, call("mine")], say("Done."))) as gateway:
        choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "other"}]}
        tools = [OWN, OWN | {"name": "other"}]
        body = {"model": MODEL, "input": "Go", "tools": tools, "tool_choice": choice}
        await gateway.send("POST", "/v1/responses", body)
        samples = await _samples(gateway)
    assert samples['holodeck_tool_calls_total{server="",tool="unknown",outcome="error"}'] == 21
    assert not [name for name in samples if "invented" in name or "mine" in name]


@async_test(30)
async def test_the_open_breaker_of_a_failing_model_is_a_metric(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: status(500, retry_after="600"))) as gateway:
        breaker = f'holodeck_model_breaker_open{{model="{MODEL}"}}'
        for _ in range(20):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        assert (await _samples(gateway))[breaker] == 1


def test_a_dashboard_never_gets_more_series_than_the_limit() -> None:
    metrics = Metrics()
    for number in range(MAX_METRIC_SERIES + 50):
        metrics.count_tool_call(f"server-{number}", "tool", 0.1, is_error=False)
    lines = metrics.render({}).decode().splitlines()
    assert len([line for line in lines if line.startswith("holodeck_tool_calls_total")]) == MAX_METRIC_SERIES + 1
    assert 'holodeck_tool_calls_total{server="other",tool="other",outcome="ok"} 50' in lines


def test_servers_declared_by_requests_are_counted_as_one() -> None:
    metrics = Metrics(frozenset({"ours"}))
    for server in ("ours", "theirs-1", "theirs-2"):
        metrics.count_tool_call(server, "tool", 0.1, is_error=False)
    lines = metrics.render({}).decode().splitlines()
    assert [line for line in lines if line.startswith("holodeck_tool_calls_total")] == [
        'holodeck_tool_calls_total{server="ours",tool="tool",outcome="ok"} 1',
        'holodeck_tool_calls_total{server="(request)",tool="other",outcome="ok"} 2',
    ]


def test_a_large_count_is_rendered_with_all_digits() -> None:
    metrics = Metrics()
    metrics.count("tokens_total", 12_345_678)
    metrics.count("tokens_total", 1)
    lines = metrics.render({"waiting": [((), math.nan)], "ratio": [((), 0.1)]}).decode().splitlines()
    assert "tokens_total 12345679" in lines
    assert "ratio 0.1" in lines
    assert "waiting nan" in lines
