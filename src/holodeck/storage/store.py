"""The storage of a gateway: responses, their streams, conversations, pending calls, and what belongs to them.

`ResponseStore` has every method, for both databases: see `jobs` for how they are written, and `sqlite.driver` and
`postgres.driver` for how they are run. Every record belongs to one caller: a method that takes a `caller_id` treats an
id of another caller like an id that does not exist. Every failure is a `StorageError`.

Several gateways may share one database, each with a gateway id: see `unfinished`. Concurrent writers are serialized by
row locks, by the primary keys, and by one lock per caller for its quota.

Writes whose acknowledgement may be lost on the network are idempotent: the same call again has the same answer. Others
are not repeated, and raise.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES, DELETE_BATCH, MAX_CONTEXT_DEPTH
from holodeck.lib.off_loop import run_off_loop
from holodeck.storage.caller_keys import CallerKeyStore
from holodeck.storage.caller_states import CallerStateStore
from holodeck.storage.conversations import Conversations
from holodeck.storage.elicitations import DELETE_EXPIRED_ELICITATIONS, ElicitationStore
from holodeck.storage.idempotency_keys import DELETE_EXPIRED_KEYS, IdempotencyKeyStore, oldest_key_time
from holodeck.storage.jobs import (
    CHECK_BYTES,
    INLINE_BYTES,
    Connection,
    Driver,
    Storing,
    decode_value,
    read,
    statement,
    transaction,
)
from holodeck.storage.mcp_sessions import MCPSessionStore
from holodeck.storage.pending_calls import DELETE_OLD_CALLS, DELETE_OLD_PAUSED, PendingCalls
from holodeck.storage.person_sessions import PersonSessionStore
from holodeck.storage.responses import (
    COLUMN_NAMES,
    COLUMNS,
    DELETE_CHUNKS,
    DELETE_ORPHAN_CHUNKS,
    IS_COUNTED,
    LOCK_UNFINISHED,
    READ_TEXT_SIZES,
    RESERVED,
    ItemSearch,
    StoredResponse,
    UnfinishedResponses,
    choose_newest,
    decode_texts,
    response_of,
    size_of,
    values_of,
)
from holodeck.storage.runs import (
    DELETE_OLD_RUNS,
    DELETE_RUN,
    IS_UNFINISHED,
    STORE_RUN,
    UNFINISHED_STATUSES,
    RunIndex,
    run_values_of,
    store_run_after,
)
from holodeck.storage.server_logins import DELETE_OLD_FLOWS, ServerLoginStore, oldest_flow_time
from holodeck.storage.usage import UsageStore

Values = tuple[object, ...]
"""The values of a statement."""

_PARAMETERS = ", ".join(f"${number}" for number in range(1, len(COLUMN_NAMES) + 2))
_UPDATED_COLUMNS = ", ".join(f"{name} = excluded.{name}" for name in (*COLUMN_NAMES[1:], "gateway_id"))
_INSERT = f"INSERT INTO responses ({COLUMNS}, gateway_id) VALUES ({_PARAMETERS})"  # noqa: S608 - no values, as below
_INSERT_NEW = f"{_INSERT} ON CONFLICT (id) DO NOTHING"
_UPSERT = f"{_INSERT} ON CONFLICT (id) DO UPDATE SET {_UPDATED_COLUMNS}"
_INSERT_QUEUED = f"""
INSERT INTO responses ({COLUMNS}, gateway_id, queue_position) VALUES ({_PARAMETERS}, ${len(COLUMN_NAMES) + 2})
ON CONFLICT (id) DO NOTHING"""  # noqa: S608
# For a database that can write to several tables in one statement, which is one round trip and shares a transaction.
# The run has parameters behind those of the response.
_INSERT_WITH_RUN = f"""
WITH added AS ({_INSERT_NEW} RETURNING id) {store_run_after("added", first=len(COLUMN_NAMES) + 2)}"""
_RESERVE_WITH_RUN = f"""
WITH added AS ({_INSERT_QUEUED} RETURNING id) {store_run_after("added", first=len(COLUMN_NAMES) + 3)}"""
_END_WITH_RUN = f"""
WITH stored AS ({_UPSERT} RETURNING id), chunks AS ({DELETE_CHUNKS})
{store_run_after("stored", first=len(COLUMN_NAMES) + 2)}"""
_READ_QUEUE_STATE = f"""
SELECT (SELECT COUNT(*) FROM responses WHERE caller_id = $1 AND id <> $2 AND {IS_COUNTED} AND {IS_UNFINISHED}),
    (SELECT MAX(queue_position) FROM responses WHERE caller_id = $1 AND id <> $2 AND {IS_UNFINISHED}),
    (SELECT MAX(queue_position) FROM responses WHERE status = 'in_progress' AND {IS_UNFINISHED}),
    (SELECT MIN(queue_position) FROM responses WHERE status = 'queued' AND {IS_UNFINISHED})"""  # noqa: S608
"""The number of unfinished responses of a caller, without this one and reserved ones, and the last queue position among
them; then, of all callers, the last position that runs and the first that is queued."""
_RESOURCE = COLUMN_NAMES.index("resource")
_FIND_FINISHED = "SELECT 1 FROM responses WHERE id = $1 AND gateway_id = $2 AND status = $3 AND resource = $4"
_GET = f"SELECT {COLUMNS} FROM responses WHERE id = $1 AND caller_id = $2"  # noqa: S608
_DELETE = "DELETE FROM responses WHERE id = $1 AND caller_id = $2"
_READ_TEXTS = "SELECT id, resource, input_items, items FROM responses WHERE id = ANY($1)"
_READ_CONTEXT = f"""
WITH RECURSIVE chain (id, previous_id, depth, bytes) AS (
    SELECT id, previous_id, 0, CAST(length(items) - {CHECK_BYTES} AS BIGINT) FROM responses
    WHERE id = $1 AND caller_id = $2
    UNION ALL
    SELECT r.id, r.previous_id, chain.depth + 1, chain.bytes + length(r.items) - {CHECK_BYTES}
    FROM responses r JOIN chain ON r.id = chain.previous_id
    WHERE r.caller_id = $2 AND chain.depth < {MAX_CONTEXT_DEPTH} AND chain.bytes <= $3)
SELECT r.id, r.items FROM chain JOIN responses r ON r.id = chain.id ORDER BY chain.depth DESC"""  # noqa: S608
"""The ids and items of a response and its predecessors. The recursion sums sizes: no bytes over the limit are read."""

# Goes through the callers one by one, with the index by caller and age: an index by age alone would be one more to
# update with every response.
_OLD_RESPONSES = f"""
WITH RECURSIVE callers (name) AS (
    SELECT MIN(caller_id) FROM responses
    UNION ALL
    SELECT (SELECT MIN(caller_id) FROM responses WHERE caller_id > callers.name) FROM callers
    WHERE callers.name IS NOT NULL)
SELECT id FROM callers JOIN responses ON caller_id = callers.name
WHERE created_at < $1 AND NOT {IS_UNFINISHED} LIMIT {DELETE_BATCH}"""  # noqa: S608
_OLD_CONVERSATIONS = f"SELECT id FROM conversations WHERE created_at < $1 LIMIT {DELETE_BATCH}"  # noqa: S608
_DELETE_OLD = (
    f"DELETE FROM responses WHERE id IN ({_OLD_RESPONSES})",  # noqa: S608
    f"DELETE FROM conversations WHERE id IN ({_OLD_CONVERSATIONS})",  # noqa: S608
    DELETE_OLD_RUNS,
)
"""Each statement deletes one batch of what was created before $1, and is repeated until it deletes nothing."""
_ERASE = tuple(
    f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {keys} FROM {table} WHERE caller_id = $1 LIMIT {DELETE_BATCH})"  # noqa: S608 - names of our own
    for table, keys in (
        ("runs", "caller_id, created_at, id"),
        ("responses", "id"),
        ("conversations", "id"),
        ("pending_calls", "caller_id, id"),
        ("paused_responses", "caller_id, call_id, response_id"),
    )
)
"""Each statement deletes one batch of what caller $1 has, and is repeated until it deletes nothing."""
_READ_AUDIT_END = "SELECT seq, hash FROM audit_ends WHERE file = $1"
_STORE_AUDIT_END = """
INSERT INTO audit_ends (file, seq, hash) VALUES ($1, $2, $3)
ON CONFLICT (file) DO UPDATE SET seq = excluded.seq, hash = excluded.hash"""


class ResponseStore(UnfinishedResponses, Conversations, PendingCalls):
    """The store of one gateway. Its database is opened with the first call."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self.runs = RunIndex(driver)
        self.usage = UsageStore(driver)
        self.caller_keys = CallerKeyStore(driver)
        self.caller_states = CallerStateStore(driver)
        self.server_logins = ServerLoginStore(driver)
        self.elicitations = ElicitationStore(driver)
        self.idempotency_keys = IdempotencyKeyStore(driver)
        self.mcp_sessions = MCPSessionStore(driver)
        self.person_sessions = PersonSessionStore(driver)

    @property
    def is_shared(self) -> bool:
        """Whether other gateways may use the same database."""
        return self._driver.is_shared

    @property
    def checks_before_takeover(self) -> int:
        """Checks in a row at which another gateway must be missing before it counts as dead."""
        return self._driver.checks_before_takeover

    @property
    def unavailable_reason(self) -> str:
        """Why nothing can be stored, as far as that is known without I/O. Empty when no reason is known."""
        return self._driver.unavailable_reason

    @property
    def loss(self) -> str:
        """What the database is known to have lost, in public words, until an operator acknowledges it. Else empty."""
        return self._driver.loss

    async def save(self, response: StoredResponse, *, is_alone: bool = False, is_reserved: bool = False) -> None:
        """Store a response, or replace its state.

        A finished response has its whole stream in `events`, so the chunks of `append_events` are deleted.
        `is_alone`: no other request is in progress, so a short write may block the event loop.
        `is_reserved`: `reserve` has stored it, which spares an attempt to insert it.
        """
        is_small = size_of(response) < INLINE_BYTES
        values = values_of(response, self.gateway_id) if is_small else await self._encode(response)
        run = () if response.run is None else run_values_of(response.run)
        is_end = response.status not in UNFINISHED_STATUSES
        is_one_statement = self._driver.has_writing_queries
        # Most responses are finished when they are first stored. They have no chunks to delete.
        if is_end and not is_reserved:
            if is_one_statement:
                is_new = (
                    await self._driver.write_statement(_INSERT_WITH_RUN if run else _INSERT_NEW, (*values, *run)) > 0
                )
            else:
                is_new = await self._insert(values, run, is_inline=is_alone and is_small)
            if is_new:
                return
        if is_end and run and is_one_statement:
            await self._driver.write_statement(_END_WITH_RUN, (*values, *run))
        else:
            await self._replace(values, run, is_end=is_end)

    async def _insert(self, values: Values, run: Values, *, is_inline: bool) -> bool:
        """Insert a response and its run. False, and nothing is changed, if there is one of its id."""

        async def insert(db: Connection) -> bool:
            is_new = await db.write_counted(_INSERT_NEW, *values) > 0
            if is_new and run:
                await db.write(STORE_RUN, *run)
            return is_new

        is_one_statement = not run
        if is_inline and self._driver.write_inline(insert, is_one_statement=is_one_statement):
            return True
        return await self._driver.write(insert, is_one_statement=is_one_statement)

    @transaction()
    async def _replace(self, db: Connection, values: Values, run: Values, *, is_end: bool) -> None:
        await db.write(_UPSERT, *values)
        if run:
            await db.write(STORE_RUN, *run)
        if is_end:
            await db.write(DELETE_CHUNKS, values[0])

    async def reserve(self, response: StoredResponse) -> None:
        """Store a new unfinished response for which a request waits: it is neither queued, nor does a quota count it.

        Idempotent.
        """
        values = (*await self._encode(response), RESERVED)
        run = () if response.run is None else run_values_of(response.run)
        if run and self._driver.has_writing_queries:
            await self._driver.write_statement(_RESERVE_WITH_RUN, (*values, *run))
        else:
            await self._insert_reserved(values, run)

    @transaction()
    async def _insert_reserved(self, db: Connection, values: Values, run: Values) -> None:
        await db.write(_INSERT_QUEUED, *values)
        if run:
            await db.write(STORE_RUN, *run)

    async def insert_within_quota(self, response: StoredResponse, *, quota: int, is_durable: bool) -> int | None:
        """Store a new unfinished response, unless its caller has `quota` unfinished ones on all gateways together.

        Returns None, and stores nothing, when the quota is used up; else the queue position of the response. Positions
        alternate between callers, and a later response of a caller has a later position.
        `is_durable`: the response may be queued. Others start at once, and no position is stored for them.
        Idempotent: the response itself does not count towards the quota.
        """
        values = await self._encode(response)

        async def insert(db: Connection) -> int | None:
            position = _next_queue_position(
                await db.fetch_row(_READ_QUEUE_STATE, response.caller_id, response.id), quota
            )
            if position is not None:
                await db.write(_INSERT_QUEUED, *values, position if is_durable else None)
                if response.run is not None:
                    await db.write(STORE_RUN, *run_values_of(response.run))
            return position

        return await self._driver.write(insert, exclusive_to=response.caller_id)

    async def finish(self, response: StoredResponse) -> bool:
        """Store the final state of a response that is assigned to this gateway, as `save` does.

        Returns False, and changes nothing, when the response was deleted or another gateway has taken it over.
        Idempotent.
        """
        return await self._finish(response, await self._encode(response))

    @transaction()
    async def _finish(self, db: Connection, response: StoredResponse, values: Sequence[object]) -> bool:
        row = await db.fetch_row(LOCK_UNFINISHED, response.id)
        if row is None or row[0] != self.gateway_id:
            finished = (response.id, self.gateway_id, response.status, values[_RESOURCE])
            return await db.fetch_row(_FIND_FINISHED, *finished) is not None
        await db.write(_UPSERT, *values)
        if response.run is not None:
            await db.write(STORE_RUN, *run_values_of(response.run))
        await db.write(DELETE_CHUNKS, response.id)
        return True

    @read(confirms_missing=True)
    async def get(self, db: Connection, response_id: str, caller_id: str) -> StoredResponse | None:
        row = await db.fetch_row(_GET, response_id, caller_id)
        return None if row is None else response_of(row)

    @transaction(is_repeatable=False, confirms_missing=True)
    async def delete(self, db: Connection, response_id: str, caller_id: str) -> bool:
        await db.write(DELETE_RUN, response_id, caller_id)
        # The response first: a concurrent `append_events` waits for its row, and then finds none.
        if not await db.write_counted(_DELETE, response_id, caller_id):
            return False
        await db.write(DELETE_CHUNKS, response_id)
        return True

    @read(confirms_missing=True)
    async def read_context(
        self, db: Connection, response_id: str, caller_id: str, *, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> list[bytes] | None:
        """Return the `items` of the response and of its predecessors, oldest first. None: there is no such response.

        Reading goes from the newest response back, and stops after the one that makes the sum exceed `max_bytes`.
        """
        rows = await db.fetch_rows(_READ_CONTEXT, response_id, caller_id, max_bytes)
        return [decode_value(items, each) for each, items in rows] or None

    @read()
    async def find_responses_containing(
        self, db: Connection, ids: Collection[str], caller_id: str
    ) -> list[tuple[bytes, bytes]]:
        """Return the resource and the input of the caller's newest response that contains each of these item ids.

        The search covers a bounded number of the caller's latest responses: see `responses`.
        """
        search, size = ItemSearch(ids), self._driver.search_batch
        chosen = choose_newest(await db.fetch_rows(READ_TEXT_SIZES, caller_id))
        while chosen and not search.is_complete:
            batch, chosen = chosen[:size], chosen[size:]
            texts = {row[0]: row[1:] for row in await db.fetch_rows(_READ_TEXTS, db.array(batch))}
            for response_id in filter(texts.__contains__, batch):
                resource, input_items, _ = decode_texts(response_id, *texts[response_id])
                search.search_response(resource, input_items)
        return search.found

    @read()
    async def read_audit_end(self, db: Connection, file: str) -> tuple[int, str] | None:
        """Return the number and the hash of the last line of an audit log. None: nothing is stored for the file."""
        row = await db.fetch_row(_READ_AUDIT_END, file)
        return None if row is None else (row[0], row[1])

    @statement()
    async def store_audit_end(self, db: Connection, file: str, seq: int, line_hash: str) -> None:
        """Store the number and the hash of the last line of an audit log. Idempotent."""
        await db.write(_STORE_AUDIT_END, file, seq, line_hash)

    async def delete_older_than(self, before: float) -> int:
        """Delete finished responses and conversations from before a time, in batches. Returns how many were deleted.

        Old pending calls, chunks of streams that belong to no unfinished response, and questions of MCP servers,
        sessions of MCP clients and idempotency keys that have expired are deleted as well.
        """
        total = 0
        for sql in _DELETE_OLD:
            while count := await self._delete(sql, before):
                total += count
        await self._delete(DELETE_ORPHAN_CHUNKS)
        for sql in (DELETE_OLD_CALLS, DELETE_OLD_PAUSED):
            await self._delete(sql, before)
        await self._delete(DELETE_EXPIRED_ELICITATIONS, time.time())
        await self._delete(DELETE_EXPIRED_KEYS, oldest_key_time())
        await self._delete(DELETE_OLD_FLOWS, oldest_flow_time())
        await self.caller_keys.delete_old()
        await self.caller_states.delete_old()
        await self.person_sessions.delete_expired_sessions()
        await self.person_sessions.delete_used_values()
        await self.mcp_sessions.delete_old()
        return total

    async def erase_caller(self, caller_id: str) -> None:
        """Delete everything of a caller, in batches; its usage is counted without its name. Idempotent."""
        for sql in _ERASE:
            while await self._delete(sql, caller_id):
                pass
        await self._delete(DELETE_ORPHAN_CHUNKS)
        for part in vars(self).values():
            if isinstance(part, Storing):
                await part.erase_caller(caller_id)

    @statement()
    async def _delete(self, db: Connection, sql: str, *values: object) -> int:
        return await db.write_counted(sql, *values)

    async def check_health(self) -> bool:
        """Return whether the database answers. Raises `StorageError` for as long as it cannot be written.

        After a failed write that is so until a probe has been written, which this method does, with growing pauses.
        """
        return await self._driver.check_health()

    async def close(self) -> None:
        """Finish all jobs, and close all connections."""
        await self._driver.close()

    async def _encode(self, response: StoredResponse) -> tuple[object, ...]:
        """Return the values of a response, computed in a thread if they are large."""
        if size_of(response) < INLINE_BYTES:
            return values_of(response, self.gateway_id)
        return await run_off_loop(lambda: values_of(response, self.gateway_id))


def _next_queue_position(queue_state: Sequence[int | None] | None, quota: int) -> int | None:
    """Return the queue position of one more response. None when the quota is used up. See `_READ_QUEUE_STATE`.

    The position is after all those of the same caller, and not before one that runs already: a caller does not
    accumulate positions while it sends nothing.
    """
    count, last_own, last_running, first_queued = queue_state or (None,) * 4
    if count is None or count >= quota:
        return None
    return max(last_own or 0, last_running or 0, (first_queued or 1) - 1) + 1
