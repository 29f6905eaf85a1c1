"""A database that no longer answers, which is worse than one that is away: nothing may wait for it for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from storage.postgres_server import PostgresServer
from storage.silenceable_network import run_network

from holodeck.testing import ScriptedModel, say


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@async_test(90)  # ten seconds for a statement and ten for a connection, then the end
async def test_a_gateway_whose_database_is_silent_can_still_be_probed_and_stopped(
    tmp_path: Path, postgres: PostgresServer, database: str
) -> None:
    async with run_network(postgres.port) as (between, port), ScriptedModel(lambda _: say("hi")).serve() as scripted:
        url = database.replace(str(postgres.port), str(port))
        file = write_gateway_file(
            tmp_path, scripted.url, storage={"url": "${DATABASE_URL}"}, background={"durable": True}
        )
        async with run_gateway_process(file, environ={"DATABASE_URL": url}) as served:
            assert (await served.create_response(background=True))[0] == 200
            between.freeze()
            request = asyncio.create_task(served.create_response())
            status, text, _ = await served.send("GET", "/metrics")
            assert (status, "holodeck_background_waiting NaN" in text) == (200, True)
            assert (await request)[0] == 503, "it could not be stored"
            served.stop()
            assert await served.wait_exit() == 0
