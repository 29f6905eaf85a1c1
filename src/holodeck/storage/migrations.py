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
    (
        # When each step of the response began and how long it took; JSON.
        "ALTER TABLE responses ADD COLUMN trace BLOB DEFAULT NULL",
        # The index of runs: what lists of responses show and filter by, apart from their bytes. `servers` and `tools`
        # are names, each between two line breaks.
        # A run is found by its id through its response: one more index of random ids would cost as much as the table.
        """CREATE TABLE runs (
            id TEXT NOT NULL, owner TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, status TEXT NOT NULL,
            model TEXT NOT NULL, servers TEXT NOT NULL, tools TEXT NOT NULL, question TEXT NOT NULL,
            answer TEXT NOT NULL, details BLOB NOT NULL, PRIMARY KEY (owner, created_at, id))""",
        "CREATE INDEX runs_by_age ON runs (created_at, id)",
        # Few runs are not completed, so this index costs little, and finds the failed ones among millions.
        """CREATE INDEX runs_not_completed ON runs (status, created_at, id, owner) WHERE status <> 'completed'""",
    ),
    (
        # Usage by period, caller, model, server, tool and status. Durations are counted in buckets with fixed bounds,
        # `seconds_N` and `first_token_N`, so that rows can be added up.
        """CREATE TABLE usage_counts (
            period BIGINT NOT NULL, start BIGINT NOT NULL, owner TEXT NOT NULL, model TEXT NOT NULL,
            server TEXT NOT NULL, tool TEXT NOT NULL, status TEXT NOT NULL,
            requests BIGINT NOT NULL, errors BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
            cached_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, reasoning_tokens BIGINT NOT NULL,
            tool_calls BIGINT NOT NULL, priced BIGINT NOT NULL,
            cost DOUBLE PRECISION NOT NULL,
            seconds_0 BIGINT NOT NULL, seconds_1 BIGINT NOT NULL, seconds_2 BIGINT NOT NULL,
            seconds_3 BIGINT NOT NULL, seconds_4 BIGINT NOT NULL, seconds_5 BIGINT NOT NULL,
            seconds_6 BIGINT NOT NULL, seconds_7 BIGINT NOT NULL, seconds_8 BIGINT NOT NULL,
            seconds_9 BIGINT NOT NULL, seconds_10 BIGINT NOT NULL, seconds_11 BIGINT NOT NULL,
            seconds_12 BIGINT NOT NULL, seconds_13 BIGINT NOT NULL, seconds_14 BIGINT NOT NULL,
            seconds_15 BIGINT NOT NULL, seconds_16 BIGINT NOT NULL, seconds_17 BIGINT NOT NULL,
            seconds_18 BIGINT NOT NULL, seconds_19 BIGINT NOT NULL, seconds_20 BIGINT NOT NULL,
            first_token_0 BIGINT NOT NULL, first_token_1 BIGINT NOT NULL, first_token_2 BIGINT NOT NULL,
            first_token_3 BIGINT NOT NULL, first_token_4 BIGINT NOT NULL, first_token_5 BIGINT NOT NULL,
            first_token_6 BIGINT NOT NULL, first_token_7 BIGINT NOT NULL, first_token_8 BIGINT NOT NULL,
            first_token_9 BIGINT NOT NULL, first_token_10 BIGINT NOT NULL, first_token_11 BIGINT NOT NULL,
            first_token_12 BIGINT NOT NULL, first_token_13 BIGINT NOT NULL, first_token_14 BIGINT NOT NULL,
            first_token_15 BIGINT NOT NULL, first_token_16 BIGINT NOT NULL, first_token_17 BIGINT NOT NULL,
            first_token_18 BIGINT NOT NULL, first_token_19 BIGINT NOT NULL, first_token_20 BIGINT NOT NULL,
            PRIMARY KEY (period, start, owner, model, server, tool, status))""",
        # The cost of a caller's model turns by the hour, for budgets.
        """CREATE TABLE spending (
            owner TEXT NOT NULL, start BIGINT NOT NULL, amount DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (owner, start))""",
        # The last batch that each gateway process has added to the counts.
        """CREATE TABLE usage_batches (
            source TEXT PRIMARY KEY, number BIGINT NOT NULL, stored_at DOUBLE PRECISION NOT NULL)""",
    ),
    (
        # Questions of MCP servers, while the gateway `keeper` waits for their answers. Both texts are JSON.
        """CREATE TABLE elicitations (
            id TEXT PRIMARY KEY, response_id TEXT NOT NULL, owner TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            expires_at DOUBLE PRECISION NOT NULL, question BLOB NOT NULL, answer BLOB DEFAULT NULL,
            keeper BIGINT NOT NULL)""",
        "CREATE INDEX elicitations_by_response ON elicitations (response_id)",
    ),
    # A page of the conversations of a caller, in the order of their creation.
    ("CREATE INDEX conversations_by_owner ON conversations (owner, created_at, id)",),
    # Of the input tokens, those that providers have stored in their prompt caches.
    ("ALTER TABLE usage_counts ADD COLUMN cache_write_tokens BIGINT NOT NULL DEFAULT 0",),
    (
        # Spending with the gateway process that has counted it: each stores the sums of its own.
        "ALTER TABLE spending RENAME TO spending_of_all",
        """CREATE TABLE spending (
            owner TEXT NOT NULL, start BIGINT NOT NULL, source TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (owner, start, source))""",
        "INSERT INTO spending SELECT owner, start, '', amount FROM spending_of_all",
        "DROP TABLE spending_of_all",
    ),
    (
        # One row, which is written to find out whether anything can be.
        "CREATE TABLE probes (id BIGINT PRIMARY KEY, data BLOB NOT NULL)",
        # One row: the number of the last commit that a file beside a SQLite database knows as well.
        "CREATE TABLE tail (id BIGINT PRIMARY KEY, number BIGINT NOT NULL)",
    ),
    (
        # Keys by which clients repeat a request, with the digest of its body and its response.
        """CREATE TABLE idempotency_keys (
            owner TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, response_id TEXT NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (owner, key))""",
    ),
    # The last line of each audit log, by the path of its file: a file whose end was cut off shows by it.
    ("CREATE TABLE audit_ends (file TEXT PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL)",),
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
