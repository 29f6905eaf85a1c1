"""Gateways that share one PostgreSQL are one gateway to their clients, also when it is restarted under them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from storage.postgres_server import PostgresServer

from holodeck.testing import ScriptedModel, say, wait

SECONDS = 90.0


def request_body(text: str, **more: object) -> dict[str, object]:
    return {"model": MODEL, "input": text, **more}


async def write_storage_config(folder: Path, postgres: PostgresServer) -> dict[str, str]:
    """The part of a gateway file that names a new database, by a mounted secret."""
    file = folder / "database-url"
    file.write_text(await asyncio.to_thread(postgres.new_database))
    return {"url_file": str(file)}


async def wait_readiness(gateway: RunningGateway, status: int) -> None:
    while (await gateway.send("GET", "/readyz"))[0] != status:  # noqa: ASYNC110 - the database starts and stops
        await asyncio.sleep(0.02)


@pytest.mark.proves("D-32", "D-28")
@async_test(SECONDS)
async def test_a_response_of_one_gateway_is_continued_by_another(tmp_path: Path, postgres: PostgresServer) -> None:
    storage = await write_storage_config(tmp_path, postgres)
    never = asyncio.Event()
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    async with run_gateway(one, ScriptedModel(say("First."), [wait(never)]), storage=storage) as first:
        _, response = await first.send("POST", "/v1/responses", request_body("Remember me"))
        _, running = await first.send("POST", "/v1/responses", request_body("Take your time", background=True))
        async with run_gateway(two, ScriptedModel(say("Second.")), storage=storage) as second:
            body = request_body("And now?", previous_response_id=response["id"])
            status, _ = await second.send("POST", "/v1/responses", body)
            assert status == 200
            messages = [message["content"] for message in second.model_requests[0]["messages"]]
            assert messages == ["Remember me", "First.", "And now?"]
            _, seen = await second.send("GET", f"/v1/responses/{running['id']}")
            assert seen["status"] == "queued", "another gateway runs it, so it is no orphan"
        never.set()


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_gateway_outlives_the_restart_of_its_database(tmp_path: Path, postgres: PostgresServer) -> None:
    storage = await write_storage_config(tmp_path, postgres)
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), storage=storage) as gateway:
        _, before = await gateway.send("POST", "/v1/responses", request_body("Hello"))
        await asyncio.to_thread(postgres.stop)
        try:
            await wait_readiness(gateway, 503)
            assert (await gateway.send("GET", "/healthz"))[0] == 200
            waiting = asyncio.create_task(gateway.send("POST", "/v1/responses", request_body("Hello")))
        finally:
            await asyncio.to_thread(postgres.start)
        assert (await waiting)[0] == 200, "a short absence is waited for"
        await wait_readiness(gateway, 200)
        assert (await gateway.send("GET", f"/v1/responses/{before['id']}"))[1] == before


@async_test(SECONDS)
async def test_a_gateway_starts_without_its_database_and_uses_it_when_it_is_there(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    storage = await write_storage_config(tmp_path, postgres)
    await asyncio.to_thread(postgres.stop)
    try:
        async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), storage=storage) as gateway:
            assert (await gateway.send("GET", "/readyz"))[0] == 503
            await asyncio.to_thread(postgres.start)
            assert (await gateway.send("POST", "/v1/responses", request_body("Hello")))[0] == 200
            assert (await gateway.send("GET", "/readyz"))[0] == 200
    finally:
        if not postgres.is_running:
            postgres.start()
