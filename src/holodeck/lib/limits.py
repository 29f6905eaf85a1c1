"""Every number that bounds something, named, with the reason it has its size."""

KIB = 1024
MIB = 1024 * KIB

# Configuration files
MAX_YAML_DEPTH = 64  # a JSON Schema in response_format nests perhaps 20 deep
MAX_SHOWN_CHARS = 80  # of a value quoted in a message

# Time, in seconds
MAX_TIMEOUT = 86_400  # a day: a longer wait is a typing error (1e9 is 31 years)

# Agents
DEFAULT_MAX_TURNS = 10
MAX_MAX_TURNS = 1_000
MAX_TOOLS = 1_000
MAX_TOOL_NAME_CHARS = 64  # what model APIs accept

# Processes

# MCP connections
PROBE_TIMEOUT = 5.0  # silence this long after the first question: ask in the older way as well
STREAM_RETRY = 1.0  # before an event stream is opened again, when the server does not say
MAX_STREAM_RETRY = 30.0  # also when the server does say
NOTICE_TIMEOUT = 5.0  # for a message that expects no answer (a cancellation, the end of a session)

# MCP messages
MAX_HTTP_ERROR_BYTES = 64 * KIB  # of a body that only explains an error
MAX_RAW_SHOWN = 300  # characters of a malformed message quoted in an error
HTTP_READ_CHUNK = 256 * KIB  # big answers arrive in few pieces
HTTP_KEEPALIVE = 30.0  # servers close idle connections after a minute or more

# JSON Schemas of tools and answers

# Checks of values against schemas: what a server promised of its answers, and what a tool takes
MAX_CHECKED_BYTES = 8 * MIB  # a bigger answer is not worth the wait

# MCP results

# Runs
DISCOVERY_TIMEOUT = 15.0  # how long the first turn waits for a remote server to say what it has

# Auth

# Skills

# Models
MODEL_FIRST_EVENT_TIMEOUT = 600.0  # a reasoning model may think this long before it says anything
MODEL_IDLE_TIMEOUT = 300.0  # between two events; some think again in the middle
DEFAULT_ANSWER_BYTES = 16 * MIB  # of one turn: models write at most some 128,000 tokens, which is half a megabyte
DEFAULT_RESPONSE_BYTES = 64 * MIB  # of all turns of one response

# The gateway
DEFAULT_CONTEXT_BYTES = 64 * MIB  # what is read for a request of all that came before it: more than models take
MIN_SEAL_KEY_BYTES = 32  # as many as the cipher has
DEFAULT_SOCKETS = 1_000  # WebSockets that are open, also those that ask for nothing
MAX_SECRET_FILE_BYTES = 64 * KIB

# The terminal
PROGRESS_DELAY = 1.0  # what is over sooner needs no explanation
MAX_DESCRIPTION_SHOWN = 100  # characters of a description in a table; -v shows all
MAX_ARGUMENTS_SHOWN = 100  # characters of a call's arguments: the line stays a line
MAX_OUTCOME_SHOWN = 120  # characters of a call's result in its line
MAX_FAILURE_SHOWN = 600  # characters of why something failed: last words of a server included
MAX_QUESTION_BYTES = 4 * MIB  # of a question on standard input: more than any model reads

# The rehearsal model
MAX_REHEARSED_CHARS = 8_000  # of a request that is searched for arguments; what is longer is a document, not a request

# Tool schemas
MAX_SCHEMA_DEPTH = 16  # deeper arguments are beyond every model that was tried; OpenAI's strict mode stops at 10

# Storage
SQLITE_BUSY_SECONDS = 10.0  # for another process that writes to the same file; it is soon done
DELETE_BATCH = 500  # rows deleted at a time, so that others get their turn
MAX_CONTEXT_DEPTH = 1_000  # responses in a chain; a longer one is a loop or should be compacted

# Requests to the gateway: the sizes that the Responses API has
MAX_INPUT_ITEMS = 10_000  # a long conversation sent whole; more is a mistake
MAX_INPUT_TEXT_CHARS = 10_485_760
MAX_IMAGE_URL_CHARS = 20_971_520
MAX_FILE_DATA_CHARS = 33_554_432
MAX_CALL_ID_CHARS = 512  # the API says 64, but providers behind us make longer ones
MAX_IDENTIFIER_CHARS = 64  # of safety_identifier and prompt_cache_key
MAX_REQUEST_TOOLS = 128  # of one request; an MCP declaration is one
DEFAULT_SILENT_SECONDS = 10.0  # of a stream, which proxies end after 30 (Google's), 60 (nginx, Amazon's) or more
DEFAULT_REQUEST_SECONDS = 20.0  # for headers, and between two pieces of a body, also from a slow phone
MIN_BODY_RATE = 1 * KIB  # bytes a second of a body or a message, beyond that time: the slowest phone sends more
POSTGRES_TIMEOUT = 10.0  # seconds to connect, and for one statement; each touches few rows
POSTGRES_CLOSE_TIMEOUT = 2.0  # seconds to take leave of a server; one that does not answer is left without a word
STORE_RETRY_PAUSE = 1.0  # seconds before a background response that could not be stored is tried again

# The local model
COPY_CHUNK_BYTES = 1 * MIB

# Durable runs
CANCEL_POLL = 0.25  # seconds until a cancellation that another gateway was asked for is noticed

# Durable runs in a terminal
INTERRUPT_GRACE = 5.0  # seconds for calls under way after Ctrl-C: most end sooner, and a person waits
MAX_RUNS_LISTED = 50  # the newest; a screen or two
MAX_ANSWER_SHOWN = 20_000  # characters of an answer that is shown again
DAY = 86_400.0
