"""The database schema as a sequence of migrations, shared by SQLite and PostgreSQL.

The version of a database is the number of migrations that were applied to it. A released migration is never changed;
a change of the schema is a new migration at the end. The statements are PostgreSQL's, as those of jobs are.
"""

from __future__ import annotations

from holodeck.lib.errors import StorageError

# The durations of usage. Not taken from `usage`: a migration stays as it is when that changes.
_DURATIONS = ", ".join(
    f"{name}_{bucket} BIGINT NOT NULL" for name in ("seconds", "first_token") for bucket in range(21)
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # `gateway_id`: the gateway that runs an unfinished response, where several gateways share a database.
        # `queue_position`: see `unfinished.RESERVED`. `trace`: when each step began and how long it took; JSON.
        # In a row of SQLite, a column behind bytes is read through all of them: the bytes are last.
        """CREATE TABLE responses (
            id TEXT PRIMARY KEY, caller_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, status TEXT NOT NULL,
            previous_id TEXT, conversation_id TEXT, gateway_id BIGINT, queue_position BIGINT,
            cancel_requested BOOLEAN NOT NULL DEFAULT FALSE, resource BYTEA NOT NULL, input_items BYTEA NOT NULL,
            items BYTEA NOT NULL, pending BYTEA NOT NULL, events BYTEA NOT NULL, trace BYTEA)""",
        # Finds the latest responses of a caller, and also old responses.
        "CREATE INDEX responses_by_caller ON responses (caller_id, created_at)",
        # Covers the frequent queries about unfinished responses.
        """CREATE INDEX responses_unfinished ON responses (status, queue_position, id, gateway_id)
            WHERE status IN ('queued', 'in_progress')""",
        # Counts the unfinished responses of a caller, for its quota.
        """CREATE INDEX responses_unfinished_of ON responses (caller_id, queue_position, id, status)
            WHERE status IN ('queued', 'in_progress')""",
        """CREATE INDEX responses_to_cancel ON responses (gateway_id)
            WHERE cancel_requested AND status IN ('queued', 'in_progress')""",
        # Chunks of the streams of unfinished responses; a finished one has its whole stream in `responses.events`.
        """CREATE TABLE response_events (
            response_id TEXT NOT NULL, first BIGINT NOT NULL, count BIGINT NOT NULL, events BYTEA NOT NULL,
            PRIMARY KEY (response_id, first))""",
        # `pending_calls`: JSON. The lease: the id of the response that holds it, and of the gateway of that response.
        """CREATE TABLE conversations (
            id TEXT PRIMARY KEY, caller_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, metadata BYTEA NOT NULL,
            pending_calls BYTEA, leased_by TEXT, gateway_id BIGINT)""",
        # A page of the conversations of a caller, in the order of their creation.
        "CREATE INDEX conversations_by_caller ON conversations (caller_id, created_at, id)",
        """CREATE TABLE conversation_items (
            conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            position BIGINT NOT NULL, id TEXT NOT NULL, data BYTEA NOT NULL,
            PRIMARY KEY (conversation_id, position), UNIQUE (conversation_id, id))""",
        # A request may refer to an item by its id alone.
        "CREATE INDEX conversation_items_by_id ON conversation_items (id)",
        # `claimed_by` is the response that has claimed a call, `digest` that of the call. `gateway_id`: the gateway of
        # a claim that ends with it, because no call was started.
        """CREATE TABLE pending_calls (
            caller_id TEXT NOT NULL, id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
            digest BYTEA, claimed_by TEXT, gateway_id BIGINT, PRIMARY KEY (caller_id, id))""",
        # Paused responses by the calls of the client's tools in them: a client that sends the whole conversation
        # again names the call, and nothing else of the turn.
        """CREATE TABLE paused_responses (
            caller_id TEXT NOT NULL, call_id TEXT NOT NULL, response_id TEXT NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (caller_id, call_id, response_id))""",
        # The index of runs: what lists of responses show and filter by, apart from their bytes. `servers` and `tools`
        # are names, each between two line breaks.
        # A run is found by its id through its response: one more index of random ids would cost as much as the table.
        """CREATE TABLE runs (
            id TEXT NOT NULL, caller_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, status TEXT NOT NULL,
            model TEXT NOT NULL, servers TEXT NOT NULL, tools TEXT NOT NULL, question TEXT NOT NULL,
            answer TEXT NOT NULL, details BYTEA NOT NULL, PRIMARY KEY (caller_id, created_at, id))""",
        "CREATE INDEX runs_by_age ON runs (created_at, id)",
        # Few runs are not completed, so this index costs little, and finds the failed ones among millions.
        """CREATE INDEX runs_not_completed ON runs (status, created_at, id, caller_id) WHERE status <> 'completed'""",
        # Usage by period, caller, model, server, tool and status. Durations are counted in buckets with fixed bounds,
        # so that rows can be added up.
        f"""CREATE TABLE usage_counts (
            period BIGINT NOT NULL, start BIGINT NOT NULL, caller_id TEXT NOT NULL, model TEXT NOT NULL,
            server TEXT NOT NULL, tool TEXT NOT NULL, status TEXT NOT NULL,
            requests BIGINT NOT NULL, errors BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
            cached_tokens BIGINT NOT NULL, cache_write_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,
            reasoning_tokens BIGINT NOT NULL, tool_calls BIGINT NOT NULL, priced BIGINT NOT NULL,
            cost DOUBLE PRECISION NOT NULL, {_DURATIONS},
            PRIMARY KEY (period, start, caller_id, model, server, tool, status))""",
        # The last batch that each gateway process has added to the counts.
        """CREATE TABLE usage_batches (
            source TEXT PRIMARY KEY, number BIGINT NOT NULL, stored_at DOUBLE PRECISION NOT NULL)""",
        # The cost of a caller's model turns by the hour, for budgets, with the gateway process that has counted it:
        # each stores the sums of its own.
        """CREATE TABLE spending (
            caller_id TEXT NOT NULL, start BIGINT NOT NULL, source TEXT NOT NULL, amount DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (caller_id, start, source))""",
        # Questions of MCP servers, while a gateway waits for their answers. Both texts are JSON.
        """CREATE TABLE elicitations (
            id TEXT PRIMARY KEY, response_id TEXT NOT NULL, caller_id TEXT NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION NOT NULL,
            question BYTEA NOT NULL, answer BYTEA, gateway_id BIGINT NOT NULL)""",
        "CREATE INDEX elicitations_by_response ON elicitations (response_id)",
        # Keys by which clients repeat a request, with the digest of its body and its response.
        """CREATE TABLE idempotency_keys (
            caller_id TEXT NOT NULL, key TEXT NOT NULL, digest BYTEA NOT NULL, response_id TEXT NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (caller_id, key))""",
        # The last line of each audit log, by the path of its file: a file whose end was cut off shows by it.
        "CREATE TABLE audit_ends (file TEXT PRIMARY KEY, seq BIGINT NOT NULL, hash TEXT NOT NULL)",
        # One row, which is written to find out whether anything can be.
        "CREATE TABLE probes (id BIGINT PRIMARY KEY, data BYTEA NOT NULL)",
        # One row: the number of the last commit that a file beside a SQLite database knows as well.
        "CREATE TABLE tail (id BIGINT PRIMARY KEY, number BIGINT NOT NULL)",
    ),
    (
        # Tokens that were estimated, since the answer was cut before the provider told them.
        "ALTER TABLE usage_counts ADD COLUMN estimated_tokens BIGINT NOT NULL DEFAULT 0",
        # Keys of callers that are made over HTTP. `entry`: JSON; NULL: the key is revoked. See `caller_keys`.
        """CREATE TABLE caller_keys (
            name TEXT PRIMARY KEY, change_number BIGINT NOT NULL, made_at DOUBLE PRECISION NOT NULL,
            made_by TEXT NOT NULL, changed_at DOUBLE PRECISION NOT NULL, entry BYTEA)""",
        "CREATE INDEX caller_keys_by_change ON caller_keys (change_number)",
        # One row: the number of the last change of a key.
        "CREATE TABLE caller_key_changes (id BIGINT PRIMARY KEY, number BIGINT NOT NULL)",
        # When callers were last seen.
        "CREATE TABLE caller_uses (caller_id TEXT PRIMARY KEY, used_at DOUBLE PRECISION NOT NULL)",
    ),
    (
        # Callers that are paused, and those whose data is erased. See `caller_states`.
        """CREATE TABLE caller_states (
            caller_id TEXT PRIMARY KEY, change_number BIGINT NOT NULL, is_paused BOOLEAN NOT NULL,
            is_erasing BOOLEAN NOT NULL, erased_at DOUBLE PRECISION, changed_at DOUBLE PRECISION NOT NULL,
            changed_by TEXT NOT NULL)""",
        # The number of the last change up to which each gateway has erased what it had.
        "CREATE TABLE caller_state_readers (gateway_id BIGINT PRIMARY KEY, number BIGINT NOT NULL)",
        # Logins at MCP servers; see `server_logins`. `record`: sealed; NULL: none. `claim`: of the renewal under way.
        """CREATE TABLE server_logins (
            caller_id TEXT NOT NULL, key TEXT NOT NULL, record BYTEA, claim TEXT, claimed_until DOUBLE PRECISION,
            gateway_id BIGINT, PRIMARY KEY (caller_id, key))""",
        # Logins that wait for a person, or have ended lately. `content` and `result` are sealed.
        """CREATE TABLE login_flows (
            caller_id TEXT NOT NULL, server TEXT NOT NULL, id TEXT NOT NULL, started_by TEXT NOT NULL,
            status TEXT NOT NULL, expires_at DOUBLE PRECISION NOT NULL, gateway_id BIGINT NOT NULL,
            link_digest TEXT, browser_digest TEXT, state_digest TEXT, content BYTEA NOT NULL, result BYTEA,
            PRIMARY KEY (caller_id, server))""",
        "CREATE UNIQUE INDEX login_flows_by_state ON login_flows (state_digest) WHERE state_digest IS NOT NULL",
        "CREATE UNIQUE INDEX login_flows_by_link ON login_flows (link_digest) WHERE link_digest IS NOT NULL",
        # Logins of persons at the gateway. `secret_hash`: of the cookie, or of the token of a program for `resource`,
        # which the text with `renewal_hash` renews. `claims`: JSON.
        """CREATE TABLE person_sessions (
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, caller_id TEXT NOT NULL, issuer TEXT NOT NULL, about TEXT NOT NULL,
            created_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION NOT NULL, secret_hash TEXT NOT NULL,
            secret_expires_at DOUBLE PRECISION NOT NULL, resource TEXT NOT NULL, renewal_hash TEXT NOT NULL,
            claims BYTEA NOT NULL)""",
        "CREATE UNIQUE INDEX person_sessions_by_secret ON person_sessions (secret_hash)",
        "CREATE INDEX person_sessions_by_caller ON person_sessions (caller_id, created_at)",
        # Hashes of what is accepted once, such as the state of a login, until it would be refused as expired.
        "CREATE TABLE used_values (hash TEXT PRIMARY KEY, expires_at DOUBLE PRECISION NOT NULL)",
        # Sessions of MCP clients, and what gateways send each other about them: see `mcp_sessions`. `gateway_id`: the
        # gateway that holds a session, or that answers a relay.
        """CREATE TABLE mcp_sessions (
            id TEXT PRIMARY KEY, caller_id TEXT NOT NULL, server TEXT NOT NULL, scope TEXT NOT NULL,
            epoch BIGINT NOT NULL, gateway_id BIGINT, used_at DOUBLE PRECISION NOT NULL, state BYTEA NOT NULL)""",
        "CREATE INDEX mcp_sessions_by_caller ON mcp_sessions (caller_id)",
        "CREATE INDEX mcp_sessions_by_gateway ON mcp_sessions (gateway_id)",
        """CREATE TABLE mcp_relays (
            id TEXT PRIMARY KEY, gateway_id BIGINT NOT NULL, sender_id BIGINT NOT NULL,
            sent_at DOUBLE PRECISION NOT NULL, request BYTEA NOT NULL)""",
        "CREATE INDEX mcp_relays_by_gateway ON mcp_relays (gateway_id)",
        """CREATE TABLE mcp_relay_messages (
            relay_id TEXT NOT NULL, number BIGINT NOT NULL, message BYTEA NOT NULL, PRIMARY KEY (relay_id, number))""",
    ),
)


def migrations_after(version: int) -> tuple[tuple[str, ...], ...]:
    """Return the migrations that a database of this version lacks. Raises `StorageError` for a newer one than ours."""
    if version > len(MIGRATIONS):
        raise StorageError(
            f"The database was made by a newer HoloDeck (version {version}; this one knows {len(MIGRATIONS)}). "
            "Update HoloDeck, or use another database."
        )
    return MIGRATIONS[version:]
