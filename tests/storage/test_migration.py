"""A database that an older HoloDeck made is brought up to date, with everything that was in it."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from async_tests import async_test

from holodeck.storage.base import Conversation, ConversationItem, StoredResponse
from holodeck.storage.checked_values import encode_value
from holodeck.storage.factory import open_store
from holodeck.storage.runs import RunQuery

# Literal copies: the statements of the product may change by mistake, these are what existing databases have.
OLD = """
CREATE TABLE responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, status TEXT NOT NULL,
    previous_id TEXT, conversation_id TEXT, resource BLOB NOT NULL, input_items BLOB NOT NULL,
    items BLOB NOT NULL, pending BLOB NOT NULL, events BLOB NOT NULL);
CREATE INDEX responses_by_age ON responses (created_at);
CREATE INDEX responses_unfinished ON responses (status) WHERE status IN ('queued', 'in_progress');
CREATE TABLE conversations (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, metadata BLOB NOT NULL);
CREATE TABLE conversation_items (
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    position BIGINT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (conversation_id, position), UNIQUE (conversation_id, id));
ALTER TABLE responses ADD COLUMN keeper BIGINT;
INSERT INTO responses VALUES
    ('done', 'alice', 1.5, 'completed', 'before', 'c', 'resource', 'input', 'items', 'pending', 'events', 7),
    ('lost', 'alice', 2.5, 'in_progress', NULL, NULL, '{}', '[]', '[]', '[]', '', NULL),
    ('kept', 'alice', 3.5, 'queued', NULL, NULL, '{}', '[]', '[]', '[]', '', 7);
INSERT INTO conversations VALUES ('c', 'alice', 1.0, '{}');
INSERT INTO conversation_items VALUES ('c', 1, 'msg', '[1]');
"""
DONE = StoredResponse(
    id="done",
    owner="alice",
    created_at=1.5,
    status="completed",
    previous_id="before",
    conversation_id="c",
    resource=b"resource",
    input_items=b"input",
    items=b"items",
    pending=b"pending",
    events=b"events",
)
LOST = StoredResponse(id="lost", owner="alice", created_at=2.5, status="in_progress")


BYTES = {
    "responses": ("resource", "input_items", "items", "pending", "events"),
    "conversations": ("metadata",),
    "conversation_items": ("data",),
}


async def create_old_database(folder: Path, url: str) -> None:
    """The old tables, with values in the form of today: migrations are about tables and columns."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(folder / "kept.db")
        connection.executescript(OLD)
        connection.create_function("encoded", 1, lambda value: encode_value(value.encode()))
        for table, columns in BYTES.items():
            for column in columns:
                connection.execute(f"UPDATE {table} SET {column} = encoded({column})")
        connection.execute("PRAGMA user_version = 2")
        connection.commit()
        connection.close()
    else:
        server = await asyncpg.connect(url)
        await server.execute(OLD.replace("BLOB", "BYTEA"))
        for table, columns in BYTES.items():
            for column in columns:
                for (value,) in await server.fetch(f"SELECT DISTINCT {column} FROM {table}"):
                    sql = f"UPDATE {table} SET {column} = $1 WHERE {column} = $2"
                    await server.execute(sql, encode_value(value), value)
        await server.execute("CREATE TABLE holodeck_schema (version INTEGER NOT NULL)")
        await server.execute("INSERT INTO holodeck_schema VALUES (2)")
        await server.close()


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_database_of_an_older_version_is_read_and_extended(tmp_path: Path, url: str) -> None:
    await create_old_database(tmp_path, url)
    stores = [open_store(url, folder=tmp_path) for _ in range(3)]
    try:
        await asyncio.gather(*(store.check_health() for store in stores))  # several bring it up to date at once
        store = stores[0]
        assert await store.get("done", "alice") == DONE
        assert await store.get("lost", "alice") == LOST
        assert await store.get_conversation("c", "alice") == Conversation(id="c", owner="alice", created_at=1.0)
        assert await store.list_items("c", "alice") == [ConversationItem(id="msg", data=b"[1]")]
        assert await store.find_orphans() == {"lost": None, "kept": 7}
        assert await store.read_cancel_requests() == []
        assert await store.append_events("lost", 0, [b"0"])
        assert await store.request_cancel("lost", "alice")
        assert await store.read_cancel_requests() == ["lost"]
        await store.save(replace(LOST, status="cancelled"))
        runs = (await store.runs.list_runs(RunQuery(owner="alice", limit=5))).runs
        assert runs == (), "what was stored before there was an index is not in it"
        assert await stores[1].find_orphans() == {"kept": 7}
    finally:
        for store in stores:
            await store.close()
