"""A stopping gateway ends the streams of unfinished background responses so that clients resume at another one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from openai import AsyncOpenAI
from storage.postgres_server import PostgresServer

from holodeck.testing import ScriptedModel, say, wait

SECONDS = 90.0


async def follow(client: AsyncOpenAI, response_id: str, after: int, events: list[Any], seen: asyncio.Event) -> None:
    """Read a stream to wherever it ends; `seen` is set with its first delta."""
    options: dict[str, Any] = {"starting_after": after} if after >= 0 else {}
    async for event in await client.responses.retrieve(response_id, stream=True, **options):
        events.append(event)
        if event.type == "response.output_text.delta":
            seen.set()


def client_of(served: GatewayProcess) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{served.url}/v1", api_key="anybody", max_retries=0)


@pytest.mark.proves("D-28", "D-32")
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
@async_test(SECONDS)
async def test_the_stream_of_a_stopping_gateway_is_cut_and_continues_at_the_next(
    tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    environ: dict[str, str] = {}
    if where == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        environ = {"HOLODECK_STORAGE__URL": await asyncio.to_thread(server.new_database)}
    gate = asyncio.Event()
    model = ScriptedModel([say("One"), wait(gate)], say("One, two."))
    async with model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background={"durable": True}, limits={"drain_seconds": 5})
        before: list[Any] = []
        async with run_gateway_process(file, environ=environ) as served, client_of(served) as client:
            made = await client.responses.create(model="demo", input="Count", background=True)
            seen = asyncio.Event()
            following = asyncio.create_task(follow(client, made.id, -1, before, seen))
            await seen.wait()
            served.stop()
            with pytest.raises(openai.APIConnectionError):
                await following
            assert await served.wait_exit() == 0
            assert not [line for line in served.stderr_lines if " ERROR " in line or "Traceback" in line]
        assert before[-1].type == "response.output_text.delta"
        rest: list[Any] = []
        async with run_gateway_process(file, environ=environ) as served, client_of(served) as client:
            await follow(client, made.id, before[-1].sequence_number, rest, asyncio.Event())
            assert (await client.responses.retrieve(made.id)).output_text.endswith("One, two.")
        assert rest[-1].type == "response.completed"
        assert [event.sequence_number for event in (*before, *rest)] == list(range(len(before) + len(rest)))


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_the_stream_of_a_response_run_elsewhere_is_cut_when_its_own_gateway_stops(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    environ = {"HOLODECK_STORAGE__URL": await asyncio.to_thread(postgres.new_database)}
    gate = asyncio.Event()
    async with ScriptedModel([say("One"), wait(gate), say(", two.")]).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background={"durable": True})
        async with (
            run_gateway_process(file, environ=environ) as maker,
            run_gateway_process(file, environ=environ) as served,
            client_of(maker) as client,
            client_of(served) as reader,
        ):
            made = await client.responses.create(model="demo", input="Count", background=True)
            before: list[Any] = []
            seen = asyncio.Event()
            following = asyncio.create_task(follow(reader, made.id, -1, before, seen))
            await seen.wait()
            served.stop()
            with pytest.raises(openai.APIConnectionError):
                await following
            assert await served.wait_exit() == 0
            gate.set()
            rest: list[Any] = []
            await follow(client, made.id, before[-1].sequence_number, rest, seen)
        assert rest[-1].type == "response.completed"
        assert [event.sequence_number for event in (*before, *rest)] == list(range(len(before) + len(rest)))
