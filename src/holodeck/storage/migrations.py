"""The database schema as a sequence of migrations, shared by SQLite and PostgreSQL.

The version of a database is the number of migrations that were applied to it. A released migration is never changed;
a change of the schema is a new migration at the end.
"""

from __future__ import annotations

from holodeck.lib.errors import StorageError

# Both databases accept these statements, except for the name of the type of bytes: see `for_postgres`.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE responses (
            id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, status TEXT NOT NULL,
            previous_id TEXT, conversation_id TEXT, resource BLOB NOT NULL, input_items BLOB NOT NULL,
            items BLOB NOT NULL, pending BLOB NOT NULL, events BLOB NOT NULL)""",
        "CREATE INDEX responses_by_age ON responses (created_at)",
        "CREATE INDEX responses_unfinished ON responses (status) WHERE status IN ('queued', 'in_progress')",
        """CREATE TABLE conversations (
            id TEXT PRIMARY KEY, owner TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, metadata BLOB NOT NULL)""",
        """CREATE TABLE conversation_items (
            conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            position BIGINT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL,
            PRIMARY KEY (conversation_id, position), UNIQUE (conversation_id, id))""",
    ),
    # The id of the gateway that runs the response, where several gateways share a database.
    ("ALTER TABLE responses ADD COLUMN keeper BIGINT",),
    (
        "ALTER TABLE responses ADD COLUMN cancel_asked BOOLEAN NOT NULL DEFAULT FALSE",
        """CREATE INDEX responses_to_cancel ON responses (keeper)
            WHERE cancel_asked AND status IN ('queued', 'in_progress')""",
        # A covering index for frequent queries about unfinished responses: in a row of SQLite, `keeper` comes after
        # the bytes, so reading it from the row means reading all of them.
        "DROP INDEX responses_unfinished",
        """CREATE INDEX responses_unfinished ON responses (status, id, keeper)
            WHERE status IN ('queued', 'in_progress')""",
        # Chunks of the streams of unfinished responses; a finished one has its whole stream in `responses.events`.
        """CREATE TABLE response_events (
            response_id TEXT NOT NULL, first BIGINT NOT NULL, count BIGINT NOT NULL, events BLOB NOT NULL,
            PRIMARY KEY (response_id, first))""",
    ),
    # A request may refer to an item by its id alone.
    ("CREATE INDEX conversation_items_by_id ON conversation_items (id)",),
    (
        # Pending calls, as JSON.
        "ALTER TABLE conversations ADD COLUMN waiting BLOB DEFAULT NULL",
        # The lease: the id of the response that holds it, and of the gateway that runs that response.
        "ALTER TABLE conversations ADD COLUMN taken_by TEXT",
        "ALTER TABLE conversations ADD COLUMN keeper BIGINT",
    ),
    (
        # Pending calls. `taken_by` is the response that has claimed one, `digest` that of the call.
        """CREATE TABLE waiting_calls (
            owner TEXT NOT NULL, id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            digest BLOB DEFAULT NULL, taken_by TEXT, PRIMARY KEY (owner, id))""",
        # Paused responses by the calls of the client's tools in them: a client that sends the whole conversation
        # again names the call, and nothing else of the turn.
        """CREATE TABLE paused_turns (
            owner TEXT NOT NULL, call_id TEXT NOT NULL, response_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (owner, call_id, response_id))""",
    ),
    (
        # Finds the latest responses of a caller, and also old responses, which the index by age was for.
        "CREATE INDEX responses_by_owner ON responses (owner, created_at)",
        "DROP INDEX responses_by_age",
    ),
    (
        # The position in the queue.
        "ALTER TABLE responses ADD COLUMN turn BIGINT",
        "DROP INDEX responses_unfinished",
        """CREATE INDEX responses_unfinished ON responses (status, turn, id, keeper)
            WHERE status IN ('queued', 'in_progress')""",
        # Counts the unfinished responses of a caller, for its quota.
        """CREATE INDEX responses_unfinished_of ON responses (owner, turn, id, status)
            WHERE status IN ('queued', 'in_progress')""",
    ),
)


def migrations_after(version: int) -> tuple[tuple[str, ...], ...]:
    """The migrations that a database of this version lacks. Raises `StorageError` for a newer version than ours."""
    if version > len(MIGRATIONS):
        raise StorageError(
            f"The database was made by a newer HoloDeck (version {version}; this one knows {len(MIGRATIONS)}). "
            "Update HoloDeck, or use another database."
        )
    return MIGRATIONS[version:]


def for_postgres(statement: str) -> str:
    """A statement of a migration in the dialect of PostgreSQL."""
    return statement.replace(" BLOB ", " BYTEA ")
