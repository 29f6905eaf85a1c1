"""Limits and defaults that several modules share, each with the reason for its size.

A limit of one module is defined in that module. Times are in seconds.
"""

KIB = 1024
MIB = 1024 * KIB
HOUR = 3_600.0
DAY = 86_400.0

# Configuration files

# Levels of nesting in a YAML or JSON file. A JSON Schema in `response_format` nests perhaps 20 deep.
MAX_YAML_DEPTH = 64
# The longest timeout that can be configured, one day: a larger number is a typing error (1e9 is 31 years).
MAX_TIMEOUT = 86_400
# Bytes of a file with a key or a token.
MAX_SECRET_FILE_BYTES = 64 * KIB

# Agents

# Model turns of one run, by default and at most.
DEFAULT_MAX_TURNS = 10
MAX_MAX_TURNS = 1_000
# Tools and servers in one file: far more than a model can choose from.
MAX_TOOLS = 1_000
# Characters of a tool name: the limit of the model APIs.
MAX_TOOL_NAME_CHARS = 64
# Levels of a tool's arguments: no model that was tried handles more, and OpenAI's strict mode stops at 10.
MAX_SCHEMA_DEPTH = 16

# Text quoted in errors and in the log

# Characters of a value quoted in a message.
MAX_SHOWN_CHARS = 80
# Characters of a malformed message quoted in an error.
MAX_RAW_SHOWN = 300

# HTTP clients

# Bytes read or written at a time: large bodies pass in few chunks.
HTTP_READ_CHUNK = 256 * KIB
# Seconds that an idle connection stays open: servers close theirs after a minute or more.
HTTP_KEEPALIVE = 30.0

# MCP connections

# Seconds of silence after the first request, before the older handshake is tried as well.
PROBE_TIMEOUT = 5.0
# Seconds before an event stream is opened again, unless the server names its own time, and the most in any case.
STREAM_RETRY = 1.0
MAX_STREAM_RETRY = 30.0
# Seconds to send a message that has no answer (a cancellation, the end of a session).
NOTICE_TIMEOUT = 5.0
# Bytes read of a body that only explains an error.
MAX_HTTP_ERROR_BYTES = 64 * KIB
# Seconds that the first turn waits for a remote server to list its tools.
DISCOVERY_TIMEOUT = 15.0
# Bytes of a value that is checked against a schema: a larger one takes too long.
MAX_CHECKED_BYTES = 8 * MIB

# Models

# Seconds until the first event of a model: a reasoning model may take this long before it writes.
MODEL_FIRST_EVENT_TIMEOUT = 600.0
# Seconds between two events of a model; some reason again in the middle.
MODEL_IDLE_TIMEOUT = 300.0
# Bytes of one turn: models write at most some 128,000 tokens, which is half a megabyte.
DEFAULT_ANSWER_BYTES = 16 * MIB
# Bytes of all turns of one response.
DEFAULT_RESPONSE_BYTES = 64 * MIB
# Characters of a request that the rehearsal model searches for arguments: a longer text is a document, not a request.
MAX_REHEARSED_CHARS = 8_000
# Bytes of a model file copied or hashed at a time.
COPY_CHUNK_BYTES = 1 * MIB

# The gateway

# Bytes of the context that is read for one request: more than models accept.
DEFAULT_CONTEXT_BYTES = 64 * MIB
# Bytes of the key that seals items: as many as the cipher uses.
MIN_SEAL_KEY_BYTES = 32
# Open WebSockets, also idle ones.
DEFAULT_SOCKETS = 1_000
# Event streams on which MCP clients listen: one that is idle takes about 9 kB, and a connection.
DEFAULT_MCP_STREAMS = 4_000
# Seconds between keep-alives in a silent stream: proxies close one after 30 (Google), 60 (nginx, Amazon) or more.
DEFAULT_SILENT_SECONDS = 10.0
# Seconds for the headers of a request, and between two chunks of its body, also from a slow phone.
DEFAULT_REQUEST_SECONDS = 20.0
# Bytes per second of a body or message that takes longer than that: the slowest phone sends more.
MIN_BODY_RATE = 1 * KIB
# Seconds before a background response that could not be stored is tried again.
STORE_RETRY_PAUSE = 1.0
# Seconds between two checks for a cancellation that was requested at another gateway.
CANCEL_POLL = 0.25

# Requests to the gateway: the sizes of the Responses API

# Items of one request: a long conversation sent whole; more is a mistake.
MAX_INPUT_ITEMS = 10_000
MAX_INPUT_TEXT_CHARS = 10_485_760
MAX_IMAGE_URL_CHARS = 20_971_520
MAX_FILE_DATA_CHARS = 33_554_432
# Characters of a call id. The API says 64, but providers create longer ones.
MAX_CALL_ID_CHARS = 512
# Characters of `safety_identifier` and `prompt_cache_key`.
MAX_IDENTIFIER_CHARS = 64
# Tools of one request; an MCP declaration counts as one.
MAX_REQUEST_TOOLS = 128

# Storage

# Seconds to wait for another process that writes to the same SQLite file; writes are short.
SQLITE_BUSY_SECONDS = 10.0
# Seconds to connect to PostgreSQL, and for one statement; each touches few rows.
POSTGRES_TIMEOUT = 10.0
# Seconds to close a PostgreSQL connection; after that it is aborted.
POSTGRES_CLOSE_TIMEOUT = 2.0
# Rows deleted in one statement, so that other writers are not blocked for long.
DELETE_BATCH = 500
# Responses in one chain; a longer one is a loop or should be compacted.
MAX_CONTEXT_DEPTH = 1_000

# The terminal

# Seconds before progress is shown: what ends sooner needs no explanation.
PROGRESS_DELAY = 1.0
# Characters of a description in a table; `-v` shows all.
MAX_DESCRIPTION_SHOWN = 100
# Characters of the arguments and of the result of a call, which is shown on one line.
MAX_ARGUMENTS_SHOWN = 100
MAX_OUTCOME_SHOWN = 120
# Characters of an error, including the last output of a server.
MAX_FAILURE_SHOWN = 600
# Bytes of a question on standard input: more than any model reads.
MAX_QUESTION_BYTES = 4 * MIB
# Seconds for running calls after Ctrl-C: most end sooner, and a person waits.
INTERRUPT_GRACE = 5.0
# Durable runs in a list, the newest first: a screen or two.
MAX_RUNS_LISTED = 50
# Characters of an answer of an earlier run.
MAX_ANSWER_SHOWN = 20_000
# Agents that wait for each other, at most. Each has its own model and servers, so a few levels are many processes.
MAX_AGENT_DEPTH = 8
