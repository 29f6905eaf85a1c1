"""A database whose user lacks rights that a gateway needs, or whose URL has options that its driver does not know."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from storage.postgres_server import PostgresServer

from holodeck.testing import ScriptedModel, say

SECONDS = 120.0  # processes start, on a machine that may have much to do
USER, PASSWORD = "gateway", "of%20the/sea"


@pytest.fixture(scope="session")
def postgres(postgres: PostgresServer) -> PostgresServer:
    """The server, with a user that owns nothing."""
    postgres.administer(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
    return postgres


def database(postgres: PostgresServer) -> tuple[str, dict[str, Any]]:
    """A new database: its name, and the part of a gateway file that names it with a user that owns nothing in it."""
    name = postgres.new_database().rpartition("/")[2]
    postgres.administer("GRANT CREATE ON SCHEMA public TO gateway", name)
    return name, {"background": {"durable": True}, "storage": {"url": "${DATABASE_URL}"}}


def address(postgres: PostgresServer, name: str, query: str = "") -> dict[str, str]:
    """The environment of a gateway with that user."""
    return {"DATABASE_URL": f"postgresql://{USER}:of%2520the%2Fsea@127.0.0.1:{postgres.port}/{name}{query}"}


async def wait_readiness(served: GatewayProcess, status: int) -> None:
    while (await served.send("GET", "/readyz"))[0] != status:  # noqa: ASYNC110 - a database changes
        await asyncio.sleep(0.02)


async def wait_logged(served: GatewayProcess, text: str) -> None:
    while not any(text in line for line in served.stderr_lines):  # noqa: ASYNC110 - another process writes
        await asyncio.sleep(0.02)


@async_test(SECONDS)
async def test_a_gateway_that_cannot_store_background_responses_is_not_ready_and_says_what_to_grant(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    name, config = await asyncio.to_thread(database, postgres)
    async with ScriptedModel(say("Hi.")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, **config)
        async with run_gateway_process(file, environ=address(postgres, name)) as served:
            assert (await served.send("GET", "/readyz"))[0] == 503
            text = "Grant it CREATE on the database, or make the schema 'holodeck_work' for it."
            await wait_logged(served, text)
            await asyncio.to_thread(postgres.administer, f"GRANT CREATE ON DATABASE {name} TO {USER}")
            await wait_readiness(served, 200)
            assert (await served.create_response(background=True))[0] == 200


@async_test(SECONDS)
async def test_a_schema_that_was_made_for_the_gateway_is_enough_and_no_other_database_is_needed(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    name, config = await asyncio.to_thread(database, postgres)
    await asyncio.to_thread(postgres.administer, f"CREATE SCHEMA holodeck_work AUTHORIZATION {USER}", name)
    await asyncio.to_thread(postgres.administer, "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
    async with ScriptedModel(say("Hi.")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, **config)
        async with run_gateway_process(file, environ=address(postgres, name)) as served:
            await wait_readiness(served, 200)
            assert (await served.create_response(background=True))[0] == 200
    assert not [line for line in served.stderr_lines if "durable.engine" in line], "nothing is wrong"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("channel_binding=require", "does not know a setting that stands behind the '?' in 'storage.url'"),
        ("connect_timeout=5", "does not know a setting that stands behind the '?' in 'storage.url'"),
        ("sslmode=require", "does not speak TLS"),
        ("sslmode=verify-full", "Name the authority's file as 'sslrootcert'"),
    ],
)
@async_test(SECONDS)
async def test_a_url_with_an_unsupported_option_is_explained(
    tmp_path: Path, postgres: PostgresServer, query: str, text: str
) -> None:
    name, config = await asyncio.to_thread(database, postgres)
    file = write_gateway_file(tmp_path, "http://127.0.0.1:9/v1", **config)
    async with run_gateway_process(file, environ=address(postgres, name, f"?{query}")) as served:
        assert (await served.send("GET", "/readyz"))[0] == 503
        await wait_logged(served, text)
