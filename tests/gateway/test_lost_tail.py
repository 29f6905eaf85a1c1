"""A database that has lost its last commits: the gateway says so, and does not report what is lost as never stored."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, wait_logged, write_gateway_file

from holodeck.storage.factory import open_store
from holodeck.storage.responses import StoredResponse
from holodeck.testing import ScriptedModel, say


def read_number(file: Path) -> int:
    return int(file.read_text()) if file.exists() else 0


@async_test(90)
async def test_a_lost_end_of_the_log_is_reported_until_an_operator_acknowledges_it(tmp_path: Path) -> None:
    tail, wal = tmp_path / "holodeck.db.tail", tmp_path / "holodeck.db-wal"
    async with ScriptedModel(lambda _: say("Hi.")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with run_gateway_process(file) as served:
            _, kept, _ = await served.create_response()
            size, number = wal.stat().st_size, read_number(tail)
            # Two marks later, at least the second was made after what is lost here.
            while read_number(tail) < number + 2:
                _, lost, _ = await served.create_response()
                await asyncio.sleep(0.1)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        os.truncate(wal, size)
        async with run_gateway_process(file) as served:
            await wait_logged(served, "storage.tail_lost")
            status, answer, _ = await served.send("GET", "/readyz")
            assert (status, answer["status"]) == (503, "storage incomplete")
            assert (await served.send("GET", f"/v1/responses/{kept['id']}"))[1] == kept
            assert (await served.send("GET", f"/v1/responses/{lost['id']}"))[0] == 503, "it was stored"
            assert (await served.create_response())[0] == 200, "what is there is whole, and can be added to"
            tail.unlink()
            while (await served.send("GET", "/readyz"))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert (await served.send("GET", f"/v1/responses/{lost['id']}"))[0] == 404
            served.stop()
            assert await served.wait_exit() == 0
        assert read_number(tail), "it is known from now on again"
        async with run_gateway_process(file) as served:
            assert (await served.send("GET", "/readyz"))[0] == 200


@async_test
async def test_that_a_loss_would_not_be_noticed_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept.db.tail").mkdir()
    store = open_store("sqlite:///kept.db", folder=tmp_path)
    try:
        for number in range(3):
            await store.save(StoredResponse(id=f"r{number}", caller_id="alice", created_at=1.0, status="completed"))
            await store.find_orphans()
    finally:
        await store.close()
    logged = [record.getMessage() for record in caplog.records if "storage.tail_failed" in record.getMessage()]
    assert len(logged) == 1
    assert "Is a directory" in logged[0]
