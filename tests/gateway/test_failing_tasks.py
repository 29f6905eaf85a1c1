"""Tasks of the gateway that must live: an exception that nothing foresaw ends none of them, and is not hidden."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.storage.jobs import encode_value
from holodeck.testing import ScriptedModel, say

# Stored as the gateway of a response; no file can have this name, so that asking for its lock is a `ValueError`.
IMPOSSIBLE_GATEWAY = "CAST(X'6100' AS TEXT)"


def _execute(folder: Path, sql: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(folder / "holodeck.db", isolation_level=None)) as database:
        return database.execute(sql, values).fetchall()


async def _wait_readiness(gateway: RunningGateway, wanted: dict[str, Any]) -> None:
    while await gateway.send("GET", "/readyz") != (200, wanted):  # noqa: ASYNC110 - a task of the gateway
        await asyncio.sleep(0.05)


@pytest.mark.proves("D-32")
@async_test(60)
async def test_a_loop_that_meets_an_unexpected_exception_is_named_by_readiness_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"model": MODEL, "input": "Hello"}
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi."))) as gateway:
        impossible, unreadable, orphan = [
            (await gateway.send("POST", "/v1/responses", body))[1]["id"] for _ in range(3)
        ]
        _execute(tmp_path, "UPDATE responses SET resource = ? WHERE id = ?", encode_value(b"{"), unreadable)
        _execute(tmp_path, f"UPDATE responses SET status = 'queued', gateway_id = {IMPOSSIBLE_GATEWAY}")
        await _wait_readiness(gateway, {"status": "ok", "failing": ["take-over"]})
        logged = [record.getMessage() for record in caplog.records]
        failure = next(line for line in logged if "process.task_failed" in line)
        assert "take-over" in failure
        assert "ValueError" in failure
        _execute(tmp_path, "UPDATE responses SET status = 'completed' WHERE id = ?", impossible)
        _execute(tmp_path, "UPDATE responses SET gateway_id = 1")
        while (await gateway.send("GET", f"/v1/responses/{orphan}"))[1]["status"] != "failed":  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
        await _wait_readiness(gateway, {"status": "ok"})
