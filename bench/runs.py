"""What lists of runs and reports of usage take in a store of a million runs, and what each stored run costs more."""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import aiohttp
import orjson

from bench.gateway_process import GatewayProcess
from bench.table import print_table
from holodeck.gateway.auth.callers import hash_key
from holodeck.storage.jobs import encode_value
from holodeck.storage.responses import StoredResponse
from holodeck.storage.runs import StoredRun
from holodeck.storage.sqlite.connection import connect_sqlite, for_sqlite
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore
from holodeck.storage.usage import ADD_USAGE, BOUNDS, DAY, HOUR, SUMS

CALLERS = 100
MODELS = ("small", "large", "local")
DAYS = 30
KEY = "hd-bench"
# Responses that are stored at once when the cost of storing is measured.
AT_ONCE = 16
_DETAILS = orjson.dumps(
    {
        "seconds": 2.5,
        "background": False,
        "turns": 2,
        "tool_calls": 1,
        "usage": {
            "input_tokens": 900,
            "output_tokens": 120,
            "cached_tokens": 300,
            "reasoning_tokens": 0,
            "total_tokens": 1020,
        },
        "cost": 0.0012,
        "first_token_seconds": 0.4,
        "error": None,
        "incomplete_reason": None,
        "previous_response_id": None,
        "conversation": None,
    }
)
# About what a response with one tool call takes, without its stream.
_BODY = b'{"text":"' + b"x" * 900 + b'"}'
_FILL_RUNS = f"""
WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < :count)
INSERT INTO runs (id, caller_id, created_at, status, model, servers, tools, question, answer, details)
SELECT printf('resp_%032x', n), 'key:caller' || (n % {CALLERS}), :now - {DAYS * DAY} * (1.0 - n * 1.0 / :count),
    CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'completed' END,
    CASE n % 3 WHEN 0 THEN 'small' WHEN 1 THEN 'large' ELSE 'local' END,
    CASE WHEN n % 3 = 0 THEN char(10) || 'tickets' || char(10) ELSE '' END,
    CASE WHEN n % 3 = 0 THEN char(10) || 'search' || char(10) WHEN n % 5000 = 1 THEN char(10) || 'rare' || char(10) ELSE '' END,
    'What is known about the order number ' || n || ' of last week, and when does it come?',
    'The order ' || n || ' was sent on Tuesday and arrives on Friday. Nothing else is open.', :details
FROM counter"""  # noqa: E501
_FILL_RESPONSES = """
INSERT INTO responses (id, caller_id, created_at, status, resource, input_items, items, pending, events, trace)
SELECT id, caller_id, created_at, status, :body, :none, :body, :none, :empty, :body FROM runs"""


def fill_store(path: Path, count: int) -> None:
    """Fill a new file with runs of 30 days, their responses, and the usage of each hour."""
    db = connect_sqlite(str(path), "fast")
    try:
        # Nothing of it has to survive, so it is written once, into the file itself.
        for setting in ("journal_mode = DELETE", "journal_mode = OFF", "synchronous = OFF"):
            db.execute(f"PRAGMA {setting}")
        db.execute("BEGIN")
        db.execute(_FILL_RUNS, {"count": count, "now": time.time(), "details": _DETAILS})
        values = {"body": _BODY[:300], "none": b"[]", "empty": b""}
        db.execute(_FILL_RESPONSES, {name: encode_value(value) for name, value in values.items()})
        _fill_usage(db, count)
        db.execute("COMMIT")
    finally:
        db.close()


def _fill_usage(db: sqlite3.Connection, count: int) -> None:
    buckets, now = len(BOUNDS) + 1, int(time.time())
    per_hour = max(1, count // (DAYS * 24 * CALLERS * len(MODELS)))
    sums = [per_hour * 10] * len(SUMS)
    times = [per_hour] * buckets
    sql = for_sqlite(ADD_USAGE)
    for period in (HOUR, DAY):
        first = (now - DAYS * DAY) // period * period
        db.executemany(
            sql,
            (
                (period, start, f"key:caller{caller}", model, "", "", "completed", *sums, 0.5, *times, *times)
                for start in range(first, now, period)
                for caller in range(CALLERS)
                for model in MODELS
            ),
        )


async def measure_queries(folder: Path, rounds: int) -> list[list[str]]:
    """The time of each request at a gateway with this store, best and median."""
    file = folder / "gateway.yaml"
    keys = [
        {"name": "root", "hash": hash_key(KEY), "role": "operator"},
        {"name": "caller7", "hash": hash_key(f"{KEY}-7")},
    ]
    models = [{"name": "demo", "model": {"provider": "rehearsal"}}]
    settings = {"storage": {"url": "sqlite:///kept.db", "retention_days": 400}, "background": {"durable": False}}
    file.write_bytes(orjson.dumps({"listen": {"port": 0}, "models": models, "keys": keys, **settings}))
    gateway = GatewayProcess(file)
    await gateway.start()
    await gateway.wait_ready()
    try:
        return await _time_requests(str(gateway.url), rounds)
    finally:
        await gateway.kill()


async def _time_requests(url: str, rounds: int) -> list[list[str]]:
    root, own = ({"authorization": f"Bearer {key}"} for key in (KEY, f"{KEY}-7"))
    rows = []
    async with aiohttp.ClientSession(url) as session:
        deep = await _find_deep_page(session, root)
        for label, path, headers in (
            ("GET /v1/runs, an operator", "/v1/runs", root),
            ("GET /v1/runs, a caller", "/v1/runs", own),
            ("status=failed", "/v1/runs?status=failed", root),
            ("status=failed, a caller", "/v1/runs?status=failed", own),
            ("model and tool", "/v1/runs?model=small&tool=search", root),
            ("a tool of one run in 5,000", "/v1/runs?tool=rare", root),
            ("text that no run has", "/v1/runs?text=nowhere", root),
            ("text that no run has, a caller", "/v1/runs?text=nowhere", own),
            ("page at 900,000 runs", f"/v1/runs?after={deep}", root),
            ("usage, 30 days by day, caller and model", "/v1/usage?bucket=day&group_by=caller,model", root),
            ("usage, 48 hours by hour", "/v1/usage?bucket=hour", root),
            ("usage, 30 days by hour, a caller", _month_of_hours(), own),
        ):
            took = []
            for _ in range(rounds):
                began = time.perf_counter()
                async with session.get(path, headers=headers) as answer:
                    body = await answer.read()
                took.append(1000 * (time.perf_counter() - began))
                if answer.status != 200:
                    raise RuntimeError(f"{path}: {answer.status} {body.decode()[:200]}")
            rows.append([label, f"{min(took):.1f} ms", f"{statistics.median(took):.1f} ms"])
    return rows


def _month_of_hours() -> str:
    return f"/v1/usage?bucket=hour&start_time={int(time.time()) - DAYS * DAY}"


async def _find_deep_page(session: aiohttp.ClientSession, headers: dict[str, str]) -> str:
    """The id of a run that is older than nine tenths of the others."""
    before = time.time() - 0.9 * DAYS * DAY
    async with session.get(f"/v1/runs?limit=1&created_before={before}", headers=headers) as answer:
        return str((await answer.json())["data"][0]["id"])


async def measure_inserts(folder: Path, count: int, rounds: int) -> list[list[str]]:
    """Microseconds to store a response, with and without its run and trace, in turn."""
    record = StoredResponse(
        id="", caller_id="key:alice", created_at=1.0, status="completed", resource=_BODY, items=_BODY, events=b""
    )
    took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(rounds):
        for has_run in (False, True):
            store = ResponseStore(SQLiteDriver(folder / f"insert-{number}-{has_run}.db"))
            took[has_run].append(await _time_inserts(store, record, count, has_run=has_run))
            await store.close()
    rows = []
    alone = min(cpu for _, cpu in took[False])
    for label, has_run in (("the response alone", False), ("with its run and trace", True)):
        seconds, cpu = (min(each) for each in zip(*took[has_run], strict=True))
        rows.append([label, f"{seconds:.0f} µs", f"{cpu:.0f} µs", f"{cpu / alone:.2f}"])
    return rows


async def _time_inserts(
    store: ResponseStore, record: StoredResponse, count: int, *, has_run: bool
) -> tuple[float, float]:
    """Microseconds of time and of CPU for each response."""
    numbers = iter(range(count))

    async def insert() -> None:
        for number in numbers:
            response = replace(record, id=f"resp_{os.urandom(16).hex()}", created_at=float(number))
            if has_run:
                run = StoredRun(
                    id=response.id,
                    caller_id=response.caller_id,
                    created_at=response.created_at,
                    status="completed",
                    model="small",
                    question="What is known about the order of last week, and when does it come?",
                    answer="It was sent on Tuesday and arrives on Friday. Nothing else is open.",
                    details=_DETAILS,
                )
                response = replace(response, run=run, trace=_BODY[:400])
            await store.save(response)

    await store.check_health()
    began, used = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(insert())
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    return 1e6 * seconds / count, 1e6 * cpu / count


async def _run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="holodeck-runs-", dir=options.folder) as name:
        folder = Path(name)
        rows = await measure_inserts(folder, options.inserts, options.rounds)
        print_table(
            f"Storing a response, {AT_ONCE} at once (best of {options.rounds})",
            ["", "each", "CPU", "ratio of CPU"],
            rows,
        )
        began = time.perf_counter()
        await asyncio.to_thread(fill_store, folder / "kept.db", options.runs)
        size = (folder / "kept.db").stat().st_size / 1e6
        print(f"Filled in {time.perf_counter() - began:.0f} s: {size:.0f} MB")
        found = await measure_queries(folder, options.requests)
        print_table(f"Requests over {options.runs:,} runs in SQLite", ["", "best", "median"], found)


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench runs", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs in the store")
    parser.add_argument("--requests", type=int, default=15, help="requests of each kind")
    parser.add_argument("--inserts", type=int, default=10_000, help="responses that are stored in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the store is made, which takes about 2 GB")
    asyncio.run(_run(parser.parse_args(arguments)))
