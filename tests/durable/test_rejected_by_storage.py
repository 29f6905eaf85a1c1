"""A response that storage refuses, when it is taken in or when it has ended, leaves its conversation to the next."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import UNKNOWN, mcp_server_entry, tool_answers, wait_ended, wait_model_requests
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from storage.postgres_server import PostgresServer

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

SECONDS = 90.0  # ends what hangs, also on a machine that has much to do
ASKING = {"type": "mcp", "server_label": "tools", "require_approval": "always"}
GIVING_BACK = ("conversations", "UPDATE", "NEW.leased_by IS NULL")
REFUSED = {
    "entering": [("responses", "INSERT", "NEW.status = 'queued'")],
    "the first events": [("response_events", "INSERT", "TRUE")],
    "entering, and giving back": [("responses", "INSERT", "NEW.status = 'queued'"), GIVING_BACK],
    "the end": [("conversation_items", "INSERT", "TRUE")],
    "the first events, and taking out": [("response_events", "INSERT", "TRUE"), ("responses", "DELETE", "TRUE")],
}
"""What storage does not do: the table, the statement, and of which rows."""

Administer = Callable[[str], object]


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Administer]:
    """The URL of a database, and how its owner runs a statement in it."""
    if request.param == "sqlite":

        def administer(sql: str) -> object:
            with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as database:
                return database.execute(sql).fetchall()

        return "sqlite:///kept.db", administer
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.new_database()
    return url, lambda sql: server.administer(sql, url.rpartition("/")[2])


def refusals(url: str, what: str) -> tuple[list[str], list[str]]:
    """The statements that make a database refuse, and those that end it."""
    begin, end = [], []
    if url.startswith("postgres"):
        body = "BEGIN RAISE EXCEPTION 'no'; END"
        begin.append(f"CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    for number, (table, statement, rows) in enumerate(REFUSED[what]):
        name, event = f"refuse_{number}", f"BEFORE {statement} ON {table} FOR EACH ROW WHEN ({rows})"
        if url.startswith("postgres"):
            begin.append(f"CREATE TRIGGER {name} {event} EXECUTE FUNCTION refuse()")
            end.append(f"DROP TRIGGER {name} ON {table}")
        else:
            begin.append(f"CREATE TRIGGER {name} {event} BEGIN SELECT RAISE(ABORT, 'no'); END")
            end.append(f"DROP TRIGGER {name}")
    return begin, end


def environ(url: str) -> dict[str, str]:
    return {"HOLODECK_STORAGE__URL": url}


async def send_until_accepted(served: GatewayProcess, body: dict[str, Any]) -> dict[str, Any]:
    """Repeat the request until it is accepted: claims that storage refused to release are released a moment later."""
    while True:
        status, answer, _ = await served.send("POST", "/v1/responses", body)
        if status == 200:
            return dict(answer)
        assert answer["error"]["code"] in {"conversation_locked", "rate_limit_exceeded"}, answer
        await asyncio.sleep(0.1)


@pytest.mark.proves("D-26", "D-28")
@pytest.mark.parametrize("what", [each for each in REFUSED if each != "the end"])
@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "in the process"])
@async_test(SECONDS)
async def test_pending_calls_are_pending_again_when_the_response_could_not_be_stored(
    tmp_path: Path, storage: tuple[str, Administer], what: str, is_durable: bool
) -> None:
    url, administer = storage
    begin, end = refusals(url, what)
    model = ScriptedModel(lambda got: say("Done.") if tool_answers(got.json["messages"]) else call("add", a=1, b=2))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        limits = {"key": {"background": 1}, "drain_seconds": 0}
        config: dict[str, Any] = {"mcp_servers": [mcp_server_entry(mcp.url)], "background": {"durable": is_durable}}
        file = write_gateway_file(tmp_path, scripted.url, limits=limits, **config)
        async with run_gateway_process(file, environ=environ(url)) as served:
            fields = {"conversation": (await served.send("POST", "/v1/conversations", {}))[1]["id"], "tools": [ASKING]}
            _, before, _ = await served.create_response("Go", **fields)
            yes = {"type": "mcp_approval_response", "approval_request_id": before["output"][-1]["id"], "approve": True}
            body = {"model": "demo", "input": [yes], "background": True, **fields}
            for statement in begin:
                await asyncio.to_thread(administer, statement)
            status, refused, _ = await served.send("POST", "/v1/responses", body)
            assert (status, refused["error"]["code"]) == (503, "storage_error")
            for statement in end:
                await asyncio.to_thread(administer, statement)
            queued = await send_until_accepted(served, body)
            assert (await wait_ended(served, queued["id"]))["status"] == "completed"
            assert len(mcp.calls("add")) == 1
            assert tool_answers(scripted.received[-1].json["messages"]) == ["3"]
            stored_ids = await asyncio.to_thread(administer, "SELECT id FROM responses")
            assert {row[0] for row in stored_ids} == {before["id"], queued["id"]}  # type: ignore[attr-defined]


@pytest.mark.proves("D-26", "D-32")
@async_test(SECONDS)
async def test_pending_calls_are_pending_again_when_the_response_is_cancelled_before_it_began(
    tmp_path: Path, storage: tuple[str, Administer]
) -> None:
    gate = asyncio.Event()

    def turn(got: Any) -> Any:
        if got.json["messages"][-1]["content"] == "Wait":
            return [wait(gate), say("Done.")]
        return say("Done.") if tool_answers(got.json["messages"]) else call("add", a=1, b=2)

    async with FaultyMCPServer() as mcp, ScriptedModel(turn).serve() as scripted:
        config: dict[str, Any] = {
            "mcp_servers": [mcp_server_entry(mcp.url)],
            "background": {"durable": True, "at_once": 1},
        }
        file = write_gateway_file(tmp_path, scripted.url, **config)
        async with run_gateway_process(file, environ=environ(storage[0])) as served:
            fields = {"conversation": (await served.send("POST", "/v1/conversations", {}))[1]["id"], "tools": [ASKING]}
            _, before, _ = await served.create_response("Go", **fields)
            assert (await served.create_response("Wait", background=True))[0] == 200
            await wait_model_requests(scripted, 2)
            yes = {"type": "mcp_approval_response", "approval_request_id": before["output"][-1]["id"], "approve": True}
            body = {"model": "demo", "input": [yes], "background": True, **fields}
            _, queued, _ = await served.send("POST", "/v1/responses", body)
            _, cancelled, _ = await served.send("POST", f"/v1/responses/{queued['id']}/cancel")
            assert cancelled["status"] == "cancelled"
            gate.set()
            status, queued, _ = await served.send("POST", "/v1/responses", body)
            assert status == 200, queued
            assert (await wait_ended(served, queued["id"]))["status"] == "completed"
            assert len(mcp.calls("add")) == 1
            assert tool_answers(scripted.received[-1].json["messages"]) == ["3"]


@pytest.mark.proves("D-26", "D-31")
@pytest.mark.parametrize("is_streamed", [True, False])
@async_test(SECONDS)
async def test_a_conversation_can_be_continued_after_a_response_that_could_not_be_stored(
    tmp_path: Path, storage: tuple[str, Administer], is_streamed: bool
) -> None:
    url, administer = storage
    begin, end = refusals(url, "the end")
    model = ScriptedModel(lambda got: say("Done.") if tool_answers(got.json["messages"]) else call("add", a=1, b=2))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)])
        async with run_gateway_process(file, environ=environ(url)) as served:
            fields = {"conversation": (await served.send("POST", "/v1/conversations", {}))[1]["id"], "tools": [ASKING]}
            _, before, _ = await served.create_response("Go", **fields)
            yes = {"type": "mcp_approval_response", "approval_request_id": before["output"][-1]["id"], "approve": True}
            body = {"model": "demo", "input": [yes], **fields}
            for statement in begin:
                await asyncio.to_thread(administer, statement)
            _, answer, _ = await served.send("POST", "/v1/responses", {**body, "stream": is_streamed})
            assert "storage_error" in str(answer)
            for statement in end:
                await asyncio.to_thread(administer, statement)
            status, answer, _ = await served.send("POST", "/v1/responses", body)
            assert (status, answer["error"]) == (200, None), answer
            assert len(mcp.calls("add")) == 1, "what has run is not run again"
            assert UNKNOWN in tool_answers(scripted.received[-1].json["messages"])[0]
