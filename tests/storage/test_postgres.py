"""A PostgreSQL server that is restarted, killed or wrong: nothing acknowledged is lost, and errors say why."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from async_tests import async_test
from storage.postgres_server import PASSWORD, PostgresServer
from storage.silenceable_network import run_network

from holodeck.lib.errors import ConfigError, StorageError
from holodeck.storage.conversations import Conversation, ConversationItem
from holodeck.storage.factory import open_store
from holodeck.storage.migrations import MIGRATIONS
from holodeck.storage.responses import StoredResponse
from holodeck.storage.runs import RunQuery, StoredRun
from holodeck.storage.store import ResponseStore

RECORD = StoredResponse(id="r", caller_id="alice", created_at=1.0, status="completed")
SECONDS = 90.0  # a server is restarted in one or two


@pytest.fixture
def fragile(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, to be maltreated; afterwards it runs again."""
    yield postgres
    if not postgres.is_running:
        postgres.start()


@asynccontextmanager
async def use_store(url: str) -> AsyncIterator[ResponseStore]:
    store = open_store(url, folder=Path())
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def database(fragile: PostgresServer) -> str:
    return fragile.new_database()


def _with_run(response_id: str) -> StoredResponse:
    run = StoredRun(id=response_id, caller_id="alice", created_at=1.0, status="completed", model="small")
    return replace(RECORD, id=response_id, run=run)


@async_test(60)
async def test_responses_that_are_stored_together_share_a_transaction(fragile: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    async with use_store(database) as store:
        await store.save(_with_run("first"))
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(store.save(_with_run(f"resp_{number}")))
        counted = await asyncio.to_thread(
            fragile.administer, "SELECT count(DISTINCT xmin::text) FROM responses WHERE id LIKE 'resp_%'", name
        )
        assert counted == [(1,)], "transactions"
        page = await store.runs.list_runs(RunQuery(caller_id="alice", limit=50))
        assert len(page.runs) == 21


@async_test(60)
async def test_a_response_that_cannot_be_stored_does_not_fail_those_that_are_stored_with_it(
    fragile: PostgresServer, database: str
) -> None:
    name = database.rpartition("/")[2]
    async with use_store(database) as store:
        await store.save(_with_run("first"))
        await asyncio.to_thread(
            fragile.administer, "ALTER TABLE responses ADD CONSTRAINT refused CHECK (id <> 'resp_bad')", name
        )
        ids = ["resp_1", "resp_bad", "resp_2", "first", "resp_3"]
        outcomes = await asyncio.gather(*(store.save(_with_run(each)) for each in ids), return_exceptions=True)
        assert [isinstance(each, StorageError) for each in outcomes] == [False, True, False, False, False]
        assert [(await store.get(each, "alice")) is not None for each in ids] == [True, False, True, True, True]
        await store.save(_with_run("resp_4"))


@pytest.mark.proves("D-32")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
@async_test(SECONDS)
async def test_a_restarted_server_is_used_again_without_intervention(
    fragile: PostgresServer, database: str, how: signal.Signals
) -> None:
    async with use_store(database) as store:
        await asyncio.gather(*(store.save(replace(RECORD, id=f"before{n}")) for n in range(20)))
        await asyncio.to_thread(fragile.stop, how)
        with pytest.raises(StorageError, match="cannot be reached"):
            await store.check_health()
        saving = [asyncio.create_task(store.save(replace(RECORD, id=f"during{n}"))) for n in range(20)]
        await asyncio.to_thread(fragile.start)
        await asyncio.gather(*saving)
        assert await store.check_health()
        stored = await asyncio.gather(*(store.get(f"{when}{n}", "alice") for n in range(20) for when in WHEN))
        assert None not in stored


WHEN = ("before", "during")


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_everything_acknowledged_survives_a_killed_server_process(fragile: PostgresServer, database: str) -> None:
    acknowledged: list[str] = []
    enough, is_killed = asyncio.Event(), asyncio.Event()
    async with use_store(database) as store:

        async def write(name: int) -> None:
            number = 0
            after = 0
            while after < 5:
                record = replace(RECORD, id=f"{name}.{number}")
                await store.save(record)
                acknowledged.append(record.id)
                number += 1
                after += is_killed.is_set()
                if number == 5:
                    enough.set()

        async def kill() -> None:
            await enough.wait()
            pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'holodeck'"
            found = await asyncio.to_thread(fragile.administer, pids)
            os.kill(int(str(found[0][0])), signal.SIGKILL)
            is_killed.set()

        async with asyncio.TaskGroup() as group:
            for name in range(8):
                group.create_task(write(name))
            group.create_task(kill())
        for response_id in acknowledged:
            assert await store.get(response_id, "alice") is not None


@pytest.mark.proves("D-28", "D-32")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
@async_test(SECONDS)
async def test_a_stream_grows_without_a_gap_over_the_restart_of_its_server(
    fragile: PostgresServer, database: str, how: signal.Signals
) -> None:
    enough, is_back = asyncio.Event(), asyncio.Event()
    async with use_store(database) as store:
        await store.save(replace(RECORD, status="in_progress"))

        async def grow() -> int:
            number = 0
            while not is_back.is_set() or number < 100:
                assert await store.append_events("r", number, [b"%d" % number]), (
                    "its own lost answer is not another writer"
                )
                number += 1
                if number == 50:
                    enough.set()
            return number

        async def restart() -> None:
            await enough.wait()
            await asyncio.to_thread(fragile.stop, how)
            await asyncio.to_thread(fragile.start)
            is_back.set()

        async with asyncio.TaskGroup() as group:
            growing = group.create_task(grow())
            group.create_task(restart())
        assert await store.read_events("r", "alice") == [b"%d" % number for number in range(growing.result())]


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_connection_that_the_server_closed_between_two_statements_is_replaced(
    fragile: PostgresServer, database: str
) -> None:
    async with (
        run_network(fragile.port) as (between, port),
        use_store(database.replace(f":{fragile.port}/", f":{port}/")) as store,
    ):
        await store.save(RECORD)
        between.hide_ends()
        backends = "pg_stat_activity WHERE application_name = 'holodeck'"
        await asyncio.to_thread(fragile.administer, f"SELECT pg_terminate_backend(pid) FROM {backends}")
        for _ in range(2):  # the connection that is present, and the one that works
            await between.hidden_ends.get()
        await asyncio.sleep(0)  # what arrived is read
        assert await store.get("r", "alice") == RECORD


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_two_gateways_create_the_tables_at_once_and_see_what_the_other_stores(database: str) -> None:
    async with use_store(database) as one, use_store(database) as two:
        await asyncio.gather(one.check_health(), two.check_health())
        await one.save(RECORD)
        assert await two.get("r", "alice") == RECORD
        await one.create_conversation(Conversation(id="c", caller_id="alice", created_at=1.0), [])
        adding = [
            store.add_items("c", "alice", [ConversationItem(id=f"{name}{n}", data=b"{}")])
            for n in range(20)
            for name, store in (("a", one), ("b", two))
        ]
        assert all(await asyncio.gather(*adding))
        listed = await two.list_items("c", "alice")
        assert listed is not None
        assert len({item.id for item in listed}) == 40


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_run_is_an_orphan_when_its_gateway_ends_not_when_another_starts(
    fragile: PostgresServer, database: str
) -> None:
    running = replace(RECORD, status="in_progress")
    async with use_store(database) as other:
        async with use_store(database) as store:
            await store.save(running)
            assert await other.read_orphans() == [], "another gateway runs it"
            await asyncio.to_thread(fragile.stop)
            await asyncio.to_thread(fragile.start)
            while await other.read_orphans():  # noqa: ASYNC110 - the gateway is back in its database in a moment
                await asyncio.sleep(0.02)
        assert await other.read_orphans() == [running]


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_gateway_whose_connections_went_silent_is_never_taken_for_dead(
    fragile: PostgresServer, database: str
) -> None:
    async with run_network(fragile.port) as (between, port), use_store(database) as other:
        far = database.replace(f":{fragile.port}/", f":{port}/")
        async with use_store(far) as store:
            await store.save(replace(RECORD, status="in_progress"))
            between.go_silent()
            await between.connection_made.wait()  # it gets no answer, and connects again
            while await count_locks(fragile, database) < 3:  # the other gateway's, the old one and the new one
                assert await other.find_orphans() == {}
                await asyncio.sleep(0.02)
            between.close_silent_links()
            while await count_locks(fragile, database) > 2:  # until the server has noticed
                assert await other.find_orphans() == {}
                await asyncio.sleep(0.02)
            assert await other.find_orphans() == {}
        assert list(await other.find_orphans()) == ["r"]


async def count_locks(server: PostgresServer, database: str) -> int:
    sql = "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    rows = await asyncio.to_thread(server.administer, sql, database.rpartition("/")[2])
    return int(str(rows[0][0]))


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_connections_request_short_tcp_keepalives_from_the_server(fragile: PostgresServer, database: str) -> None:
    async with run_network(fragile.port) as (between, port):
        async with use_store(database.replace(f":{fragile.port}/", f":{port}/")) as store:
            await store.save(RECORD)
        assert len(between.sent_bytes) == 2, "the connection that is present, and the one that works"
        for startup in between.sent_bytes:
            for name, value in (("idle", 2), ("interval", 1), ("count", 3)):
                assert f"tcp_keepalives_{name}\0{value}\0".encode() in startup


@async_test(SECONDS)
async def test_ids_and_texts_of_any_kind_are_found_or_missing_but_never_an_error(database: str) -> None:
    async with use_store(database) as store:
        for odd in ("a\0b", "', DROP TABLE responses; --", "ü" * 300):
            assert await store.get(odd, "alice") is None
            assert await store.list_items("c", "alice", after=odd) is None
            assert await store.list_conversations("alice", after=odd, limit=5, order="asc") is None
            assert not await store.delete(odd, "alice")
        await store.save(replace(RECORD, resource=bytes(range(256))))
        found = await store.get("r", "alice")
        assert found is not None
        assert found.resource == bytes(range(256))


@async_test(SECONDS)
async def test_storage_errors_do_not_show_the_password(fragile: PostgresServer, database: str) -> None:
    wrong = {
        fragile.url("nowhere"): "no database of that name",
        fragile.url("postgres", password="other-sesame"): "refuses the user or the password",
    }
    for url, reason in wrong.items():
        async with use_store(url) as store:
            with pytest.raises(StorageError, match=reason) as caught:
                await store.save(RECORD)
            assert "sesame" not in str(caught.value)
    async with use_store(database) as store:
        conversation = Conversation(id="c", caller_id="alice", created_at=1.0)
        await store.create_conversation(conversation, [])
        with pytest.raises(StorageError, match="there already"):
            await store.create_conversation(conversation, [])
    with pytest.raises(ConfigError) as refused:
        open_store(f"postgresql://holodeck:{PASSWORD}@127.0.0.1:port/x", folder=Path())
    assert PASSWORD not in str(refused.value)


def test_a_database_of_a_newer_version_is_refused_with_the_reason(fragile: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    fragile.administer("CREATE TABLE holodeck_schema (version INTEGER NOT NULL)", name)
    fragile.administer(f"INSERT INTO holodeck_schema VALUES ({len(MIGRATIONS) + 1})", name)

    async def use() -> None:
        async with use_store(database) as store:
            await store.save(RECORD)

    with pytest.raises(StorageError, match="newer HoloDeck"):
        asyncio.run(use())


def test_a_missing_driver_is_reported_with_what_to_install() -> None:
    code = """
import sys
sys.modules["asyncpg"] = None
from pathlib import Path
from holodeck.lib.errors import ConfigError
from holodeck.storage.factory import open_store
try:
    open_store("postgres://localhost/x", folder=Path())
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "[postgres]'" in done.stdout
