"""A client that leaves while its background response is being kept: it is made all the same."""

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
LEFT = 5


def _statuses(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "holodeck.db")) as database:
        return sorted(row[0] for row in database.execute("SELECT status FROM responses"))


async def _in_flight(served: GatewayProcess, count: int) -> None:
    while f"\nholodeck_in_flight {count}\n" not in (await served.send("GET", "/metrics"))[1]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def _leave_while_nothing_can_be_kept(served: GatewayProcess, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "holodeck.db", isolation_level=None)) as slow:
        slow.execute("BEGIN IMMEDIATE")
        leaving = [asyncio.create_task(served.create_response(background=True)) for _ in range(LEFT)]
        await _in_flight(served, LEFT)
        for each in leaving:
            each.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await served.send("GET", "/healthz")  # its leaving was heard before
        slow.execute("COMMIT")
    await _in_flight(served, 0)


@pytest.mark.proves("D-32", "D-28")
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "in the process"])
@async_test(SECONDS)
async def test_a_background_response_whose_client_leaves_is_made(tmp_path: Path, is_durable: bool) -> None:
    async with ScriptedModel(lambda _: say("done")).serve() as model:
        file = write_gateway_file(tmp_path, model.url, background={"durable": is_durable})
        async with run_gateway_process(file) as served:
            assert (await served.create_response())[0] == 200
            # A client that leaves before its response is about to be kept has asked for nothing, so others follow it.
            while len(_statuses(tmp_path)) < 1 + LEFT:
                await _leave_while_nothing_can_be_kept(served, tmp_path)
            while set(_statuses(tmp_path)) != {"completed"}:  # noqa: ASYNC110 - it is told nowhere
                await asyncio.sleep(0.05)
            await _in_flight(served, 0)
