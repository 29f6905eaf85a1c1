"""Sessions of persons that have logged in to the gateway, shared by all gateways of a database.

A session is found by the hash of its secret, which is the cookie of a browser or the access token of a program. The
database has no secret in it. What may be used once, as the state of a login, leaves its hash here until it expires.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Literal

from holodeck.lib.record import record
from holodeck.storage.jobs import Connection, Row, Storing, decode_value, encode_value, read, statement

SessionKind = Literal["console", "program"]
"""Of a browser at the console, or of a program that a person has let in."""


@record
class StoredSession:
    """A session in the store."""

    id: str
    """Names it in lists. It is no secret."""
    kind: SessionKind
    caller_id: str
    issuer: str
    """The identity provider that has named the person."""
    about: str
    """The browser or the program, in its own words."""
    created_at: float
    expires_at: float
    secret_hash: str
    secret_expires_at: float
    """When the secret has to be renewed, not later than the session expires."""
    claims: bytes
    """What the identity provider has said of the person, as JSON."""
    resource: str = ""
    """The path of the gateway that the secret is for, and all below it. Empty: everything."""
    renewal_hash: str = ""
    """Of the text that renews the secret; empty where there is none."""


_COLUMNS = (
    "id, kind, caller_id, issuer, about, created_at, expires_at, secret_hash, secret_expires_at, resource, "
    "renewal_hash, claims"
)
_ADD = f"INSERT INTO person_sessions ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"  # noqa: S608
_FIND = f"SELECT {_COLUMNS} FROM person_sessions WHERE secret_hash = $1 AND secret_expires_at > $2"  # noqa: S608
_FIND_CURRENT = "SELECT id, secret_hash FROM person_sessions WHERE id = ANY($1) AND expires_at > $2"
_LIST = f"""
SELECT {_COLUMNS} FROM person_sessions WHERE caller_id = $1 AND expires_at > $2
ORDER BY created_at DESC, id LIMIT $3"""  # noqa: S608
_GET = f"SELECT {_COLUMNS} FROM person_sessions WHERE id = $1 AND expires_at > $2"  # noqa: S608
_RENEW = """
UPDATE person_sessions SET secret_hash = $3, secret_expires_at = $4, renewal_hash = $5
WHERE id = $1 AND renewal_hash = $2"""
_END = "DELETE FROM person_sessions WHERE id = $1 AND caller_id = $2"
_END_ALL = "DELETE FROM person_sessions WHERE caller_id = $1"
_USE_ONCE = "INSERT INTO used_values (hash, expires_at) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING"
_DELETE_EXPIRED = "DELETE FROM person_sessions WHERE expires_at < $1"
_DELETE_USED = "DELETE FROM used_values WHERE expires_at < $1"


class PersonSessionStore(Storing):
    """Stores sessions of persons."""

    # Not repeatable: the second attempt would fail on the id of the first.
    @statement(is_repeatable=False)
    async def add_session(self, db: Connection, session: StoredSession) -> None:
        await db.write(
            _ADD,
            session.id,
            session.kind,
            session.caller_id,
            session.issuer,
            session.about,
            session.created_at,
            session.expires_at,
            session.secret_hash,
            session.secret_expires_at,
            session.resource,
            session.renewal_hash,
            encode_value(session.claims),
        )

    @read()
    async def find_session(self, db: Connection, secret_hash: str) -> StoredSession | None:
        """Return the session of a secret that has not expired."""
        row = await db.fetch_row(_FIND, secret_hash, time.time())
        return None if row is None else _session_of(row)

    @read()
    async def find_current(self, db: Connection, ids: Collection[str]) -> Mapping[str, str]:
        """Return the hashes of the secrets of those of these sessions that have not ended, by id."""
        return {row[0]: row[1] for row in await db.fetch_rows(_FIND_CURRENT, db.array(ids), time.time())}

    @read()
    async def list_sessions(self, db: Connection, caller_id: str, limit: int) -> list[StoredSession]:
        """Return the sessions of a person, the newest first."""
        return [_session_of(row) for row in await db.fetch_rows(_LIST, caller_id, time.time(), limit)]

    @read()
    async def get_session(self, db: Connection, session_id: str) -> StoredSession | None:
        row = await db.fetch_row(_GET, session_id, time.time())
        return None if row is None else _session_of(row)

    # Not repeatable: the second attempt would find the renewal used.
    @statement(is_repeatable=False)
    async def renew_secret(
        self, db: Connection, session_id: str, renewal_hash: str, secret_hash: str, expires_at: float, next_hash: str
    ) -> bool:
        """Replace the secret of a session, once for each renewal. False: it was used, or the session has ended."""
        return await db.write_counted(_RENEW, session_id, renewal_hash, secret_hash, expires_at, next_hash) > 0

    # Not repeatable: the second attempt would find it ended, and say that there was none.
    @statement(is_repeatable=False)
    async def end_session(self, db: Connection, session_id: str, caller_id: str) -> bool:
        """End a session of a person. False: there is none of this id."""
        return await db.write_counted(_END, session_id, caller_id) > 0

    async def erase_caller(self, caller_id: str) -> None:
        """Delete all sessions of a caller, which end by that."""
        await self.end_all_sessions(caller_id)

    @statement()
    async def end_all_sessions(self, db: Connection, caller_id: str) -> None:
        """End all sessions of a person. Idempotent."""
        await db.write(_END_ALL, caller_id)

    # Not repeatable: the second attempt would find the value used.
    @statement(is_repeatable=False)
    async def use_once(self, db: Connection, value_hash: str, expires_at: float) -> bool:
        """Store that a value was used, until it would be refused as expired. False: it was used before."""
        return await db.write_counted(_USE_ONCE, value_hash, expires_at) > 0

    @statement()
    async def delete_expired_sessions(self, db: Connection) -> None:
        await db.write(_DELETE_EXPIRED, time.time())

    @statement()
    async def delete_used_values(self, db: Connection) -> None:
        """Delete the traces of values that have expired."""
        await db.write(_DELETE_USED, time.time())


def _session_of(row: Row) -> StoredSession:
    session_id, kind, caller_id, issuer, about, created_at, expires_at, secret_hash, secret_expires_at = row[:9]
    resource, renewal_hash, claims = row[9:]
    return StoredSession(
        id=session_id,
        kind=kind,
        caller_id=caller_id,
        issuer=issuer,
        about=about,
        created_at=created_at,
        expires_at=expires_at,
        secret_hash=secret_hash,
        secret_expires_at=secret_expires_at,
        resource=resource,
        renewal_hash=renewal_hash,
        claims=decode_value(claims, session_id),
    )
