"""Stored responses survive restarts, are visible to their caller_id only, and are returned unchanged."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from async_tests import async_test

from holodeck.lib.errors import StorageError
from holodeck.storage.conversations import Conversation, ConversationItem, Order
from holodeck.storage.factory import open_store
from holodeck.storage.migrations import MIGRATIONS
from holodeck.storage.responses import MAX_SEARCHED_BYTES, StoredResponse
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore

RECORD = StoredResponse(
    id="resp_1",
    caller_id="alice",
    created_at=1000.5,
    status="completed",
    resource=b'{"id":"resp_1"}',
    input_items=b"[1]",
    items=b'["one"]',
    pending=b'["call"]',
    events=b"{}\n{}",
)


@asynccontextmanager
async def use_store(folder: Path, url: str = "sqlite:///kept.db") -> AsyncIterator[ResponseStore]:
    store = open_store(url, folder=folder)
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_response_comes_back_as_it_was_also_after_a_restart(tmp_path: Path, url: str) -> None:
    async with use_store(tmp_path, url) as store:
        await store.save(RECORD)
        assert await store.get("resp_1", "alice") == RECORD
        newer = replace(RECORD, status="failed", resource=b"{}")
        await store.save(newer)
    async with use_store(tmp_path, url) as store:
        assert await store.get("resp_1", "alice") == newer


@pytest.mark.proves("D-28")
@async_test(30)
async def test_a_response_that_the_database_cannot_store_fails_alone(tmp_path: Path) -> None:
    async with use_store(tmp_path) as store:
        await store.save(RECORD)
        for _ in range(2):
            with pytest.raises(OverflowError):
                await store.read_events("resp_1", "alice", 2**63)
            with pytest.raises(UnicodeEncodeError):
                await store.add_items("c", "\ud800", [])
        assert await store.get("resp_1", "alice") == RECORD
        assert await store.delete("resp_1", "alice")


@pytest.mark.proves("D-29")
@async_test(30)
async def test_a_response_is_found_by_its_content_and_only_by_its_owner(tmp_path: Path, url: str) -> None:
    async with use_store(tmp_path, url) as store:
        await store.save(replace(RECORD, id="resp_2", resource=b'{"id":"msg_7"}', created_at=2000.0))
        await store.save(
            replace(RECORD, id="resp_3", input_items=b'[{"id":"msg_8"},{"id":"\\"odd"}]', created_at=1500.0)
        )
        newest, older = (b'{"id":"msg_7"}', RECORD.input_items), (RECORD.resource, b'[{"id":"msg_8"},{"id":"\\"odd"}]')
        seven, eight, nine = "msg_7", "msg_8", "msg_9"
        for ids, expected in (([seven], [newest]), ([eight], [older]), ([nine], []), ([nine, '"odd'], [older])):
            assert await store.find_responses_containing(ids, "alice") == expected
            assert await store.find_responses_containing(ids, "bob") == []
        assert await store.find_responses_containing([seven, eight], "alice") == [newest, older]
        large = b"[" + b" " * MAX_SEARCHED_BYTES + b"]"
        await store.save(replace(RECORD, id="resp_4", input_items=large, created_at=1700.0))
        assert await store.find_responses_containing([seven, eight], "alice") == [newest], (
            "what is too much is not searched"
        )


@pytest.mark.proves("D-29")
@async_test(30)
async def test_another_owner_sees_nothing_and_changes_nothing(tmp_path: Path, url: str) -> None:
    conversation = Conversation(id="conv_1", caller_id="alice", created_at=1.0)
    item = ConversationItem(id="msg_1", data=b"{}")
    async with use_store(tmp_path, url) as store:
        await store.save(RECORD)
        await store.create_conversation(conversation, [item])
        assert await store.get("resp_1", "bob") is None
        assert await store.read_context("resp_1", "bob") is None
        assert not await store.delete("resp_1", "bob")
        assert await store.get_conversation("conv_1", "bob") is None
        assert await store.list_conversations("bob", after=None, limit=5, order="asc") == []
        assert await store.list_conversations("bob", after="conv_1", limit=5, order="asc") is None
        assert await store.list_items("conv_1", "bob") is None
        assert await store.get_item("conv_1", "bob", "msg_1") is None
        assert await store.find_item("msg_1", "bob") is None
        assert await store.find_item("msg_1", "alice") == item
        assert await store.find_item("msg_2", "alice") is None
        assert not await store.add_items("conv_1", "bob", [ConversationItem(id="x", data=b"")])
        assert not await store.update_conversation("conv_1", "bob", b"{}")
        assert not await store.delete_item("conv_1", "bob", "msg_1")
        assert not await store.delete_conversation("conv_1", "bob")
        await store.save(replace(RECORD, id="resp_2", caller_id="bob", previous_id="resp_1", items=b'["two"]'))
        assert await store.read_context("resp_2", "bob") == [b'["two"]'], "a chain does not lead to another's response"
        assert await store.list_items("conv_1", "alice") == [item]


@async_test(30)
async def test_a_context_is_the_whole_chain_oldest_first(tmp_path: Path, url: str) -> None:
    async with use_store(tmp_path, url) as store:
        previous = None
        for number in range(5):
            record = replace(RECORD, id=f"resp_{number}", previous_id=previous, items=f"[{number}]".encode())
            await store.save(record)
            previous = record.id
        assert await store.read_context("resp_4", "alice") == [b"[0]", b"[1]", b"[2]", b"[3]", b"[4]"]
        await store.delete("resp_2", "alice")
        assert await store.read_context("resp_4", "alice") == [b"[3]", b"[4]"]
        assert await store.read_context("gone", "alice") is None
        await store.save(replace(RECORD, id="a", previous_id="b"))
        await store.save(replace(RECORD, id="b", previous_id="a"))
        assert await store.read_context("a", "alice") is not None, "a loop ends"


@async_test(30)
async def test_conversation_items_keep_their_order_and_are_paged(tmp_path: Path, url: str) -> None:
    async with use_store(tmp_path, url) as store:
        await store.create_conversation(Conversation(id="c", caller_id="alice", created_at=1.0), [])
        batches = [[ConversationItem(id=f"i{b}_{n}", data=b"{}") for n in range(3)] for b in range(20)]
        await asyncio.gather(*(store.add_items("c", "alice", batch) for batch in batches))
        listed = await store.list_items("c", "alice", limit=100)
        assert listed is not None
        ids = [item.id for item in listed]
        assert len(ids) == 60
        for batch in batches:
            start = ids.index(batch[0].id)
            assert ids[start : start + 3] == [item.id for item in batch], "one batch stays together"
        page = await store.list_items("c", "alice", after=ids[9], limit=5)
        assert page is not None
        assert [item.id for item in page] == ids[10:15]
        last = await store.list_items("c", "alice", limit=2, order="desc")
        assert last is not None
        assert [item.id for item in last] == ids[:-3:-1]
        assert await store.delete_item("c", "alice", ids[0])
        assert await store.get_item("c", "alice", ids[0]) is None
        again = [ConversationItem(id=ids[1], data=b"[]"), ConversationItem(id="new", data=b"[]")]
        assert await store.add_items("c", "alice", again)
        assert await store.get_item("c", "alice", ids[1]) == ConversationItem(id=ids[1], data=b"{}"), (
            "the first one stays"
        )
        assert await store.get_item("c", "alice", "new") == again[1]


@async_test(30)
async def test_conversations_of_one_moment_are_listed_once_each_in_both_orders(tmp_path: Path, url: str) -> None:
    moments = {"c1": 1.0, "c5": 2.0, "c3": 2.0, "c4": 2.0, "c2": 2.0000001}
    made = {name: Conversation(id=name, caller_id="alice", created_at=at) for name, at in moments.items()}
    async with use_store(tmp_path, url) as store:
        for conversation in made.values():
            await store.create_conversation(conversation, [])
        oldest_first = [made[name] for name in ("c1", "c3", "c4", "c5", "c2")]
        orders: dict[Order, list[Conversation]] = {"asc": oldest_first, "desc": oldest_first[::-1]}
        for order, expected in orders.items():
            assert await store.list_conversations("alice", after=None, limit=2, order=order) == expected[:2]
            assert await store.list_conversations("alice", after=None, limit=9, order=order) == expected
            for number, last in enumerate(expected, start=1):
                page = await store.list_conversations("alice", after=last.id, limit=9, order=order)
                assert page == expected[number:]
            assert await store.list_conversations("alice", after="gone", limit=9, order=order) is None


@async_test(30)
async def test_old_responses_are_deleted_and_unfinished_ones_are_found(tmp_path: Path, url: str) -> None:
    async with use_store(tmp_path, url) as store:
        for number in range(10):
            status = "in_progress" if number == 9 else "completed"
            await store.save(replace(RECORD, id=f"r{number}", created_at=float(number), status=status))
        await store.create_conversation(Conversation(id="old", caller_id="a", created_at=0.0), [])
    async with use_store(tmp_path, url) as store:
        assert [record.id for record in await store.read_orphans()] == ["r9"]
        assert await store.delete_older_than(5.0) == 6
        assert await store.get("r4", "alice") is None
        assert await store.get("r5", "alice") is not None


@async_test(30)
async def test_of_many_saves_at_once_a_bad_one_fails_alone(tmp_path: Path, url: str) -> None:
    async with use_store(tmp_path, url) as store:
        await store.create_conversation(Conversation(id="c", caller_id="a", created_at=1.0), [])
        saves = [store.save(replace(RECORD, id=f"r{n}")) for n in range(200)]
        bad = store.create_conversation(Conversation(id="c", caller_id="a", created_at=1.0), [])
        outcomes = await asyncio.gather(*saves, bad, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [StorageError]
        assert await store.get("r199", "alice") is not None


@async_test
async def test_a_database_of_a_newer_version_is_refused_with_the_reason(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "kept.db")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    async with use_store(tmp_path) as store:
        with pytest.raises(StorageError, match="newer HoloDeck"):
            await store.save(RECORD)


@pytest.mark.parametrize(("content", "reason"), [(b"not a database at all" * 100, "not a database")])
@async_test
async def test_a_file_that_cannot_be_used_is_explained(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "kept.db").write_bytes(content)
    async with use_store(tmp_path) as store:
        with pytest.raises(StorageError, match=reason):
            await store.save(RECORD)


@async_test
async def test_an_unwritable_folder_is_reported_with_the_setting_that_names_it() -> None:
    store = ResponseStore(SQLiteDriver(Path("/sys/holodeck.db")))  # not even root may make files there
    try:
        with pytest.raises(StorageError, match=r"(may not write there|is read-only)\. Check .* 'storage\.url'"):
            await store.save(RECORD)
    finally:
        await store.close()


WRITER = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore
from holodeck.storage.responses import StoredResponse

async def main() -> None:
    store = ResponseStore(SQLiteDriver(Path({path!r})))
    number = {start}
    while True:
        await store.save(StoredResponse(id=f"r{{number}}", caller_id="a", created_at=1.0, status="completed"))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


@pytest.mark.proves("D-28")
def test_everything_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    acknowledged: list[int] = []
    for round_number in range(5):
        start = round_number * 100_000
        code = WRITER.format(tests=str(Path(__file__).parents[1]), path=str(path), start=start)
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(20):
            acknowledged.append(int(process.stdout.readline()))
        os.kill(process.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().splitlines() if line]
        process.stdout.close()
        process.wait()
    asyncio.run(_all_there(path, acknowledged))


async def _all_there(path: Path, numbers: list[int]) -> None:
    store = ResponseStore(SQLiteDriver(path))
    try:
        for number in numbers:
            assert await store.get(f"r{number}", "a") is not None
    finally:
        await store.close()


@async_test(30)
async def test_two_stores_may_write_to_one_file(tmp_path: Path) -> None:
    one, two = ResponseStore(SQLiteDriver(tmp_path / "kept.db")), ResponseStore(SQLiteDriver(tmp_path / "kept.db"))
    try:
        writers = [
            store.save(replace(RECORD, id=f"{name}{n}")) for n in range(50) for name, store in (("a", one), ("b", two))
        ]
        await asyncio.gather(*writers)
        assert await one.get("b49", "alice") is not None
        assert await two.get("a49", "alice") is not None
    finally:
        await one.close()
        await two.close()


def test_a_full_disk_is_an_error_and_nothing_is_half_written(tmp_path: Path) -> None:
    code = f"""
import asyncio, resource, signal
from pathlib import Path
from holodeck.lib.errors import StorageError
from holodeck.storage.sqlite.driver import SQLiteDriver
from holodeck.storage.store import ResponseStore
from holodeck.storage.responses import StoredResponse

async def main() -> None:
    store = ResponseStore(SQLiteDriver(Path({str(tmp_path / "kept.db")!r})))
    await store.save(StoredResponse(id="small", caller_id="a", created_at=1.0, status="completed"))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    try:
        await store.save(StoredResponse(id="big", caller_id="a", created_at=1.0, status="done", items=b"x" * 1_000_000))
    except StorageError as error:
        print(error)
    assert await store.get("small", "a") is not None
    assert await store.get("big", "a") is None
    await store.close()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "The database cannot be used" in done.stdout


@async_test(30)
async def test_the_end_of_an_audit_log_is_that_of_its_file_also_after_a_restart(tmp_path: Path, url: str) -> None:
    async with use_store(tmp_path, url) as store:
        assert await store.read_audit_end("/a/audit.jsonl") is None
        await store.store_audit_end("/a/audit.jsonl", 7, "aa")
        await store.store_audit_end("/b/audit.jsonl", 3, "bb")
        await store.store_audit_end("/a/audit.jsonl", 8, "cc")
    async with use_store(tmp_path, url) as store:
        assert await store.read_audit_end("/a/audit.jsonl") == (8, "cc")
        assert await store.read_audit_end("/b/audit.jsonl") == (3, "bb")
