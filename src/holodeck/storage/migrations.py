"""The tables, in numbered steps. A step is never changed once it is released; a new one is added."""

from __future__ import annotations

from holodeck.lib.errors import StorageError

# What SQLite and PostgreSQL both read, except for the name of the type of bytes: see `for_postgres`.
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
    ("ALTER TABLE responses ADD COLUMN keeper BIGINT",),  # the gateway that makes it, where several share a database
    (
        "ALTER TABLE responses ADD COLUMN cancel_asked BOOLEAN NOT NULL DEFAULT FALSE",
        """CREATE INDEX responses_to_cancel ON responses (keeper)
            WHERE cancel_asked AND status IN ('queued', 'in_progress')""",
        # With all that is often asked of those in the making: SQLite keeps `keeper` behind the bytes of a row.
        "DROP INDEX responses_unfinished",
        """CREATE INDEX responses_unfinished ON responses (status, id, keeper)
            WHERE status IN ('queued', 'in_progress')""",
        # Chunks of streams in the making; a finished response has its whole stream in `responses.events`.
        """CREATE TABLE response_events (
            response_id TEXT NOT NULL, first BIGINT NOT NULL, count BIGINT NOT NULL, events BLOB NOT NULL,
            PRIMARY KEY (response_id, first))""",
    ),
    ("CREATE INDEX conversation_items_by_id ON conversation_items (id)",),  # a request may refer to one by its id alone
    (
        "ALTER TABLE conversations ADD COLUMN waiting BLOB DEFAULT NULL",  # calls that nobody has run yet
        "ALTER TABLE conversations ADD COLUMN taken_by TEXT",  # the response that goes on with them
        "ALTER TABLE conversations ADD COLUMN keeper BIGINT",  # the gateway that makes that one
    ),
    (
        # Calls that wait for a person or a client, and who has gone on with each. `digest` is of what was asked.
        """CREATE TABLE waiting_calls (
            owner TEXT NOT NULL, id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            digest BLOB DEFAULT NULL, taken_by TEXT, PRIMARY KEY (owner, id))""",
        # By the client's own calls in it: a client that sends everything again names nothing else of the turn.
        """CREATE TABLE paused_turns (
            owner TEXT NOT NULL, call_id TEXT NOT NULL, response_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (owner, call_id, response_id))""",
    ),
    (
        "CREATE INDEX responses_by_owner ON responses (owner, created_at)",  # a caller's latest, among those of many
        "DROP INDEX responses_by_age",  # what is old is found in it, too
    ),
    (
        "ALTER TABLE responses ADD COLUMN turn BIGINT",  # among those that wait for room: callers take turns
        "DROP INDEX responses_unfinished",
        """CREATE INDEX responses_unfinished ON responses (status, turn, id, keeper)
            WHERE status IN ('queued', 'in_progress')""",
        """CREATE INDEX responses_unfinished_of ON responses (owner, turn, id, status)
            WHERE status IN ('queued', 'in_progress')""",  # each caller has a limit of them
    ),
)


def migrations_after(version: int) -> tuple[tuple[str, ...], ...]:
    """The steps that a database of this version still needs. Raises for one of the future."""
    if version > len(MIGRATIONS):
        raise StorageError(
            f"The database was made by a newer HoloDeck (version {version}; this one knows {len(MIGRATIONS)}). "
            "Update HoloDeck, or use another database."
        )
    return MIGRATIONS[version:]


def for_postgres(statement: str) -> str:
    """A statement of a step as PostgreSQL says it."""
    return statement.replace(" BLOB ", " BYTEA ")
