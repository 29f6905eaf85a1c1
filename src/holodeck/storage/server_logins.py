"""Logins at MCP servers, shared by all gateways of a database: their tokens, and logins that wait for a person.

A record belongs to one caller, or to the operator for all callers (the caller id ''), and to one server and client
(its key). It is written only under a claim, which one gateway has at a time: the one that renews the tokens for all. A
claim ends with its gateway, or after `CLAIM_SECONDS`. What is deleted under a claim stays deleted: the save finds no
row.

A flow is one login: there is one of a caller and a server at a time, and a new one replaces it. The gateway that runs
it waits for its result, which the gateway stores that the browser comes back to. All content is sealed by the gateway;
what a browser shows is found by a digest.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Literal, cast

from holodeck.lib.limits import DAY
from holodeck.lib.record import record
from holodeck.storage.jobs import (
    Connection,
    Row,
    Storing,
    decode_optional,
    decode_value,
    encode_value,
    read,
    statement,
    transaction,
)

# Longer than a request to an authorization server may take, with the writing of its answer.
CLAIM_SECONDS = 60.0
# Seconds for which it is known what a login came to.
_ENDED_SECONDS = DAY

FlowStatus = Literal["linked", "waiting", "completed", "failed"]
"""`linked`: a link is shown, which was not followed."""


@record
class StoredFlow:
    """One login."""

    id: str
    caller_id: str
    """Whose login it is; '': that of all callers."""
    server: str
    started_by: str
    """The id of the caller that has started it."""
    status: FlowStatus
    expires_at: float
    content: bytes
    browser_digest: str | None = None
    """Of the cookie of the one browser that goes through it. None: any browser may."""
    is_alive: bool = True
    """Whether the gateway that runs it is alive."""


_READ = "SELECT record FROM server_logins WHERE caller_id = $1 AND key = $2"
_ADD = "INSERT INTO server_logins (caller_id, key) VALUES ($1, $2) ON CONFLICT (caller_id, key) DO NOTHING"
_CLAIM = """
UPDATE server_logins SET claim = $3, claimed_until = $4, gateway_id = $5
WHERE caller_id = $1 AND key = $2 AND (claim IS NULL OR claim = $3 OR claimed_until < $6 OR NOT is_alive(gateway_id))"""
_SAVE = "UPDATE server_logins SET record = $4 WHERE caller_id = $1 AND key = $2 AND claim = $3"
_FREE = "UPDATE server_logins SET claim = NULL WHERE caller_id = $1 AND key = $2 AND claim = $3"
_DELETE = "DELETE FROM server_logins WHERE caller_id = $1 AND key = $2"
_READ_OWNERS = "SELECT DISTINCT caller_id FROM server_logins WHERE caller_id = ANY($1)"
_DELETE_OF = (
    "DELETE FROM server_logins WHERE caller_id = ANY($1)",
    "DELETE FROM login_flows WHERE caller_id = ANY($1)",
)

_COLUMNS = "id, caller_id, server, started_by, status, expires_at, content, browser_digest"
_SELECT = f"SELECT {_COLUMNS}, CASE WHEN is_alive(gateway_id) THEN 1 ELSE 0 END FROM login_flows"  # noqa: S608
_START = f"""
INSERT INTO login_flows ({_COLUMNS}, gateway_id, link_digest) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (caller_id, server) DO UPDATE SET id = excluded.id, started_by = excluded.started_by,
    status = excluded.status, expires_at = excluded.expires_at, content = excluded.content,
    browser_digest = excluded.browser_digest, gateway_id = excluded.gateway_id, link_digest = excluded.link_digest,
    state_digest = NULL, result = NULL"""  # noqa: S608
_IS_OF = "caller_id = $1 AND server = $2 AND id = $3"
_FOLLOW_LINK = f"""
UPDATE login_flows SET status = 'waiting', browser_digest = $4, gateway_id = $5
WHERE {_IS_OF} AND status = 'linked' AND expires_at > $6"""  # noqa: S608
_SHOW = f"""
UPDATE login_flows SET state_digest = $4, content = $5, expires_at = $6
WHERE {_IS_OF} AND status = 'waiting'"""  # noqa: S608
_ACCEPT = f"""
UPDATE login_flows SET result = $4
WHERE {_IS_OF} AND status = 'waiting' AND state_digest = $5 AND result IS NULL AND expires_at > $6"""  # noqa: S608
_READ_RESULT = f"SELECT status, result FROM login_flows WHERE {_IS_OF}"  # noqa: S608
# The state is used up, and the code with the result.
_END = f"""
UPDATE login_flows SET status = $4, content = $5, state_digest = NULL, link_digest = NULL, result = NULL
WHERE {_IS_OF} AND status IN ('linked', 'waiting')"""  # noqa: S608
DELETE_OLD_FLOWS = "DELETE FROM login_flows WHERE expires_at < $1"


def oldest_flow_time() -> float:
    """Return the time before which flows are deleted."""
    return time.time() - _ENDED_SECONDS


class ServerLoginStore(Storing):
    """Stores logins at MCP servers."""

    @read()
    async def read_login(self, db: Connection, caller_id: str, key: str) -> bytes | None:
        row = await db.fetch_row(_READ, caller_id, key)
        return None if row is None else decode_optional(row[0], "a login")

    @transaction()
    async def claim_login(self, db: Connection, caller_id: str, key: str, claim: str) -> bool:
        """Claim a login, which may not exist yet. False: another claim is in force."""
        now = time.time()
        await db.write(_ADD, caller_id, key)
        values = (caller_id, key, claim, now + CLAIM_SECONDS, self.gateway_id, now)
        return await db.write_counted(_CLAIM, *values) > 0

    @statement()
    async def save_login(self, db: Connection, caller_id: str, key: str, claim: str, content: bytes) -> bool:
        """Store a record. False, and nothing is changed, if the claim is not in force, or the login was deleted."""
        return await db.write_counted(_SAVE, caller_id, key, claim, encode_value(content)) > 0

    @statement()
    async def free_login(self, db: Connection, caller_id: str, key: str, claim: str) -> None:
        """End a claim."""
        await db.write(_FREE, caller_id, key, claim)

    @statement()
    async def delete_login(self, db: Connection, caller_id: str, key: str) -> bool:
        """Delete a login, also while it is renewed. False: there is none."""
        return await db.write_counted(_DELETE, caller_id, key) > 0

    async def erase_caller(self, caller_id: str) -> None:
        """Delete all logins of a caller, and those that wait."""
        await self.delete_logins_of([caller_id])

    @transaction()
    async def delete_logins_of(self, db: Connection, caller_ids: Collection[str]) -> list[str]:
        """Delete all logins of callers, and those that wait. Returns which of the callers had a login."""
        found = await db.fetch_rows(_READ_OWNERS, db.array(caller_ids))
        for sql in _DELETE_OF:
            await db.write(sql, db.array(caller_ids))
        return [row[0] for row in found]

    @statement()
    async def start_flow(self, db: Connection, flow: StoredFlow, link_digest: str | None = None) -> None:
        """Store a login that this gateway runs, or the link of one, in place of the one before."""
        values = (flow.id, flow.caller_id, flow.server, flow.started_by, flow.status, flow.expires_at)
        content = encode_value(flow.content)
        await db.write(_START, *values, content, flow.browser_digest, self.gateway_id, link_digest)

    @read()
    async def find_flow(self, db: Connection, caller_id: str, server: str) -> StoredFlow | None:
        """Return the latest login of a caller at a server."""
        row = await db.fetch_row(f"{_SELECT} WHERE caller_id = $1 AND server = $2", caller_id, server)
        return None if row is None else _flow_of(row)

    @read()
    async def find_flow_by_state(self, db: Connection, state_digest: str) -> StoredFlow | None:
        row = await db.fetch_row(f"{_SELECT} WHERE state_digest = $1", state_digest)
        return None if row is None else _flow_of(row)

    @read()
    async def find_flow_by_link(self, db: Connection, link_digest: str) -> StoredFlow | None:
        row = await db.fetch_row(f"{_SELECT} WHERE link_digest = $1", link_digest)
        return None if row is None else _flow_of(row)

    # Not repeatable: the second attempt would take the first for another browser.
    @statement(is_repeatable=False)
    async def follow_link(self, db: Connection, flow: StoredFlow, browser_digest: str) -> bool:
        """Bind a login to the browser that follows its link, and to this gateway. False: another one has."""
        values = (*_id_of(flow), browser_digest, self.gateway_id, time.time())
        return await db.write_counted(_FOLLOW_LINK, *values) > 0

    @statement()
    async def show_flow(self, db: Connection, flow: StoredFlow, state_digest: str) -> bool:
        """Accept a result with this state from now on. False: the login was replaced or cancelled."""
        values = (*_id_of(flow), state_digest, encode_value(flow.content), flow.expires_at)
        return await db.write_counted(_SHOW, *values) > 0

    # Not repeatable: the second attempt would take the first for another browser.
    @statement(is_repeatable=False)
    async def accept_result(self, db: Connection, flow: StoredFlow, state_digest: str, result: bytes) -> bool:
        """Store what the browser came back with, once. False, and nothing is changed, if the login does not wait."""
        values = (*_id_of(flow), encode_value(result), state_digest, time.time())
        return await db.write_counted(_ACCEPT, *values) > 0

    @read()
    async def read_result(self, db: Connection, flow: StoredFlow) -> tuple[FlowStatus | None, bytes | None]:
        """Return the status of a login, None if another one has replaced it, and its result, None until it is there."""
        row = await db.fetch_row(_READ_RESULT, *_id_of(flow))
        return (None, None) if row is None else (row[0], decode_optional(row[1], flow.id))

    @statement()
    async def end_flow(self, db: Connection, flow: StoredFlow, status: FlowStatus, content: bytes) -> bool:
        """Store what a login came to. False, and nothing is changed, if it was over or replaced."""
        return await db.write_counted(_END, *_id_of(flow), status, encode_value(content)) > 0


def _id_of(flow: StoredFlow) -> tuple[str, str, str]:
    return flow.caller_id, flow.server, flow.id


def _flow_of(row: Row) -> StoredFlow:
    flow_id, caller_id, server, started_by, status, expires_at, content, browser_digest, is_alive = row
    return StoredFlow(
        id=flow_id,
        caller_id=caller_id,
        server=server,
        started_by=started_by,
        status=cast(FlowStatus, status),
        expires_at=expires_at,
        content=decode_value(content, flow_id),
        browser_digest=browser_digest,
        is_alive=bool(is_alive),
    )
