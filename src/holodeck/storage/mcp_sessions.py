"""Sessions of MCP clients that several gateways share, and what these send each other about them.

A session is held by one gateway. It is taken over by another one once its gateway is not alive any more, or has
released it; each time its `epoch` is one higher, so that what belongs to an earlier holder can be told apart.

A relay is one HTTP request that a gateway has another one answer. Its row is there for as long as its sender waits for
the answer, whose messages follow in `mcp_relay_messages`, numbered from 1. The sender deletes what it has read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from holodeck.lib.record import record
from holodeck.storage.jobs import Connection, Storing, decode_value, encode_value, read, statement, transaction

# Seconds after its last use for which a session is stored that no living gateway holds.
SESSION_SECONDS = 1_800.0
# Messages that are read at once.
READ_MESSAGES = 64
# Seconds after which a relay is deleted whose sender has died.
_RELAY_SECONDS = 86_400.0


@record
class StoredMCPSession:
    """A session that any gateway can go on with."""

    id: str
    caller_id: str
    server: str
    """The one server of its path. Empty: all."""
    scope: str
    """The digest of the scope of its caller."""
    state: bytes
    """What the client has said of itself, as JSON."""
    epoch: int = 0
    gateway_id: int | None = None
    """The gateway that holds it. None: it was released."""
    is_alive: bool = True
    """Whether that gateway is alive."""


_ADD = """
INSERT INTO mcp_sessions (id, caller_id, server, scope, state, epoch, gateway_id, used_at)
VALUES ($1, $2, $3, $4, $5, 0, $6, $7) ON CONFLICT (id) DO NOTHING"""
_FIND = """
SELECT id, caller_id, server, scope, state, epoch, gateway_id, is_alive(gateway_id) FROM mcp_sessions
WHERE id = $1 AND used_at > $2"""
_TAKE = """
UPDATE mcp_sessions SET gateway_id = $3, epoch = epoch + 1, used_at = $4
WHERE id = $1 AND epoch = $2 AND (gateway_id IS NULL OR NOT is_alive(gateway_id))"""
_RELEASE = "UPDATE mcp_sessions SET gateway_id = NULL, used_at = $3 WHERE id = $1 AND gateway_id = $2"
_UPDATE = "UPDATE mcp_sessions SET state = $3, scope = $4 WHERE id = $1 AND gateway_id = $2"
_TOUCH = "UPDATE mcp_sessions SET used_at = $3 WHERE id = $1 AND gateway_id = $2"
_LIST_HELD = "SELECT id FROM mcp_sessions WHERE gateway_id = $1"
_DELETE = "DELETE FROM mcp_sessions WHERE id = $1 AND gateway_id = $2"
_DELETE_OF_CALLERS = "DELETE FROM mcp_sessions WHERE caller_id = ANY($1)"
_DELETE_OF_PROVIDER = "DELETE FROM mcp_sessions WHERE substr(caller_id, 1, $2) = $1"
# A holder records the last use now and then, so that a session in use is never as old.
_DELETE_OLD = "DELETE FROM mcp_sessions WHERE used_at < $1"

_OPEN_RELAY = """
INSERT INTO mcp_relays (id, gateway_id, sender_id, sent_at, request) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO NOTHING"""
_LIST_RELAYS = "SELECT id FROM mcp_relays WHERE gateway_id = $1"
_READ_REQUESTS = "SELECT id, request FROM mcp_relays WHERE id = ANY($1)"
_LIST_LOST = """
SELECT id FROM mcp_relays
WHERE (sender_id = $1 AND NOT is_alive(gateway_id)) OR (gateway_id = $1 AND NOT is_alive(sender_id))"""
_ADD_MESSAGE = """
INSERT INTO mcp_relay_messages (relay_id, number, message)
SELECT id, CAST($2 AS BIGINT), CAST($3 AS BYTEA) FROM mcp_relays WHERE id = $1"""
_READ_MESSAGES = f"""
SELECT relay_id, number, message FROM mcp_relay_messages WHERE relay_id = ANY($1)
ORDER BY relay_id, number LIMIT {READ_MESSAGES}"""  # noqa: S608 - no values
_DELETE_MESSAGES = "DELETE FROM mcp_relay_messages WHERE relay_id = $1 AND number <= $2"
_DELETE_ALL_MESSAGES = "DELETE FROM mcp_relay_messages WHERE relay_id = $1"
_DELETE_RELAY = "DELETE FROM mcp_relays WHERE id = $1"
_DELETE_OLD_RELAYS = "DELETE FROM mcp_relays WHERE sent_at < $1 AND NOT is_alive(sender_id)"
_DELETE_ORPHAN_MESSAGES = "DELETE FROM mcp_relay_messages WHERE relay_id NOT IN (SELECT id FROM mcp_relays)"


class MCPSessionStore(Storing):
    """Stores sessions, and relays between gateways."""

    @statement()
    async def add_session(self, db: Connection, session: StoredMCPSession) -> None:
        """Store a new session that this gateway holds. Idempotent."""
        values = (session.id, session.caller_id, session.server, session.scope, encode_value(session.state))
        await db.write(_ADD, *values, self.gateway_id, time.time())

    @read()
    async def find_session(self, db: Connection, session_id: str) -> StoredMCPSession | None:
        """Return a session that has not expired, whichever gateway holds it."""
        row = await db.fetch_row(_FIND, session_id, time.time() - SESSION_SECONDS)
        if row is None:
            return None
        found, caller_id, server, scope, state, epoch, gateway_id, is_alive = row
        return StoredMCPSession(
            id=found,
            caller_id=caller_id,
            server=server,
            scope=scope,
            state=decode_value(state, found),
            epoch=epoch,
            gateway_id=gateway_id,
            is_alive=bool(is_alive),
        )

    @statement(is_repeatable=False)
    async def take_session(self, db: Connection, session_id: str, epoch: int) -> bool:
        """Hold a session from now on. False, and nothing is changed, if a living gateway holds it."""
        return await db.write_counted(_TAKE, session_id, epoch, self.gateway_id, time.time()) > 0

    @transaction()
    async def release_sessions(self, db: Connection, session_ids: Iterable[str]) -> None:
        """Let the next gateway that is asked hold sessions of this one."""
        now = time.time()
        await db.write_many(_RELEASE, [(session_id, self.gateway_id, now) for session_id in sorted(session_ids)])

    @read()
    async def list_held_sessions(self, db: Connection) -> set[str]:
        """Return the ids of the sessions that this gateway holds."""
        return {row[0] for row in await db.fetch_rows(_LIST_HELD, self.gateway_id)}

    @statement()
    async def update_session(self, db: Connection, session_id: str, state: bytes, scope: str) -> None:
        """Replace the state of a session of this gateway."""
        await db.write(_UPDATE, session_id, self.gateway_id, encode_value(state), scope)

    @transaction()
    async def record_uses(self, db: Connection, session_ids: Iterable[str]) -> None:
        """Store that sessions of this gateway are in use."""
        now = time.time()
        await db.write_many(_TOUCH, [(session_id, self.gateway_id, now) for session_id in sorted(session_ids)])

    @statement()
    async def delete_session(self, db: Connection, session_id: str) -> None:
        """Delete a session of this gateway. One that another gateway has taken over stays."""
        await db.write(_DELETE, session_id, self.gateway_id)

    async def erase_caller(self, caller_id: str) -> None:
        """Delete all sessions of a caller."""
        await self.delete_sessions_of([caller_id])

    @transaction()
    async def delete_sessions_of(self, db: Connection, caller_ids: Collection[str]) -> None:
        """Delete all sessions of callers. An id that ends with a colon is that of all callers of a provider."""
        await db.write(_DELETE_OF_CALLERS, db.array(caller_ids))
        for prefix in sorted(each for each in caller_ids if each.endswith(":")):
            await db.write(_DELETE_OF_PROVIDER, prefix, len(prefix))

    @statement()
    async def open_relay(self, db: Connection, relay_id: str, gateway_id: int, request: bytes) -> None:
        """Have another gateway answer a request."""
        await db.write(_OPEN_RELAY, relay_id, gateway_id, self.gateway_id, time.time(), encode_value(request))

    @read()
    async def list_relays(self, db: Connection) -> set[str]:
        """Return the ids of the relays that wait for this gateway or that it is answering."""
        return {row[0] for row in await db.fetch_rows(_LIST_RELAYS, self.gateway_id)}

    @read()
    async def read_requests(self, db: Connection, relay_ids: Collection[str]) -> Mapping[str, bytes]:
        """Return the requests of relays."""
        rows = await db.fetch_rows(_READ_REQUESTS, db.array(relay_ids))
        return {row[0]: decode_value(row[1], row[0]) for row in rows}

    @read()
    async def list_lost_relays(self, db: Connection) -> set[str]:
        """Return the ids of the relays from and to this gateway whose other gateway is not alive."""
        return {row[0] for row in await db.fetch_rows(_LIST_LOST, self.gateway_id)}

    # Not repeatable: one that is there already breaks the primary key.
    @statement(is_repeatable=False)
    async def add_message(self, db: Connection, relay_id: str, number: int, message: bytes) -> bool:
        """Add a message of an answer. False: its relay was closed."""
        return await db.write_counted(_ADD_MESSAGE, relay_id, number, encode_value(message)) > 0

    @read()
    async def read_messages(self, db: Connection, relay_ids: Collection[str]) -> list[tuple[str, int, bytes]]:
        """Return the first messages of relays with their numbers, in their order."""
        rows = await db.fetch_rows(_READ_MESSAGES, db.array(relay_ids))
        return [(relay_id, number, decode_value(message, relay_id)) for relay_id, number, message in rows]

    @transaction()
    async def delete_messages(self, db: Connection, read_until: Mapping[str, int]) -> None:
        """Delete messages that were read, by relay the number of the last one."""
        await db.write_many(_DELETE_MESSAGES, sorted(read_until.items()))

    @transaction()
    async def close_relay(self, db: Connection, relay_id: str) -> None:
        """Delete a relay with its messages."""
        # A message that is added at this moment is deleted with what is old.
        await db.write(_DELETE_RELAY, relay_id)
        await db.write(_DELETE_ALL_MESSAGES, relay_id)

    @transaction()
    async def delete_old(self, db: Connection) -> None:
        """Delete sessions that have expired, and what gateways that died have left of relays."""
        await db.write(_DELETE_OLD, time.time() - 2 * SESSION_SECONDS)
        await db.write(_DELETE_OLD_RELAYS, time.time() - _RELAY_SECONDS)
        await db.write(_DELETE_ORPHAN_MESSAGES)
