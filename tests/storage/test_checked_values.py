"""A stored value of which one byte was changed is an error that names its record, never an answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.lib.errors import StorageError
from holodeck.storage.conversations import Conversation, ConversationItem
from holodeck.storage.factory import open_store
from holodeck.storage.jobs import INLINE_BYTES, decode_value, encode_value
from holodeck.storage.responses import StoredResponse
from holodeck.storage.store import ResponseStore
from holodeck.testing import ScriptedModel, say

OWNER = "alice"
COLUMNS = ("resource", "input_items", "items", "pending", "events", "trace")
Read = Callable[[ResponseStore], Awaitable[object]]


def change_byte(value: bytes, at: int = -2) -> bytes:
    changed = bytearray(value)
    changed[at] ^= 1
    return bytes(changed)


async def damage(folder: Path, url: str, table: str, column: str, where: str) -> None:
    """Change one byte of a stored value."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(folder / "kept.db", isolation_level=None)) as connection:
            connection.create_function("changed", 1, change_byte)
            assert connection.execute(f"UPDATE {table} SET {column} = changed({column}) WHERE {where}").rowcount == 1
        return
    server = await asyncpg.connect(url)
    try:
        value = await server.fetchval(f"SELECT {column} FROM {table} WHERE {where}")
        await server.execute(f"UPDATE {table} SET {column} = $1 WHERE {where}", change_byte(value))
    finally:
        await server.close()


def response(name: str, status: str = "completed") -> StoredResponse:
    data = b'{"id":"item_%b","text":"Hello"}' % name.encode()
    values = dict.fromkeys(COLUMNS, data)
    return StoredResponse(id=name, caller_id=OWNER, created_at=1.0, status=status, **values)  # type: ignore[arg-type]


async def fill(store: ResponseStore) -> None:
    for column in COLUMNS:
        await store.save(response(f"resp_{column}"))
    await store.save(response("resp_running", "in_progress"))
    await store.append_events("resp_running", 0, [b'{"type":"one"}', b'{"type":"two"}'])
    for name in ("metadata", "pending_calls", "data"):
        conversation = Conversation(id=f"conv_{name}", caller_id=OWNER, created_at=1.0, metadata=b'{"a":"b"}')
        await store.create_conversation(conversation, [ConversationItem(id=f"msg_{name}", data=b'{"text":"Hello"}')])
    await store.add_items("conv_pending_calls", OWNER, [], response_id="resp_x", pending_calls=b'["call"]')


def read_response(column: str) -> Read:
    return lambda store: store.get(f"resp_{column}", OWNER)


def list_conversations(store: ResponseStore) -> Awaitable[object]:
    return store.list_conversations(OWNER, after=None, limit=9, order="asc")


# By table and column: the record, the condition that selects it, and the methods that read the value.
DAMAGED: dict[tuple[str, str], tuple[str, str, list[Read]]] = {
    **{("responses", each): (f"resp_{each}", f"id = 'resp_{each}'", [read_response(each)]) for each in COLUMNS},
    ("response_events", "events"): (
        "resp_running",
        "response_id = 'resp_running'",
        [lambda store: store.read_events("resp_running", OWNER)],
    ),
    ("conversations", "pending_calls"): (
        "conv_pending_calls",
        "id = 'conv_pending_calls'",
        [lambda store: store.read_conversation("conv_pending_calls", OWNER, limit=9)],
    ),
    ("conversations", "metadata"): (
        "conv_metadata",
        "id = 'conv_metadata'",
        [lambda store: store.get_conversation("conv_metadata", OWNER), list_conversations],
    ),
    ("conversation_items", "data"): (
        "msg_data",
        "id = 'msg_data'",
        [
            lambda store: store.get_item("conv_data", OWNER, "msg_data"),
            lambda store: store.find_item("msg_data", OWNER),
            lambda store: store.list_items("conv_data", OWNER),
            lambda store: store.read_conversation("conv_data", OWNER, limit=9),
        ],
    ),
}
DAMAGED["responses", "items"][-1].append(lambda store: store.read_context("resp_items", OWNER))
DAMAGED["responses", "resource"][-1].append(lambda store: store.find_responses_containing(["item_none"], OWNER))


@async_test(60)
async def test_a_changed_byte_of_any_stored_value_is_an_error_that_names_the_record(tmp_path: Path, url: str) -> None:
    store = open_store(url, folder=tmp_path)
    try:
        await fill(store)
        for (table, column), (record, where, reads) in DAMAGED.items():
            for read in reads:
                await read(store)
            await damage(tmp_path, url, table, column, where)
            for read in reads:
                with pytest.raises(StorageError, match=f"'{record}' is damaged"):
                    await read(store)
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("data", "base"),
    [(b"", b""), (b"{}", b""), (b"x" * 1000, b""), (b"x" * INLINE_BYTES, b""), (b"ab" * 400, b"abab" * 10)],
    ids=["empty", "short", "long", "shrunk", "based"],
)
def test_a_value_comes_back_as_it_was_and_every_changed_byte_is_noticed(data: bytes, base: bytes) -> None:
    stored = encode_value(data, may_compress=not base, base=base)
    assert decode_value(stored, "resp_1", base=base) == data
    for at in {*range(min(len(stored), 400)), len(stored) - 1}:
        with pytest.raises(StorageError, match="resp_1"):
            decode_value(change_byte(stored, at), "resp_1", base=base)
    for cut in (stored[:-1], stored + b"x", stored[:3], b"", None, "text"):
        with pytest.raises(StorageError, match="resp_1"):
            decode_value(cut, "resp_1", base=base)
    if base:
        with pytest.raises(StorageError, match="resp_1"):
            decode_value(stored, "resp_1", base=b"another")


@pytest.mark.parametrize("words", [40, 1000])
@async_test(30)
async def test_the_texts_of_a_response_are_stored_once(tmp_path: Path, words: int) -> None:
    question, answer = (" ".join(f"{name}{number}" for number in range(words)).encode() for name in ("why", "because"))
    stored = StoredResponse(
        id="resp_1",
        caller_id=OWNER,
        created_at=1.0,
        status="completed",
        resource=b'{"output":[{"text":"' + answer + b'"}]}',
        input_items=b'[{"text":"' + question + b'"}]',
        items=b'[{"content":"' + question + b'"},{"content":"' + answer + b'"}]',
    )
    store = open_store("sqlite:///kept.db", folder=tmp_path)
    try:
        await store.save(stored)
        assert await store.get("resp_1", OWNER) == stored
    finally:
        await store.close()
    with closing(sqlite3.connect(tmp_path / "kept.db")) as connection:
        query = "SELECT length(resource), length(input_items) FROM responses"
        assert max(connection.execute(query).fetchone()) < 300 + len(answer) // 10


@async_test(60)
async def test_a_changed_letter_of_an_answer_is_a_503_and_the_gateway_is_unready(tmp_path: Path) -> None:
    storage = {"url": "sqlite:///kept.db"}
    async with run_gateway(tmp_path, ScriptedModel(say("Hello.")), storage=storage) as gateway:
        _, made = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"})
        await damage(tmp_path, storage["url"], "responses", "resource", "status = 'completed'")
        status, answer = await gateway.send("GET", f"/v1/responses/{made['id']}")
        assert (status, answer["error"]["code"]) == (503, "storage_error")
        assert await gateway.send("GET", "/readyz") == (
            503,
            {"status": "no storage", "reason": "the file of the database is damaged"},
        )
