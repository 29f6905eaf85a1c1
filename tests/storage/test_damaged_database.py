"""A SQLite file of which the disk has lost or changed a part: that is an error, never an answer."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.lib.errors import StorageError
from holodeck.storage.responses import StoredResponse
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore
from holodeck.testing import ScriptedModel, say

PAGE = 4096
OWNER = "key:alice"
TRIES = 20


def response(number: int) -> StoredResponse:
    made = random.Random(number)
    resource = orjson.dumps({"output": "é" if number % 3 else "x" * made.randrange(6_000)})
    return StoredResponse(
        id=f"resp_{made.getrandbits(96):024x}",
        caller_id=OWNER,
        created_at=float(number),
        status="completed",
        resource=resource,
        items=b"[" + resource + b"]",
    )


RESPONSES = [response(number) for number in range(60)]


@contextmanager
def edit_file(path: Path) -> Iterator[bytearray]:
    """The bytes of a closed database file; changes to them are written back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    yield data
    path.write_bytes(data)


def pages_of(path: Path, name: str) -> list[int]:
    """The numbers of the pages of an index or table, from 0; its root is not among them, if there are others."""
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    data = path.read_bytes()
    at, kind = (root - 1) * PAGE, data[(root - 1) * PAGE]
    if kind in (0x0A, 0x0D):
        return [root - 1]
    count = int.from_bytes(data[at + 3 : at + 5])
    cells = (int.from_bytes(data[at + 12 + 2 * each : at + 14 + 2 * each]) for each in range(count))
    return [int.from_bytes(data[at + cell : at + cell + 4]) - 1 for cell in cells]


@pytest.mark.proves("D-32")
@pytest.mark.parametrize("size", [PAGE, 512, 64])
@pytest.mark.parametrize("is_lost", [True, False], ids=["zeros", "noise"])
@async_test(120)
async def test_what_is_read_from_a_damaged_file_is_right_or_an_error_and_the_store_is_not_healthy(
    tmp_path: Path, size: int, is_lost: bool
) -> None:
    whole, path, made = tmp_path / "whole.db", tmp_path / "kept.db", random.Random(size)
    store = ResponseStore(SQLiteDriver(whole))
    for each in RESPONSES:
        await store.save(each)
    await store.close()
    with edit_file(whole) as data:
        pages = len(data) // PAGE
    failures = 0
    for _ in range(TRIES):
        shutil.copy(whole, path)
        with edit_file(path) as data:
            at = PAGE * made.randrange(1, pages) + size * made.randrange(PAGE // size)
            data[at : at + size] = bytes(size) if is_lost else made.randbytes(size)
        store = ResponseStore(SQLiteDriver(path))
        failed = 0
        for each in RESPONSES:
            try:
                assert await store.get(each.id, OWNER) == each
            except StorageError:
                failed += 1
        if failed:
            with pytest.raises(StorageError, match="damaged"):
                await store.check_health()
            with pytest.raises(StorageError, match="damaged"):
                await store.save(response(-1))
        failures += bool(failed)
        await store.close()
        for journal in path.parent.glob("kept.db-*"):
            journal.unlink()
    assert failures, "some of it hits what is read"


@pytest.mark.proves("D-32")
@pytest.mark.parametrize("index", ["sqlite_autoindex_responses_1", "sqlite_autoindex_conversations_1"])
@async_test(60)
async def test_a_row_that_a_damaged_index_does_not_find_is_not_reported_as_missing(tmp_path: Path, index: str) -> None:
    path, storage = tmp_path / "kept.db", {"url": "sqlite:///kept.db"}
    body = {"model": MODEL, "input": "Hello"}
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), storage=storage) as gateway:
        stored = [(await gateway.send("POST", "/v1/responses", body))[1]["id"] for _ in range(3)]
        conversations = [(await gateway.send("POST", "/v1/conversations", {}))[1]["id"] for _ in range(3)]
    paths = [f"/v1/responses/{each}" for each in stored] + [f"/v1/conversations/{each}" for each in conversations]
    (page,) = pages_of(path, index)
    with edit_file(path) as data:  # no cell is in it any more, which is what an empty table looks like
        data[page * PAGE + 3 : page * PAGE + 5] = bytes(2)
    async with run_gateway(tmp_path, ScriptedModel(), storage=storage) as gateway:
        answers = [await gateway.send("GET", each) for each in paths]
        assert {status for status, _ in answers} == {200, 503}
        assert {answer["error"]["code"] for status, answer in answers if status == 503} == {"storage_error"}
        assert (await gateway.send("GET", "/readyz"))[0] == 503
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 503
        assert not gateway.model_requests
    async with run_gateway(tmp_path, storage={"url": "sqlite:///whole.db"}) as gateway:
        assert (await gateway.send("GET", paths[0]))[0] == 404
        assert (await gateway.send("GET", "/readyz"))[0] == 200
