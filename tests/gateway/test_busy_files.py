"""A gateway that starts while another process writes to its SQLite file says what it waits for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from aio import aio
from durable.survival import ended
from gateway.process import process_of, start, write_file

from holodeck.testing import ScriptedModel, say

SECONDS = 60.0


@pytest.mark.parametrize("name", ["kept.db", "kept.db.work"])
@aio(SECONDS)
async def test_it_says_what_it_waits_for_and_serves_once_it_has_it(tmp_path: Path, name: str) -> None:
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        more = {"storage": {"url": "sqlite:///kept.db"}, "background": {"durable": True}}
        file = write_file(tmp_path, scripted.url, **more)
        async with process_of(file) as served:
            _, made, _ = await served.ask(background=True)
            await ended(served, made["id"])
            served.stop()
            await served.ended()
        with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            process = await start(file)
            assert process.stderr is not None
            try:
                line = (await process.stderr.readline()).decode()
                assert "storage.waiting" in line
                assert f"Waiting for {tmp_path / name}, to which another process is writing, for up to 10 s." in line
                other.execute("COMMIT")
                assert "Serving demo" in (await process.stderr.readline()).decode()
            finally:
                process.kill()
                await process.communicate()
