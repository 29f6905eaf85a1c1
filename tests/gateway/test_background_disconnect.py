"""A background response runs even if its client disconnects while it is being stored."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file

from holodeck.testing import ScriptedModel, say

SECONDS = 120.0
CLIENTS = 5


def _statuses(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "holodeck.db")) as database:
        return sorted(row[0] for row in database.execute("SELECT status FROM responses"))


async def _in_flight(served: GatewayProcess, count: int) -> None:
    while f"\nholodeck_in_flight {count}.0\n" not in (await served.send("GET", "/metrics"))[1]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def _disconnect_while_storage_is_locked(served: GatewayProcess, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "holodeck.db", isolation_level=None)) as slow:
        slow.execute("BEGIN IMMEDIATE")
        leaving = [asyncio.create_task(served.create_response(background=True)) for _ in range(CLIENTS)]
        await _in_flight(served, CLIENTS)
        for each in leaving:
            each.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        # The gateway handles the disconnects before it answers this request.
        await served.send("GET", "/healthz")
        slow.execute("COMMIT")
    await _in_flight(served, 0)


@pytest.mark.proves("D-32", "D-28")
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "in the process"])
@async_test(SECONDS)
async def test_a_background_response_runs_after_its_client_disconnects(tmp_path: Path, is_durable: bool) -> None:
    async with ScriptedModel(lambda _: say("done")).serve() as model:
        file = write_gateway_file(tmp_path, model.url, background={"durable": is_durable})
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            # A response whose client disconnects before it is being stored is not created, so more clients follow.
            while len(_statuses(tmp_path)) < 1 + CLIENTS:
                await _disconnect_while_storage_is_locked(served, tmp_path)
            while set(_statuses(tmp_path)) != {"completed"}:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.05)
            await _in_flight(served, 0)
