"""A gateway that starts while another process writes to its SQLite file logs what it waits for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from async_tests import async_test
from durable.crash_cases import wait_ended
from gateway.gateway_process import run_gateway_process, start_gateway, write_gateway_file

from holodeck.testing import ScriptedModel, say

SECONDS = 60.0


@pytest.mark.parametrize("name", ["kept.db", "kept.db.work"])
@async_test(SECONDS)
async def test_a_gateway_logs_that_it_waits_for_a_locked_database_and_then_serves(tmp_path: Path, name: str) -> None:
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        more = {"storage": {"url": "sqlite:///kept.db"}, "background": {"durable": True}}
        file = write_gateway_file(tmp_path, scripted.url, **more)
        async with run_gateway_process(file) as served:
            _, made, _ = await served.create_response(background=True)
            await wait_ended(served, made["id"])
            served.stop()
            await served.wait_exit()
        with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            process = await start_gateway(file)
            assert process.stderr is not None
            try:
                while "storage.waiting" not in (line := (await process.stderr.readline()).decode()):
                    assert line, "the gateway has ended"
                assert f"Waiting for {tmp_path / name}, to which another process is writing, for up to 10 s." in line
                other.execute("COMMIT")
                assert "Serving demo" in (await process.stderr.readline()).decode()
            finally:
                process.kill()
                await process.communicate()
