"""A database that no longer answers, which is worse than one that is away: nothing may wait for it for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from durable.crash_cases import read_stream, read_stream_until, wait_ended
from gateway.gateway_process import run_gateway_process, write_gateway_file
from storage.postgres_server import PostgresServer
from storage.silenceable_network import run_network

from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import Wait


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


@pytest.mark.proves("D-28", "D-32")
@async_test(90)  # ten seconds until the answer to the commit counts as lost
async def test_a_response_goes_on_when_the_answer_to_the_commit_of_its_events_is_lost(
    tmp_path: Path, postgres: PostgresServer, database: str
) -> None:
    gates = [Wait(until=asyncio.Event()) for _ in range(3)]
    turn = [say("one "), gates[0], say("two "), gates[1], say("three "), gates[2], say("four")]
    async with run_network(postgres.port) as (between, port), ScriptedModel(lambda _: turn).serve() as scripted:
        url = database.replace(str(postgres.port), str(port))
        file = write_gateway_file(
            tmp_path, scripted.url, storage={"url": "${DATABASE_URL}"}, background={"durable": True}
        )
        async with run_gateway_process(file, environ={"DATABASE_URL": url}) as served:
            _, begun, _ = await served.create_response(background=True)
            await read_stream_until(served, begun["id"], "response.output_text.delta")
            between.commits_to_lose = 1
            gates[0].until.set()
            await between.commit_lost.wait()
            gates[1].until.set()
            await read_stream_until(served, begun["id"], "three ")
            gates[2].until.set()
            ended = await wait_ended(served, begun["id"])
            assert (ended["status"], ended["output"][0]["content"][0]["text"]) == ("completed", "one two three four")
            events = await read_stream(served, begun["id"])
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
