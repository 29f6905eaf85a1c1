"""A database that no longer answers, which is worse than one that is away: nothing may wait for it for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aio import aio
from gateway.process import process_of, write_file
from storage.network import network
from storage.postgres_server import PostgresServer

from holodeck.testing import ScriptedModel, say


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@aio(90)  # ten seconds for a statement and ten for a connection, then the end
async def test_a_gateway_whose_database_has_fallen_silent_is_watched_and_ended_all_the_same(
    tmp_path: Path, postgres: PostgresServer, database: str
) -> None:
    async with network(postgres.port) as (between, port), ScriptedModel(lambda _: say("hi")).serve() as scripted:
        url = database.replace(str(postgres.port), str(port))
        file = write_file(tmp_path, scripted.url, storage={"url": "${DATABASE_URL}"}, background={"durable": True})
        async with process_of(file, environ={"DATABASE_URL": url}) as served:
            assert (await served.ask(background=True))[0] == 200
            between.freeze()
            asked = asyncio.create_task(served.ask())
            status, text, _ = await served.send("GET", "/metrics")
            assert (status, "holodeck_background_waiting nan" in text) == (200, True)
            assert (await asked)[0] == 503, "it could not be kept"
            served.stop()
            assert await served.ended() == 0
