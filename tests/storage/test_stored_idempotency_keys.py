"""An idempotency key has one response, until it is released, its response is deleted, or a day is over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import asyncpg
from async_tests import async_test

from holodeck.storage.factory import open_store
from holodeck.storage.idempotency_keys import KEY_SECONDS, IdempotencyKey
from holodeck.storage.responses import StoredResponse

ONE = IdempotencyKey(caller_id="alice", value="key", digest=b"one", response_id="resp_1")
TWO = replace(ONE, digest=b"two", response_id="resp_2")


async def age_keys(folder: Path, url: str) -> None:
    """Let all keys be as old as they may get."""
    sql = f"UPDATE idempotency_keys SET created_at = created_at - {KEY_SECONDS}"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(folder / "kept.db", isolation_level=None)) as connection:
            connection.execute(sql)
        return
    server = await asyncpg.connect(url)
    try:
        await server.execute(sql)
    finally:
        await server.close()


@async_test(60)
async def test_a_key_belongs_to_its_first_response_until_it_is_free_again(tmp_path: Path, url: str) -> None:
    stores = [open_store(url, folder=tmp_path) for _ in range(2)]
    try:
        here, there = (store.idempotency_keys for store in stores)
        for response_id in ("resp_1", "resp_2"):
            record = StoredResponse(id=response_id, caller_id="alice", created_at=1.0, status="completed")
            await stores[0].save(record)
        assert await here.find_key("alice", "key") is None
        assert await here.claim_key(ONE) == ONE
        assert await here.claim_key(ONE) == ONE, "its acknowledgement may have been lost"
        assert await there.claim_key(TWO) == ONE
        assert await there.claim_key(replace(TWO, caller_id="bob")) == replace(TWO, caller_id="bob")
        await there.release_key("alice", "key", "resp_2")
        assert await there.find_key("alice", "key") == ONE, "only its own response releases it"
        await here.release_key("alice", "key", "resp_1")
        assert await there.claim_key(TWO) == TWO
        await stores[0].delete("resp_2", "alice")
        assert await here.find_key("alice", "key") is None
        assert await here.claim_key(ONE) == ONE
        await stores[0].save(StoredResponse(id="resp_2", caller_id="alice", created_at=1.0, status="completed"))
        await age_keys(tmp_path, url)
        assert await here.find_key("alice", "key") is None
        assert await there.claim_key(TWO) == TWO
        await age_keys(tmp_path, url)
        await stores[0].delete_older_than(0.0)
        assert await here.claim_key(ONE) == ONE
    finally:
        for store in stores:
            await store.close()
