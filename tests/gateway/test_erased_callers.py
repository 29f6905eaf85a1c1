"""What a caller has stored is exported as lines of JSON, and erased at every gateway, with what runs for it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import orjson
import pytest
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.config_entries import ALICE, ASK, BOB, wait_asked
from gateway.running_gateway import RunningGateway, parse_events, run_gateway
from gateway.test_keys_route import OPS
from gateway.test_shared_keys import shared

from holodeck.storage.elicitations import StoredElicitation
from holodeck.storage.mcp_sessions import StoredMCPSession
from holodeck.storage.migrations import MIGRATIONS
from holodeck.storage.person_sessions import StoredSession
from holodeck.storage.server_logins import StoredFlow
from holodeck.storage.store import ResponseStore
from holodeck.testing import ScriptedModel, say, spend, wait
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import Received

__all__ = ["shared"]

CANARY = "canary-7f3a"
CALLER = f"key:{ALICE}"
SLOW = ASK | {"input": f"slow {CANARY}"}
AUDIT = {"file": AUDIT_FILE}
# The note that a caller was erased, for gateways that were cut off meanwhile, and the keys themselves.
KEPT = {"caller_states", "caller_keys"}
CALLER_TABLES = {
    found[1]
    for migration in MIGRATIONS
    for statement in migration
    if (found := re.match(r"CREATE TABLE (\w+) \([^;]*\bcaller_id\b", statement))
}


def answer(request: Received) -> Turn:
    text = str(request.json)
    if "slow" in text:
        return [say("First."), wait(asyncio.Event())]
    return [say(f"Hi, {CANARY}."), spend(100, 100)]


@asynccontextmanager
async def two_gateways(folder: Path, shared: dict[str, Any]) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways with the same storage, of which the second one has durable background responses."""
    model = ScriptedModel(answer)
    options: dict[str, Any] = {"keys": [ALICE, BOB], "admins": [OPS], "price": {"input": 1.0, "output": 1.0}, **shared}
    for name in ("one", "other"):
        (folder / name).mkdir()
    async with (
        run_gateway(folder / "one", model, **options, audit=AUDIT) as one,
        run_gateway(folder / "other", model, **options, background={"durable": True}) as other,
    ):
        yield one, other


async def store_everything(gateway: RunningGateway, key: str) -> str:
    """Store something of every kind for a caller. Returns the id of its conversation."""
    _, conversation = await gateway.send("POST", "/v1/conversations", {"metadata": {"about": CANARY}}, key=key)
    ask, store = ASK | {"input": CANARY}, gateway.service.store
    for body in (ask | {"conversation": conversation["id"]}, ask | {"background": True, "stream": True}):
        session = await gateway.http_client(key)
        headers = {} if "stream" in body else {"idempotency-key": str(uuid4())}
        async with session.post("/v1/responses", data=orjson.dumps(body), headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            await reply.read()
    await store_directly(store, f"key:{key}")
    # By these two, what was counted and seen by now is stored.
    for path in ("/v1/usage", "/v1/keys"):
        assert (await gateway.send("GET", path, key=OPS))[0] == 200
    return str(conversation["id"])


async def store_directly(store: ResponseStore, caller_id: str) -> None:
    """Store what takes more than a request to a gateway with keys."""
    response_id, call_id = str(uuid4()), str(uuid4())
    await store.add_pending_calls(caller_id, response_id, {call_id: b"digest"}, client_call_ids=[call_id])
    question = StoredElicitation(
        id=call_id, response_id=response_id, caller_id=caller_id, created_at=0.0, expires_at=9e9, question=b"{}"
    )
    await store.elicitations.add_elicitation(question)
    session = StoredSession(
        id=call_id,
        kind="console",
        caller_id=caller_id,
        issuer="",
        about="",
        created_at=0.0,
        expires_at=9e9,
        secret_hash=call_id,
        secret_expires_at=9e9,
        claims=b"{}",
    )
    await store.person_sessions.add_session(session)
    await store.mcp_sessions.add_session(
        StoredMCPSession(id=call_id, caller_id=caller_id, server="", scope="", state=b"{}")
    )
    await store.server_logins.claim_login(caller_id, "github", call_id)
    await store.server_logins.start_flow(
        StoredFlow(
            id=call_id,
            caller_id=caller_id,
            server="github",
            started_by=caller_id,
            status="waiting",
            expires_at=9e9,
            content=b"{}",
        )
    )


async def find_tables(folder: Path, gateway: RunningGateway, text: str) -> set[str]:
    """The tables of all databases of these gateways that have a text in any column."""
    driver = gateway.service.store._driver
    found = set()
    for file in folder.rglob("*"):  # noqa: ASYNC240 - a few files
        if not file.is_file() or not file.read_bytes().startswith(b"SQLite format 3"):
            continue
        with closing(sqlite3.connect(file)) as database:
            tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
                search = " OR ".join(f"instr(CAST({column} AS TEXT), :text) > 0" for column in columns)
                if database.execute(f"SELECT 1 FROM {table} WHERE {search}", {"text": text}).fetchone():
                    found.add(table)
    if "postgres" in type(driver).__module__:

        async def search_all(db: Any) -> None:
            columns = await db.fetch_rows(
                "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
                "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
            )
            for schema, table, column, kind in columns:
                shown = f"""encode("{column}", 'escape')""" if kind == "bytea" else f'CAST("{column}" AS text)'
                sql = f'SELECT 1 FROM {schema}."{table}" WHERE strpos({shown}, $1) > 0'
                if await db.fetch_row(sql, text) is not None:
                    found.add(table)

        await driver.read(search_all)
    return found


@async_test(120)
async def test_after_an_erasure_nothing_of_the_caller_is_in_any_table_of_any_gateway(
    tmp_path: Path, shared: dict[str, Any]
) -> None:
    async with two_gateways(tmp_path, shared) as (one, other):
        for gateway, key in ((one, ALICE), (other, ALICE), (other, BOB)):
            conversation = await store_everything(gateway, key)
        asked = len(other.model_requests)
        sessions = [await gateway.http_client(ALICE) for gateway in (one, other)]
        await other.send("POST", "/v1/responses", SLOW | {"background": True}, key=ALICE)
        await wait_asked(other, asked + 1)
        at_one = len(one.model_requests)
        streams = [
            await session.post("/v1/responses", data=orjson.dumps(SLOW | {"stream": True})) for session in sessions
        ]
        await wait_asked(one, at_one + 1)
        await wait_asked(other, asked + 2)
        before = await find_tables(tmp_path, one, CALLER)
        assert before | KEPT >= CALLER_TABLES, "this test fills every table that names callers"
        assert "workflow_status" in before
        status, erased = await one.send("DELETE", f"/v1/callers/{quote(CALLER)}", key=OPS)
        assert (status, erased["erasing"], erased["id"]) == (200, False, CALLER)
        for stream in streams:
            assert parse_events(await stream.text())[-1]["error"]["code"] == "key_revoked"
        for gateway in (one, other):
            await gateway.service.meter.flush()
        assert await find_tables(tmp_path, one, CALLER) <= KEPT
        # What others have stored stays, and the usage as that of nobody.
        assert (await one.send("GET", f"/v1/conversations/{conversation}", key=BOB))[0] == 200
        _, usage = await one.send("GET", "/v1/usage?group_by=caller", key=OPS)
        counts = {each["caller"]: each["requests"] for each in usage["data"]}
        assert counts.keys() == {"erased", f"key:{BOB}"}
        assert counts["erased"] > counts[f"key:{BOB}"]
        for gateway in (one, other):
            status = 503
            while status == 503:
                # The other one learns within a moment that all is done.
                status, runs = await gateway.send("GET", "/v1/runs", key=ALICE)
            assert runs["data"] == []
        for gateway in (one, other):
            assert (await gateway.send("POST", "/v1/responses", ASK, key=ALICE))[0] == 200, "its key works on"
    [entry] = [each for each in read_audit(tmp_path / "one", "operator_request") if each["method"] == "DELETE"]
    assert (entry["subject"], entry["owner"], entry["status"]) == (CALLER, CALLER, 200)


@async_test(60)
async def test_an_export_has_everything_of_a_caller_and_nothing_of_others(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(answer), keys=[ALICE, BOB], admins=[OPS], audit=AUDIT) as gateway:
        conversation = await store_everything(gateway, ALICE)
        await gateway.send("POST", "/v1/responses", ASK | {"input": "of bob"}, key=BOB)
        session = await gateway.http_client(OPS)
        async with session.get(f"/v1/callers/{quote(CALLER)}/export") as reply:
            assert (reply.status, reply.content_type) == (200, "application/x-ndjson")
            lines = [orjson.loads(line) for line in (await reply.read()).splitlines() if line]
        kinds = [line["object"] for line in lines]
        assert kinds[:4] == ["caller", "conversation", "conversation.item", "conversation.item"]
        assert (kinds.count("run"), kinds.count("usage")) == (2, 1)
        assert lines[1]["id"] == conversation
        assert [line["item"]["role"] for line in lines[2:4]] == ["user", "assistant"]
        runs = [line for line in lines if line["object"] == "run"]
        assert all(run["input_items"] and run["response"]["id"] == run["id"] and run["trace"] for run in runs)
        assert CANARY in str(runs)
        assert "of bob" not in str(lines)
        async with session.get("/v1/callers/jwt:nobody/export") as reply:
            assert len((await reply.read()).splitlines()) == 1
    reads = [entry for entry in read_audit(tmp_path, "operator_request") if entry["route"].endswith("/export")]
    assert [(entry["subject"], entry["status"]) for entry in reads] == [(CALLER, 200), ("jwt:nobody", 200)]


@async_test(60)
async def test_an_erasure_that_a_killed_gateway_began_goes_on_at_the_next_one(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(answer), keys=[ALICE], admins=[OPS]) as gateway:
        await store_everything(gateway, ALICE)
        # As if the process ended before it could do more.
        await gateway.service.store.caller_states.start_erasing(CALLER, f"key:{OPS}")
    async with run_gateway(tmp_path, ScriptedModel(answer), keys=[ALICE], admins=[OPS]) as gateway:
        erasing = True
        while erasing:
            _, caller = await gateway.send("GET", f"/v1/callers/{quote(CALLER)}", key=OPS)
            erasing = caller["erasing"]
        assert await find_tables(tmp_path, gateway, CALLER) <= KEPT
        assert (await gateway.send("POST", "/v1/responses", ASK, key=ALICE))[0] == 200


@pytest.mark.parametrize("method", ["DELETE"])
@async_test
async def test_nobody_erases_the_caller_of_the_request(tmp_path: Path, method: str) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS]) as gateway:
        status, said = await gateway.send(method, f"/v1/callers/{OPS}", key=OPS)
        assert (status, said["error"]["code"]) == (409, "key_in_use")
        assert (await gateway.send(method, f"/v1/callers/{BOB}", key=ALICE))[0] == 403
