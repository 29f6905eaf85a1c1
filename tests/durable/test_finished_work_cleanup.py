"""A gateway that dies when a response is stored, and before its work is ended, leaves nothing that grows or repeats."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import mcp_server_entry, read_stream, wait_ended
from durable.crashing_gateway import AT, PROGRAM
from gateway.gateway_process import run_gateway_process, write_gateway_file
from storage.postgres_server import PostgresServer

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

SECONDS = 120.0


class Work:
    """The stored work, as the database shows it."""

    def __init__(self, folder: Path, postgres: PostgresServer | None, storage: str) -> None:
        self._folder = folder
        self._postgres = postgres
        self._name = storage.rpartition("/")[2]

    def stages(self) -> list[str]:
        sql = "SELECT status FROM {}workflow_status WHERE name = 'holodeck.work'"
        if self._postgres is not None:
            rows = self._postgres.administer(sql.format("holodeck_work."), self._name)
            return [str(row[0]) for row in rows]
        database = sqlite3.connect(next(self._folder.glob("**/*.work")))
        try:
            return [str(row[0]) for row in database.execute(sql.format(""))]
        finally:
            database.close()

    async def over(self) -> None:
        """Wait until nothing is under way."""
        while "PENDING" in await asyncio.to_thread(self.stages):  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.1)


@pytest.mark.proves("D-32", "D-16", "D-28")
@pytest.mark.parametrize("is_shared", [False, True], ids=["sqlite", "postgres"])
@async_test(SECONDS)
async def test_work_whose_response_is_stored_is_ended_and_not_done_again(
    tmp_path: Path, request: pytest.FixtureRequest, is_shared: bool
) -> None:
    postgres: PostgresServer | None = request.getfixturevalue("postgres") if is_shared else None
    config: dict[str, Any] = {"background": {"durable": True}}
    storage = ""
    if postgres is not None:
        storage = await asyncio.to_thread(postgres.new_database)
        (tmp_path / "url").write_text(storage)
        config["storage"] = {"url_file": str(tmp_path / "url")}
    work = Work(tmp_path, postgres, storage)
    async with FaultyMCPServer() as mcp, ScriptedModel(call("echo", text="one"), say("done")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], **config)
        async with run_gateway_process(file, program=PROGRAM, environ={AT: "finish 1 after"}) as served:
            _, begun, _ = await served.create_response("Go", background=True)
            await served.wait_exit()
        assert await asyncio.to_thread(work.stages) == ["PENDING"], "it died in the right moment"
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
            events = await read_stream(served, begun["id"])
            await work.over()
            assert await wait_ended(served, begun["id"]) == found
            assert await read_stream(served, begun["id"]) == events
    assert (found["status"], events[-1]["response"]) == ("completed", found)
    assert (len(mcp.calls()), len(scripted.received)) == (1, 2)
    assert len(await asyncio.to_thread(work.stages)) == 1
