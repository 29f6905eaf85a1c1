"""A database of an earlier version is brought up to date, with everything that was in it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import pytest
from async_tests import async_test

from holodeck.storage import migrations
from holodeck.storage.caller_keys import StoredKey
from holodeck.storage.conversations import Conversation, ConversationItem
from holodeck.storage.factory import open_store
from holodeck.storage.idempotency_keys import IdempotencyKey
from holodeck.storage.pending_calls import PendingCall
from holodeck.storage.responses import StoredResponse
from holodeck.storage.runs import RunQuery, StoredRun
from holodeck.storage.store import ResponseStore
from holodeck.storage.usage import MINUTE, UsageQuery

DATABASES = Path(__file__).with_name("databases")
VERSIONS = sorted({file.name.partition(".")[0] for file in DATABASES.iterdir()})
DONE = StoredResponse(
    id="resp_done",
    caller_id="alice",
    created_at=1.5,
    status="completed",
    previous_id="resp_before",
    conversation_id="conv_1",
    resource=b'{"id":"resp_done"}',
    input_items=b'["input"]',
    items=b'["items"]',
    pending=b'["pending"]',
    events=b'{"type":"one"}\n{"type":"two"}',
    trace=b'["trace"]',
)
RUN = StoredRun(
    id="resp_done",
    caller_id="alice",
    created_at=1.5,
    status="completed",
    model="small",
    servers=("tickets",),
    tools=("search", "add"),
    question="How many?",
    answer="Three.",
    details=b'{"turns":2}',
)
# Long enough for values that are stored compressed, and by what they repeat of another value.
LONG = StoredResponse(
    id="resp_long",
    caller_id="alice",
    created_at=3.5,
    status="completed",
    resource=b'{"id":"resp_long","output":["' + b"A long answer. " * 20 + b'"]}',
    input_items=b'["' + b"A long question. " * 20 + b'"]',
    items=b'["' + b"A long question. " * 20 + b'","' + b"A long answer. " * 20 + b'"]',
    pending=b"[]",
    events=b'{"type":"delta","text":"word"}\n' * 99 + b'{"type":"end"}',
)
KEYS = [
    StoredKey(
        name="laptop",
        change=3,
        entry=b'{"caller":"alice","scope":["tickets"]}',
        made_at=3.5,
        made_by="operator",
    ),
    StoredKey(name="stolen", change=4, entry=None, made_at=3.5, made_by="operator"),
]
LATER = 4e9
DEAD_GATEWAY = 7


async def execute(folder: Path, url: str, script: str) -> None:
    """Execute statements directly in a database."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(folder / "kept.db")) as connection:
            connection.executescript(script)
        return
    server = await asyncpg.connect(url)
    try:
        await server.execute(script)
    finally:
        await server.close()


def read_columns(folder: Path) -> set[tuple[str, str, str]]:
    """Return table, name and type of each column."""
    columns = "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c"
    with closing(sqlite3.connect(folder / "kept.db")) as connection:
        return set(connection.execute(columns))


@asynccontextmanager
async def open_stores(folder: Path, url: str, version: str) -> AsyncIterator[list[ResponseStore]]:
    """Several gateways, which open a database of this version at once."""
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    await execute(folder, url, (DATABASES / f"{version}.{kind}.sql").read_text())
    stores = [open_store(url, folder=folder) for _ in range(3)]
    try:
        await asyncio.gather(*(store.check_health() for store in stores))
        yield stores
    finally:
        for store in stores:
            await store.close()


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("version", VERSIONS)
@async_test(30)
async def test_a_database_of_any_version_is_read_and_extended(tmp_path: Path, url: str, version: str) -> None:
    async with open_stores(tmp_path, url, version) as (store, other, _):
        assert await store.get("resp_done", "alice") == DONE
        assert await store.runs.get_run("resp_done", "alice") == RUN
        assert (await store.runs.list_runs(RunQuery(caller_id="alice", limit=5))).runs == (RUN,)
        conversation = Conversation(id="conv_1", caller_id="alice", created_at=1.0, metadata=b'{"a":"b"}')
        items = (ConversationItem(id="msg_1", data=b'["one"]'), ConversationItem(id="msg_2", data=b'["two"]'))
        assert await store.get_conversation("conv_1", "alice") == conversation
        contents = await store.read_conversation("conv_1", "alice", limit=5)
        assert contents is not None
        assert (contents.items, contents.pending_calls, contents.leased_by) == (items, b'["call"]', "resp_lost")
        assert not contents.is_leaseholder_alive
        assert await store.find_orphans() == {"resp_lost": DEAD_GATEWAY}
        assert await store.read_events("resp_lost", "alice") == [b'{"n":0}', b'{"n":1}']
        assert await store.read_pending_calls("alice", ["call_1", "call_2"]) == {
            "call_1": PendingCall(digest=b"digest", claimed_by="resp_lost"),
            "call_2": PendingCall(digest=b"other"),
        }
        assert await store.find_paused_responses("alice", "call_1") == ["resp_done"]
        key = IdempotencyKey(caller_id="alice", value="key", digest=b"digest", response_id="resp_done")
        assert await store.idempotency_keys.find_key("alice", "key") == key
        assert await store.elicitations.list_elicitations("resp_lost", "alice") == [], "its gateway is gone"
        [(start, _, counts)] = await store.usage.read(UsageQuery(period=MINUTE, start=0, end=600, caller_id="alice"))
        assert (start, counts.get("requests"), counts.get("tool_calls"), counts.cost) == (60, 1, 2, 0.25)
        assert await store.usage.read_spending("alice", 0, source="two", before=0) == 0.25
        assert await store.read_audit_end("audit.jsonl") == (3, "abc")
        assert await store.append_events("resp_lost", 2, [b'{"n":2}'])
        assert await store.read_cancel_requests() == ["resp_lost"]
        assert await other.find_orphans() == {}


@pytest.mark.parametrize("version", VERSIONS[1:])
@async_test(30)
async def test_keys_and_long_values_of_any_version_that_has_them_are_read(
    tmp_path: Path, url: str, version: str
) -> None:
    async with open_stores(tmp_path, url, version) as (store, *_):
        assert await store.get("resp_long", "alice") == LONG
        assert await store.caller_keys.read_changed(0) == KEYS
        assert await store.caller_keys.read_uses(["alice", "bob"]) == {"alice": LATER}
        [(_, _, counts)] = await store.usage.read(UsageQuery(period=MINUTE, start=0, end=600, caller_id="alice"))
        assert counts.get("estimated_tokens") == 3


def test_every_version_of_the_schema_that_another_one_follows_has_a_database_of_each_kind() -> None:
    versions = range(1, len(migrations.MIGRATIONS))
    names = {f"version-{version}.{kind}.sql" for version in versions for kind in ("sqlite", "postgres")}
    assert names <= {file.name for file in DATABASES.iterdir()}


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("version", VERSIONS)
@async_test(30)
async def test_a_database_of_any_version_gets_the_tables_of_a_new_one(tmp_path: Path, version: str) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    await execute(folders[0], "sqlite:///kept.db", (DATABASES / f"{version}.sqlite.sql").read_text())
    for folder in folders:
        store = open_store("sqlite:///kept.db", folder=folder)
        try:
            await store.check_health()
        finally:
            await store.close()
    old, new = map(read_columns, folders)
    assert old == new


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_migration_is_applied_once_by_gateways_that_start_together(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("ALTER TABLE responses ADD COLUMN extra TEXT", "UPDATE responses SET extra = 'added'")
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, more))
    async with open_stores(tmp_path, url, VERSIONS[-1]) as (store, *_):
        assert await store.get("resp_done", "alice") == DONE
    await execute(tmp_path, url, "UPDATE responses SET extra = 'read'")
    newest = open_store(url, folder=tmp_path)
    try:
        assert await newest.check_health(), "what is up to date is left alone"
    finally:
        await newest.close()
