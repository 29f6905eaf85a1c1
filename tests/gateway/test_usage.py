"""`/v1/usage`: every request is counted for its caller, by time, model, server, tool and status."""

from __future__ import annotations

import asyncio
import csv
import io
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import wait_asked
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.test_durable_runs import SECONDS
from gateway.test_run_list import ALICE, BOB, PRICE, ROOT, SCOPED_ROOT, ask, list_runs

from holodeck.storage.usage import BOUNDS, bucket_of, find_percentile
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend, wait
from holodeck.testing.model.script import status


async def read_usage(gateway: RunningGateway, query: str = "", *, key: str = ALICE) -> list[dict[str, Any]]:
    code, report = await gateway.send("GET", f"/v1/usage{query}", key=key)
    assert code == 200, report
    return list(report["data"])


@async_test(60)
async def test_all_apis_are_counted_with_tokens_cost_and_durations(tmp_path: Path, storage: dict[str, Any]) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(1_000, 100, cached=200, reasoning=10)])
    async with run_gateway(tmp_path, model, keys=[ALICE], price=PRICE, **storage) as gateway:
        message = {"role": "user", "content": "Go"}
        for path, body in (
            ("/v1/responses", {"input": "Go"}),
            ("/v1/responses", {"input": "Go", "store": False}),
            ("/v1/chat/completions", {"messages": [message]}),
            ("/v1/messages", {"messages": [message], "max_tokens": 100}),
        ):
            code, answer = await gateway.send("POST", path, {"model": MODEL, **body}, key=ALICE)
            assert code == 200, answer
        await gateway.stream("/v1/responses", {"model": MODEL, "input": "Go", "stream": True}, key=ALICE)
        for bucket, length in (("minute", 60), ("hour", 3_600), ("day", 86_400)):
            rows = await read_usage(gateway, f"?bucket={bucket}")
            assert sum(row["requests"] for row in rows) == 5, bucket
            assert sum(row["cost"] for row in rows) == pytest.approx(5 * (800 * 2 + 200 * 0.5 + 100 * 10) / 1_000_000)
            counted = [
                sum(row[f"{kind}_tokens"] for row in rows) for kind in ("input", "cached", "output", "reasoning")
            ]
            assert counted == [5_000, 1_000, 500, 50]
            for row in rows:
                assert row["end_time"] - row["start_time"] == length
                assert row["start_time"] % length == 0
                assert 0 < row["seconds_p50"] <= row["seconds_p95"]
                assert 0 < row["first_token_seconds_p50"] <= row["first_token_seconds_p95"]
        later = int(time.time()) + 100_000
        assert await read_usage(gateway, f"?start_time={later}&end_time={later + 7_200}") == []


@async_test(60)
async def test_a_report_has_its_total_that_of_the_time_before_and_the_currency(
    tmp_path: Path, storage: dict[str, Any]
) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(1_000, 100)])
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB], price=PRICE, **storage) as gateway:
        for key in (ALICE, ALICE, BOB):
            assert (await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key=key))[0] == 200
        now = int(time.time())
        later = (now // 3_600 + 1) * 3_600
        query = f"bucket=hour&start_time={later - 7_200}&end_time={later}"
        for groups in ("", "&group_by=model,status"):
            _, report = await gateway.send("GET", f"/v1/usage?{query}{groups}", key=ALICE)
            total, previous = report["total"], report["previous"]
            assert (total["start_time"], total["end_time"]) == (later - 7_200, later)
            assert (total["requests"], total["input_tokens"], total["output_tokens"]) == (2, 2_000, 200)
            assert total["cost"] == pytest.approx(2 * (1_000 * 2 + 100 * 10) / 1_000_000)
            assert total["seconds_p50"] > 0
            assert (previous["start_time"], previous["end_time"]) == (later - 14_400, later - 7_200)
            assert (previous["requests"], previous["cost"], previous["seconds_p50"]) == (0, None, None)
        _, report = await gateway.send(
            "GET", f"/v1/usage?bucket=hour&start_time={later}&end_time={later + 7_200}", key=ALICE
        )
        assert (report["total"]["requests"], report["previous"]["requests"]) == (0, 2)
        assert report["currency"] is None, "the prices are those of the file"
        models = orjson.loads(gateway.file.read_bytes())["models"]
        del models[0]["model"]["price"]
        assert await gateway.reload(models=models)
        assert (await gateway.send("GET", "/v1/usage", key=ALICE))[1]["currency"] == "USD"


@async_test(60)
async def test_the_duration_of_a_run_is_that_of_the_list_of_runs(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([wait(go_on), say("first")], say("second"))
    storage: dict[str, Any] = {"storage": {"url": "sqlite:///kept.db"}, "background": {"durable": True, "at_once": 1}}
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB], **storage) as gateway:
        await ask(gateway, "first", background=True)
        await wait_asked(gateway, 1)
        await ask(gateway, "second", key=BOB, background=True)
        # Far longer than the model will take for the second run, which waits in the queue for it.
        while (await list_runs(gateway, key=BOB))["data"][0]["seconds"] < 1:
            pass
        go_on.set()
        while (run := (await list_runs(gateway, key=BOB))["data"][0])["status"] != "completed":
            pass
        [row] = await read_usage(gateway, "?bucket=day", key=BOB)
    assert bucket_of(row["seconds_p50"]) == bucket_of(run["seconds"])
    assert row["seconds_p50"] >= row["first_token_seconds_p50"]


@async_test(60)
async def test_failed_requests_and_tool_calls_are_told_apart(tmp_path: Path, storage: dict[str, Any]) -> None:
    model = ScriptedModel(call("add", a=1, b=2), call("nothing"), say("Three."), status(404))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[ALICE], **storage) as gateway,
    ):
        for _ in range(2):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key=ALICE)
        [total] = await read_usage(gateway, "?bucket=day")
        assert (total["requests"], total["errors"], total["tool_calls"], total["cost"]) == (2, 1, 2, None)
        rows = await read_usage(gateway, "?bucket=day&group_by=status,model")
        assert [(row["status"], row["model"], row["requests"]) for row in rows] == [
            ("completed", MODEL, 1),
            ("failed", MODEL, 1),
        ]
        rows = await read_usage(gateway, "?bucket=day&group_by=server,tool,status")
        assert [(row["server"], row["tool"], row["status"], row["tool_calls"]) for row in rows] == [
            ("", "unknown", "error", 1),
            ("sums", "add", "ok", 1),
        ]
        assert all(row["requests"] == 0 and row["seconds_p95"] > 0 for row in rows)


@async_test(60)
async def test_calls_of_mcp_clients_are_counted_by_server_and_tool(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(), mcp={"sums": server}, keys=[ALICE, BOB], **storage) as gateway,
    ):
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "add",
                "arguments": {"a": 1, "b": 2},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
        session = await gateway.http_client(ALICE)
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "add",
        }
        async with session.post("/mcp", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert "3" in await answer.text()
        [row] = await read_usage(gateway, "?bucket=day&group_by=server,tool")
        assert (row["server"], row["tool"], row["tool_calls"], row["requests"]) == ("sums", "add", 1, 0)
        [total] = await read_usage(gateway, "?bucket=day")
        assert (total["tool_calls"], total["requests"]) == (1, 0)
        assert await read_usage(gateway, "?bucket=day&group_by=tool", key=BOB) == []


@async_test(60)
async def test_a_caller_gets_its_own_usage_and_an_operator_that_of_all(tmp_path: Path, storage: dict[str, Any]) -> None:
    scopes = {SCOPED_ROOT: {"models": [MODEL]}}
    async with run_gateway(
        tmp_path,
        ScriptedModel(lambda _: say("ok")),
        keys=[ALICE, BOB],
        admins=[ROOT, SCOPED_ROOT],
        scopes=scopes,
        **storage,
    ) as gateway:
        for key in (ALICE, BOB, BOB):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key=key)
        assert [row["requests"] for row in await read_usage(gateway, "?bucket=day")] == [1]
        rows = await read_usage(gateway, "?bucket=day&group_by=caller", key=ROOT)
        assert [(row["caller"], row["requests"]) for row in rows] == [(f"key:{ALICE}", 1), (f"key:{BOB}", 2)]
        for named in (f"key:{BOB}", BOB):
            rows = await read_usage(gateway, f"?bucket=day&caller={named}", key=ROOT)
            assert [row["requests"] for row in rows] == [2]
        assert await read_usage(gateway, "?bucket=day", key=SCOPED_ROOT) == []
        code, refused = await gateway.send("GET", f"/v1/usage?caller=key:{BOB}", key=ALICE)
        assert (code, refused["error"]["code"]) == (403, "forbidden")


@async_test(60)
async def test_usage_is_there_as_csv_and_is_kept_after_a_restart(tmp_path: Path, storage: dict[str, Any]) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(10, 2)])
    async with run_gateway(tmp_path, model, keys=[ALICE], **storage) as gateway:
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key=ALICE)
    async with run_gateway(tmp_path, model, keys=[ALICE], **storage) as gateway:
        session = await gateway.http_client(ALICE)
        for path, headers in (
            ("/v1/usage?bucket=day&group_by=model&format=csv", {}),
            ("/v1/usage?bucket=day&group_by=model", {"accept": "text/csv"}),
        ):
            async with session.get(path, headers=headers) as answer:
                assert answer.headers["content-type"] == "text/csv; charset=utf-8"
                [row] = csv.DictReader(io.StringIO(await answer.text()))
            assert (row["model"], row["requests"], row["input_tokens"], row["cost"]) == (MODEL, "1", "10", "")


@async_test(SECONDS)
async def test_what_was_counted_is_stored_soon_and_survives_a_kill(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: [say("ok"), spend(10, 2)]).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, storage={"url": "sqlite:///kept.db"})
        async with run_gateway_process(file) as served:
            await served.create_response("Go")
            await wait_counted(tmp_path / "kept.db")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            _, report, _ = await served.send("GET", "/v1/usage?bucket=day")
    assert [(row["requests"], row["output_tokens"]) for row in report["data"]] == [(1, 2)]


async def wait_counted(path: Path) -> None:
    """Wait until another process has stored usage in this file."""
    while True:
        with closing(sqlite3.connect(path)) as db:
            if db.execute("SELECT COUNT(*) FROM usage_counts").fetchone()[0]:
                return
        await asyncio.sleep(0.02)


@async_test(60)
async def test_a_wrong_query_is_refused_by_name(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(), keys=[ALICE]) as gateway:
        for query, param in (
            ("bucket=week", "bucket"),
            ("group_by=caller,colour", "group_by"),
            ("format=xml", "format"),
            ("start_time=soon", "start_time"),
            ("start_time=7200&end_time=3600", "end_time"),
        ):
            code, refused = await gateway.send("GET", f"/v1/usage?{query}", key=ALICE)
            assert (code, refused["error"]["param"]) == (400, param), query


def test_a_percentile_is_between_the_bounds_of_its_bucket() -> None:
    counts = [0] * (len(BOUNDS) + 1)
    assert find_percentile(counts, 0.5) is None
    for _ in range(90):
        counts[bucket_of(0.04)] += 1
    for _ in range(10):
        counts[bucket_of(9.0)] += 1
    half, most = find_percentile(counts, 0.5), find_percentile(counts, 0.95)
    assert half is not None
    assert most is not None
    assert 0.02 < half <= 0.05
    assert 8.0 < most <= 13.0
    counts[bucket_of(10_000.0)] += 1_000
    assert find_percentile(counts, 0.95) == BOUNDS[-1]
