"""Store of responses and conversations in PostgreSQL, shared by several gateways.

`PostgresStore` takes connections from the pool, and has the statements about responses; those about conversations are
in `conversation_rows`.

The server may be restarted at any time without the loss of an acknowledged write: `PostgresPool` repeats a job whose
connection was lost, where the job is idempotent. Deletions and insertions that are not idempotent are not repeated;
they raise `StorageError`.

Concurrent writers on several gateways are serialized by row locks (`FOR UPDATE`), by the primary keys, and by one
advisory lock per caller for its quota. Whether an acknowledged write survives a loss of power is a setting of the
server, `synchronous_commit`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from holodeck.lib.errors import StorageError
from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES, POSTGRES_TIMEOUT
from holodeck.lib.off_loop import run_off_loop
from holodeck.storage import items_by_id
from holodeck.storage.base import (
    Conversation,
    ConversationContents,
    ConversationItem,
    Order,
    PendingCall,
    StoredResponse,
)
from holodeck.storage.checked_values import COMPRESSED_FROM, decode_value, encode_optional, encode_value
from holodeck.storage.postgres import conversation_rows
from holodeck.storage.postgres.elicitations import PostgresElicitations
from holodeck.storage.postgres.idempotency_keys import PostgresIdempotencyKeys
from holodeck.storage.postgres.liveness import IS_ALIVE
from holodeck.storage.postgres.pool import Connection, PostgresPool, without_nul
from holodeck.storage.postgres.run_index import PostgresRunIndex, store_run
from holodeck.storage.postgres.usage import PostgresUsage
from holodeck.storage.sql import audit_ends, conversations, in_progress, pending_calls, retention
from holodeck.storage.sql import elicitations as elicitation_sql
from holodeck.storage.sql import idempotency_keys as key_sql
from holodeck.storage.sql import runs as run_sql
from holodeck.storage.sql.in_progress import IS_UNFINISHED
from holodeck.storage.sql.response_values import COLUMN_NAMES, COLUMNS, response_of, size_of, values_of
from holodeck.storage.write_health import STORE_PROBE, WriteHealth, make_probe_data

# Responses that a search for items fetches at once: a compromise between round trips and bytes read in vain.
SEARCH_BATCH = 16

_PLACEHOLDERS = ", ".join(f"${number}" for number in range(1, len(COLUMN_NAMES) + 2))
_UPDATED_COLUMNS = ", ".join(f"{name} = EXCLUDED.{name}" for name in (*COLUMN_NAMES[1:], "keeper"))
_INSERT_ON_CONFLICT = f"INSERT INTO responses ({COLUMNS}, keeper) VALUES ({_PLACEHOLDERS}) ON CONFLICT (id) DO"  # noqa: S608
_INSERT_QUEUED = f"""
INSERT INTO responses ({COLUMNS}, keeper, turn) VALUES ({_PLACEHOLDERS}, ${len(COLUMN_NAMES) + 2})
ON CONFLICT (id) DO NOTHING"""  # noqa: S608
_INSERT_BOTH = f"""
WITH added AS ({_INSERT_ON_CONFLICT} NOTHING RETURNING id)
{run_sql.insert_after("added", first=len(COLUMN_NAMES) + 2)}"""
# "holq" in ASCII. The class of these locks, apart from every other advisory lock in the database.
QUOTA_LOCKS = 0x686F6C71
_LOCK_QUOTA = f"SELECT pg_advisory_xact_lock({QUOTA_LOCKS}, hashtext($1))"
"""Serializes the insertions of one caller on all gateways: concurrent ones would all see the same count."""
_SELECT_RESPONSE = f"SELECT {COLUMNS} FROM responses WHERE id = $1 AND owner = $2"  # noqa: S608 - no values
_IS_ORPHAN = f"{IS_UNFINISHED} AND NOT {IS_ALIVE}"
_SELECT_TEXTS = "SELECT id, resource, input_items FROM responses WHERE id = ANY($1)"
_READ_CONVERSATION = conversations.conversation_query(IS_ALIVE)


class PostgresStore:
    """`ResponseStore` in PostgreSQL. It connects with the first call."""

    def __init__(self, url: str) -> None:
        self._pool = PostgresPool(url)
        self._write_health = WriteHealth(self._probe)
        self._pool.on_failure = self._write_health.report_failure
        self.runs = PostgresRunIndex(self._pool)
        self.usage = PostgresUsage(self._pool)
        self.idempotency_keys = PostgresIdempotencyKeys(self._pool)
        self.elicitations = PostgresElicitations(self._pool)
        # One lock per caller; an entry ends with the last request that refers to its lock.
        self._quota_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def gateway_id(self) -> int:
        return self._pool.liveness.number

    @property
    def unavailable_reason(self) -> str:
        # The state of a server is not known without I/O, apart from its latest failure.
        return "" if self._write_health.failure is None else str(self._write_health.failure)

    @property
    def loss(self) -> str:
        # A server notices by itself what its own log has lost.
        return ""

    async def save(self, record: StoredResponse, *, is_alone: bool = False, is_reserved: bool = False) -> None:
        values = await self._encode(record)

        async def save(db: Connection) -> None:
            # Most responses are finished when they are first stored. They have no chunks, so one statement is enough.
            is_new = in_progress.is_finished(record.status) and not is_reserved
            if is_new and await insert_response(db, record, values):
                return
            async with db.transaction():
                await db.execute(f"{_INSERT_ON_CONFLICT} UPDATE SET {_UPDATED_COLUMNS}", *values)
                await store_run(db, record.run)
                if in_progress.is_finished(record.status):
                    await db.execute(in_progress.DELETE_CHUNKS, record.id)

        await self._pool.run(save, is_repeatable=True)

    async def reserve(self, record: StoredResponse) -> None:
        values = await self._encode(record)

        async def reserve(db: Connection) -> None:
            async with db.transaction():
                await db.execute(_INSERT_QUEUED, *values, in_progress.RESERVED)
                await store_run(db, record.run)

        await self._pool.run(reserve, is_repeatable=True)

    async def insert_within_quota(self, record: StoredResponse, *, quota: int, is_durable: bool) -> int | None:
        values = await self._encode(record)

        async def insert(db: Connection) -> int | None:
            async with db.transaction():
                await db.execute(_LOCK_QUOTA, record.owner)
                position = in_progress.next_queue_position(
                    await db.fetchrow(in_progress.READ_QUEUE_STATE, record.owner, record.id), quota
                )
                if position is not None:
                    await db.execute(_INSERT_QUEUED, *values, position if is_durable else None)
                    await store_run(db, record.run)
                return position

        async with self._hold_quota_lock(record.owner):
            return await self._pool.run(insert, is_repeatable=True)

    async def count_unfinished(self, caller_id: str) -> int:
        return int(
            await self._pool.run(lambda db: db.fetchval(in_progress.COUNT_UNFINISHED, caller_id), is_repeatable=True)
        )

    @asynccontextmanager
    async def _hold_quota_lock(self, caller_id: str) -> AsyncIterator[None]:
        """Serialize the insertions of a caller in this process.

        Otherwise they would wait for `_LOCK_QUOTA`, each with a connection of the pool. Raises `StorageError` after
        `POSTGRES_TIMEOUT` seconds.
        """
        lock = self._quota_locks.setdefault(caller_id, asyncio.Lock())
        try:
            async with asyncio.timeout(POSTGRES_TIMEOUT):
                await lock.acquire()
        except TimeoutError:
            raise StorageError(
                "The database cannot be used: it does not answer earlier requests of this caller."
            ) from None
        try:
            yield
        finally:
            lock.release()

    async def finish(self, record: StoredResponse) -> bool:
        values = await self._encode(record)
        resource = values[COLUMN_NAMES.index("resource")]

        async def finish(db: Connection) -> bool:
            async with db.transaction():
                row = await db.fetchrow(f"{in_progress.GET_GATEWAY_ID} FOR UPDATE", record.id)
                if row is None or row["keeper"] != self.gateway_id:
                    finished = (record.id, self.gateway_id, record.status, resource)
                    return await db.fetchval(in_progress.FIND_FINISHED, *finished) is not None
                await db.execute(f"{_INSERT_ON_CONFLICT} UPDATE SET {_UPDATED_COLUMNS}", *values)
                await store_run(db, record.run)
                await db.execute(in_progress.DELETE_CHUNKS, record.id)
                return True

        return await self._pool.run(finish, is_repeatable=True)

    async def get(self, response_id: str, caller_id: str) -> StoredResponse | None:
        row = await self._pool.run(
            lambda db: db.fetchrow(_SELECT_RESPONSE, without_nul(response_id), caller_id), is_repeatable=True
        )
        return response_of(tuple(row)) if row is not None else None

    async def delete(self, response_id: str, caller_id: str) -> bool:
        key = without_nul(response_id)

        async def remove(db: Connection) -> bool:
            async with db.transaction():
                await db.execute(run_sql.DELETE_RUN, key, caller_id)
                # The response first: a concurrent `append_events` waits for its row, and then finds none.
                status = await db.execute("DELETE FROM responses WHERE id = $1 AND owner = $2", key, caller_id)
                if not _count_changed(status):
                    return False
                await db.execute(in_progress.DELETE_CHUNKS, key)
                return True

        return await self._pool.run(remove, is_repeatable=False)

    async def read_context(
        self, response_id: str, caller_id: str, *, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> list[bytes] | None:
        values = (without_nul(response_id), caller_id, max_bytes)
        rows = await self._pool.run(lambda db: db.fetch(conversations.READ_CONTEXT, *values), is_repeatable=True)
        return [decode_value(items, each) for each, items in rows] or None

    async def find_responses_containing(self, ids: Collection[str], caller_id: str) -> list[tuple[bytes, bytes]]:
        async def find(db: Connection) -> list[tuple[bytes, bytes]]:
            search = items_by_id.ItemSearch(ids)
            chosen = items_by_id.choose_newest(map(tuple, await db.fetch(items_by_id.READ_SIZES, caller_id)))
            while chosen and not search.is_complete:
                batch, chosen = chosen[:SEARCH_BATCH], chosen[SEARCH_BATCH:]
                texts = {row[0]: (row[1], row[2]) for row in await db.fetch(_SELECT_TEXTS, batch)}
                for response_id in filter(texts.__contains__, batch):
                    search.search_response(*(decode_value(text, response_id) for text in texts[response_id]))
            return search.found

        return await self._pool.run(find, is_repeatable=True)

    async def read_orphans(self) -> list[StoredResponse]:
        sql = f"SELECT {COLUMNS} FROM responses WHERE {_IS_ORPHAN}"  # noqa: S608 - no values
        rows = await self._pool.run(lambda db: db.fetch(sql), is_repeatable=True)
        return [response_of(tuple(row)) for row in rows]

    async def find_orphans(self) -> dict[str, int | None]:
        sql = f"SELECT id, keeper FROM responses WHERE {_IS_ORPHAN}"  # noqa: S608 - no values
        found = dict(await self._pool.run(lambda db: db.fetch(sql), is_repeatable=True))
        await self._write_health.require_writable()
        return found

    async def find_unfinished(self, ids: Collection[str]) -> set[str]:
        sql = f"SELECT id FROM responses WHERE id = ANY($1) AND {IS_UNFINISHED}"  # noqa: S608 - no values
        rows = await self._pool.run(lambda db: db.fetch(sql, list(ids)), is_repeatable=True)
        return {row[0] for row in rows}

    async def find_unfinished_before(self, created_before: float) -> dict[str, str]:
        sql = in_progress.FIND_UNFINISHED_BEFORE
        return dict(await self._pool.run(lambda db: db.fetch(sql, created_before), is_repeatable=True))

    async def find_assigned(self) -> dict[str, str]:
        sql = in_progress.FIND_ASSIGNED
        return dict(await self._pool.run(lambda db: db.fetch(sql, self.gateway_id), is_repeatable=True))

    async def assign_gateway(self, response_id: str, gateway_id: int | None = None) -> None:
        await self._execute(
            in_progress.ASSIGN_GATEWAY, without_nul(response_id), gateway_id or self.gateway_id, is_repeatable=True
        )

    async def append_events(
        self,
        response_id: str,
        first_number: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
        trace: bytes | None = None,
    ) -> bool:
        changes = (encode_optional(resource), status, encode_optional(trace))

        async def append(db: Connection) -> bool:
            async with db.transaction():
                return await _append_events(
                    db, self.gateway_id, without_nul(response_id), first_number, events, changes
                )

        return await self._pool.run(append, is_repeatable=True)

    async def read_events(self, response_id: str, caller_id: str, starting_after: int = -1) -> list[bytes] | None:
        values = (without_nul(response_id), caller_id, starting_after + 1)
        rows = await self._pool.run(lambda db: db.fetch(in_progress.READ_CHUNKS, *values), is_repeatable=True)
        return in_progress.events_after(starting_after, in_progress.decode_chunks(rows, response_id)) if rows else None

    async def request_cancel(self, response_id: str, caller_id: str) -> bool:
        return (
            await self._execute(in_progress.REQUEST_CANCEL, without_nul(response_id), caller_id, is_repeatable=True) > 0
        )

    async def read_cancel_requests(self) -> list[str]:
        rows = await self._pool.run(
            lambda db: db.fetch(in_progress.READ_CANCEL_REQUESTS, self.gateway_id), is_repeatable=True
        )
        return [row[0] for row in rows]

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None:
        await self._pool.run(
            lambda db: conversation_rows.create_conversation(db, conversation, items), is_repeatable=False
        )

    async def get_conversation(self, conversation_id: str, caller_id: str) -> Conversation | None:
        return await self._pool.run(
            lambda db: conversation_rows.read_conversation(db, conversation_id, caller_id), is_repeatable=True
        )

    async def list_conversations(
        self, caller_id: str, *, after: str | None, limit: int, order: Order
    ) -> list[Conversation] | None:
        return await self._pool.run(
            lambda db: conversation_rows.list_conversations(db, caller_id, after=after, limit=limit, order=order),
            is_repeatable=True,
        )

    async def update_conversation(self, conversation_id: str, caller_id: str, metadata: bytes) -> bool:
        values = (without_nul(conversation_id), caller_id, encode_value(metadata))
        return await self._execute(conversation_rows.UPDATE_CONVERSATION, *values, is_repeatable=True) > 0

    async def delete_conversation(self, conversation_id: str, caller_id: str) -> bool:
        values = (without_nul(conversation_id), caller_id)
        return await self._execute(conversation_rows.DELETE_CONVERSATION, *values) > 0

    async def add_items(
        self,
        conversation_id: str,
        caller_id: str,
        items: Sequence[ConversationItem],
        *,
        response_id: str | None = None,
        pending_calls: bytes | None = None,
    ) -> bool:
        return await self._pool.run(
            lambda db: conversation_rows.add_items(
                db, conversation_id, caller_id, items, response_id=response_id, pending_calls=pending_calls
            ),
            is_repeatable=False,
        )

    async def read_conversation(
        self, conversation_id: str, caller_id: str, *, limit: int, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> ConversationContents | None:
        values = (without_nul(conversation_id), caller_id, limit, max_bytes)
        rows = await self._pool.run(lambda db: db.fetch(_READ_CONVERSATION, *values), is_repeatable=True)
        return conversations.conversation_of(map(tuple, rows), conversation_id, self.gateway_id)

    async def lease_conversation(
        self, conversation_id: str, caller_id: str, expected: ConversationContents, response_id: str
    ) -> bool:
        return await self._pool.run(
            lambda db: conversation_rows.lease_conversation(
                db, conversation_id, caller_id, expected, response_id, self.gateway_id
            ),
            is_repeatable=True,
        )

    async def release_conversation(self, conversation_id: str, caller_id: str, response_id: str) -> None:
        await self._execute(
            conversations.RELEASE_CONVERSATION,
            without_nul(conversation_id),
            caller_id,
            response_id,
            is_repeatable=True,
        )

    async def add_pending_calls(
        self, caller_id: str, response_id: str, digests: Mapping[str, bytes], *, client_call_ids: Collection[str] = ()
    ) -> None:
        await self._pool.run(
            lambda db: conversation_rows.add_pending_calls(db, caller_id, response_id, digests, client_call_ids),
            is_repeatable=True,
        )

    async def read_pending_calls(self, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
        return await self._pool.run(
            lambda db: conversation_rows.read_pending_calls(db, caller_id, ids), is_repeatable=True
        )

    async def claim_calls(self, caller_id: str, ids: Collection[str], response_id: str) -> dict[str, str]:
        return await self._pool.run(
            lambda db: conversation_rows.claim_calls(db, caller_id, ids, response_id), is_repeatable=True
        )

    async def release_calls(self, caller_id: str, response_id: str, ids: Collection[str] | None = None) -> None:
        if ids is None:
            await self._execute(pending_calls.RELEASE_ALL_CALLS, caller_id, response_id, is_repeatable=True)
            return
        rows = [(caller_id, without_nul(call_id), response_id) for call_id in sorted(ids)]
        await self._pool.run(lambda db: db.executemany(pending_calls.RELEASE_CALL, rows), is_repeatable=True)

    async def find_paused_responses(self, caller_id: str, call_id: str) -> list[str]:
        values = (caller_id, without_nul(call_id))
        rows = await self._pool.run(
            lambda db: db.fetch(pending_calls.FIND_PAUSED_RESPONSES, *values), is_repeatable=True
        )
        return [row[0] for row in rows]

    async def list_items(
        self,
        conversation_id: str,
        caller_id: str,
        *,
        after: str | None = None,
        limit: int = 100,
        order: Order = "asc",
        max_bytes: int = DEFAULT_CONTEXT_BYTES,
    ) -> list[ConversationItem] | None:
        return await self._pool.run(
            lambda db: conversation_rows.list_items(
                db, conversation_id, caller_id, after=after, limit=limit, order=order, max_bytes=max_bytes
            ),
            is_repeatable=True,
        )

    async def get_item(self, conversation_id: str, caller_id: str, item_id: str) -> ConversationItem | None:
        return await self._pool.run(
            lambda db: conversation_rows.read_item(db, conversation_id, caller_id, item_id), is_repeatable=True
        )

    async def find_item(self, item_id: str, caller_id: str) -> ConversationItem | None:
        return await self._pool.run(lambda db: conversation_rows.find_item(db, item_id, caller_id), is_repeatable=True)

    async def delete_item(self, conversation_id: str, caller_id: str, item_id: str) -> bool:
        values = (without_nul(conversation_id), caller_id, without_nul(item_id))
        return await self._execute(conversation_rows.DELETE_ITEM, *values) > 0

    async def read_audit_end(self, file: str) -> tuple[int, str] | None:
        row = await self._pool.run(lambda db: db.fetchrow(audit_ends.READ_AUDIT_END, file), is_repeatable=True)
        return None if row is None else (row[0], row[1])

    async def store_audit_end(self, file: str, seq: int, line_hash: str) -> None:
        values = (file, seq, line_hash)
        await self._pool.run(lambda db: db.execute(audit_ends.STORE_AUDIT_END, *values), is_repeatable=True)

    async def delete_older_than(self, before: float) -> int:
        total = 0
        for sql in (*retention.DELETE_OLD, run_sql.DELETE_OLD_RUNS):
            while count := await self._execute(sql, before, is_repeatable=True):
                total += count
        await self._execute(in_progress.DELETE_ORPHAN_CHUNKS, is_repeatable=True)
        for statement in pending_calls.DELETE_OLD_CALLS:
            await self._execute(statement, before, is_repeatable=True)
        await self._execute(elicitation_sql.DELETE_EXPIRED, time.time(), is_repeatable=True)
        await self._execute(key_sql.DELETE_EXPIRED, key_sql.oldest_time(), is_repeatable=True)
        return total

    async def check_health(self) -> bool:
        answer: int = await self._pool.run(lambda db: db.fetchval("SELECT 1"), is_repeatable=True, attempts=1)
        await self._write_health.require_writable()
        return answer == 1 and not self._pool.liveness.is_failing

    async def close(self) -> None:
        await self._write_health.close()
        await self._pool.close()

    async def _probe(self) -> None:
        data = make_probe_data()
        await self._pool.run(lambda db: db.execute(STORE_PROBE, data), is_repeatable=True, attempts=1)

    async def _encode(self, record: StoredResponse) -> tuple[object, ...]:
        """The values of a response, in a thread if they are large."""
        if size_of(record) < COMPRESSED_FROM:
            return values_of(record, self.gateway_id)
        return await run_off_loop(lambda: values_of(record, self.gateway_id))

    async def _execute(self, sql: str, *values: object, is_repeatable: bool = False) -> int:
        """Execute a statement, and return how many rows it changed.

        A deletion whose result matters is not repeatable: the second attempt would find nothing to delete.
        """
        return _count_changed(await self._pool.run(lambda db: db.execute(sql, *values), is_repeatable=is_repeatable))


def _count_changed(status: str) -> int:
    """The number of rows in a command status of the server, such as `INSERT 0 1`."""
    return int(status.rpartition(" ")[2])


async def insert_response(db: Connection, record: StoredResponse, values: tuple[object, ...]) -> bool:
    """Insert a response and its run. False, and nothing is changed, if there is one of its id."""
    if record.run is None:
        return _count_changed(await db.execute(f"{_INSERT_ON_CONFLICT} NOTHING", *values)) > 0
    # One statement is one round trip and one transaction. The run has parameters behind those of the response.
    run_values = run_sql.values_of(record.run)
    return _count_changed(await db.execute(_INSERT_BOTH, *values, *run_values)) > 0


async def _append_events(
    db: Connection,
    gateway_id: int,
    response_id: str,
    first_number: int,
    events: Sequence[bytes],
    changes: tuple[bytes | None, str | None, bytes | None],
) -> bool:
    """See `ResponseStore.append_events`. `changes`: the new resource, status and trace."""
    # The row is locked: another writer waits here, and then sees what this one has added.
    row = await db.fetchrow(f"{in_progress.GET_GATEWAY_ID} FOR UPDATE", response_id)
    if row is None:
        return False
    end = await db.fetchval(in_progress.NEXT_EVENT_NUMBER, response_id) or 0
    if first_number < end and row["keeper"] == gateway_id:
        rows = await db.fetch(in_progress.CHUNKS_FROM, response_id, first_number)
        chunks = in_progress.decode_chunks(rows, response_id)
        unstored = in_progress.find_unstored(events, in_progress.events_after(first_number - 1, chunks))
        if unstored is None:
            return False
        events = unstored
    elif first_number != end:
        return False
    if events:
        chunk = (response_id, end, len(events), in_progress.encode_events(events))
        await db.execute(in_progress.ADD_CHUNK, *chunk)
    resource, status, trace = changes
    if (row["keeper"], resource, status) != (gateway_id, None, None):
        await db.execute(in_progress.UPDATE_UNFINISHED, response_id, resource, status, gateway_id, trace)
    if status is not None:
        await db.execute(run_sql.SET_STATUS, response_id, status)
    return True
