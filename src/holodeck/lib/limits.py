"""Every number that bounds something, named, with the reason it has its size."""

KIB = 1024
MIB = 1024 * KIB

# Configuration files
MAX_FILE_BYTES = 4 * MIB  # an agent file is a page of text; more is a mistake or an attack
MAX_ENV_FILE_BYTES = 1 * MIB
MAX_EDITOR_FILE_BYTES = 16 * MIB  # ~/.claude.json keeps histories beside its servers
MAX_YAML_DEPTH = 64  # a JSON Schema in response_format nests perhaps 20 deep
MAX_YAML_NODES = 100_000  # counted after aliases are expanded, so a "billion laughs" ends here
MAX_PROBLEMS_SHOWN = 50  # a person fixes a few and runs it again
MAX_SHOWN_CHARS = 80  # of a value quoted in a message

# Time, in seconds
DEFAULT_REQUEST_TIMEOUT = 60  # generous, for complex operations
DEFAULT_CONNECT_TIMEOUT = 30.0
DEFAULT_SSE_READ_TIMEOUT = 300.0
DEFAULT_STARTUP_TIMEOUT = 120.0  # a cold `npx -y` downloads for 20 s and more
MAX_TIMEOUT = 86_400  # a day: a longer wait is a typing error (1e9 is 31 years)

# Agents
DEFAULT_MAX_TURNS = 10
MAX_MAX_TURNS = 1_000
MAX_TOOLS = 1_000
MAX_TOOL_NAME_CHARS = 64  # what model APIs accept

# Processes
PROCESS_EOF_GRACE = 2.0  # a server that reads its input ends at once when it is closed
PROCESS_TERM_GRACE = 2.0  # time to save something after TERM
PROCESS_KILL_GRACE = 2.0  # after KILL only the kernel's own work is left
PROCESS_OUTPUT_GRACE = 0.25  # between the end of a process and the end of what is still in its pipes
CONTAINER_REMOVAL_TIMEOUT = 10.0  # `docker rm -f` talks to a daemon that may be busy
REAPER_GRACE = 2.0  # for a small shell to send a few signals when we end
STDERR_RING_BYTES = 64 * KIB  # enough for a stack trace, little enough to keep for every server
STDERR_LINES_SHOWN = 8  # in an error; the ring has the rest

# MCP connections
PROBE_TIMEOUT = 5.0  # silence this long after the first question: ask in the older way as well
ROOTS_TIMEOUT = 1.0  # a server that wants our folders asks for them as soon as it has heard of us
ROOTS_SETTLE = 0.2  # it then looks at them on its disk, and nothing tells us when it is done
MAX_EXTENDED_CALL = 1_800.0  # a call that keeps reporting progress still ends after half an hour
MAX_STARTS = 5  # starts of one server ...
START_WINDOW = 60.0  # ... in this time are a crash loop ...
START_PAUSE = 30.0  # ... and it is left alone for this long
FIRST_BACKOFF = 0.1  # before the second start in a row; doubled each time
MAX_BACKOFF = 2.0  # a person is waiting
FIRST_REVIVAL = 1.0  # before a dead server is tried again in the background; doubled each time
MAX_REVIVAL = 60.0  # a server that is back is found within a minute, and one that is not costs a dial a minute
REVIVAL_SPREAD = 1.3  # at most so many times the pause, by chance: what died together is not tried together
MAX_REVIVALS = 8  # dead servers tried at the same moment
DEFAULT_CONCURRENT_CALLS = 64  # of one server: a busy gateway needs them, and a small server still bears them
MAX_CONCURRENT_CALLS = 10_000
HUNG_AFTER_TIMEOUTS = 2  # calls in a row without a sign of life, before the server is asked whether it lives
LIVENESS_TIMEOUT = 5.0  # for the answer to that question
MAX_INPUT_ROUNDS = 10  # questions that a server may ask in the middle of one call
INPUT_ROUND_PAUSE = 0.25  # when it asks nothing but wants to be called again
ANSWER_TIMEOUT = 600.0  # for a person or a model that answers a server
MAX_SERVER_REQUESTS = 64  # questions of one server answered at once
STREAM_RETRY = 1.0  # before an event stream is opened again, when the server does not say
MIN_STREAM_RETRY = 0.05  # a server that says 0 and ends every stream would be flooded
MAX_STREAM_RETRY = 30.0  # also when the server does say
STREAM_RESUMES = 3  # of one broken answer, before its call fails
STREAM_TAIL_TIMEOUT = (
    0.05  # for a server to end an event stream after its answer, so that the connection can be used again
)
NOTICE_TIMEOUT = 5.0  # for a message that expects no answer (a cancellation, the end of a session)
LIST_CHANGE_PAUSE = 0.1  # notices that come together are one change
LIST_RECHECK = 5.0  # a name that is not on the list is looked for again, but not more often than this

# MCP messages
MIN_MESSAGE_BYTES = 16 * MIB  # a list of 10,000 tools takes 10 MiB
MAX_HTTP_ERROR_BYTES = 64 * KIB  # of a body that only explains an error
MAX_RAW_SHOWN = 300  # characters of a malformed message quoted in an error
MAX_LOGGED_CHARS = 8 * KIB  # of one log message of a server
MAX_SNIFFED_BYTES = 64 * KIB  # of a malformed message searched slowly and thoroughly for its id
MAX_LIST_PAGES = 1_000  # a server that still has a next page then is counting, not listing
MAX_LISTED = 20_000  # tools or prompts of one server
HTTP_READ_CHUNK = 256 * KIB  # big answers arrive in few pieces
COALESCED_BYTES = 64 * KIB  # of what is written at one moment: then it is sent, whatever follows
MAX_HTTP_HEAD_BYTES = 64 * KIB  # of the headers of an answer; real ones have a few KiB
SECOND_ADDRESS_DELAY = 0.25  # before the next address of a name is tried beside one that does not answer
HTTP_KEEPALIVE = 30.0  # servers close idle connections after a minute or more
MAX_REDIRECTS = 3
WEBSOCKET_PING = 20.0  # a peer that does not answer this is gone, even if nothing says so

# JSON Schemas of tools and answers
MAX_SCHEMA_BYTES = 256 * KIB  # the largest real tools have 30 KiB; a model would read 60,000 tokens of this one
MAX_SCHEMA_NODES = 10_000  # keys and elements: 6 ms to read, 2 MB in memory; the largest real tools have 2,000
MAX_SCHEMA_LEVELS = 64  # of nesting: as deep as a file may be, and a body with other things around it
MAX_REQUEST_SCHEMA_BYTES = 1 * MIB  # of all schemas in one request: hundreds of real tools, or four of the largest
MAX_REQUEST_SCHEMA_NODES = 40_000
MAX_LISTED_SCHEMA_BYTES = 32 * MIB  # of all tools of one server: 20,000 with 1.6 KiB each
MAX_LISTED_SCHEMA_NODES = 500_000

# Checks of values against schemas: what a server promised of its answers, and what a tool takes
CHECK_BUDGET = 1.0  # seconds; a schema that needs more is an attack or a mistake
MAX_VIOLATIONS_SHOWN = 5  # a model mends a few at a time
MAX_COMPILED_SCHEMAS = 512  # of cheap ones: more tools than are in use at one time
MAX_WORKER_SCHEMAS = 64  # of costly ones, in the checking process; another takes the place of the oldest
CHECK_QUEUE_BUDGET = 3.0  # seconds to wait for other checks in the same process, of which some may be attacks
CHECK_START_BUDGET = 10.0  # for the checking process to start on a busy machine
MAX_INLINE_SCHEMA_NODES = 500  # a schema this small, without references and patterns, takes microseconds
MAX_INLINE_VALUE_BYTES = 64 * KIB
MAX_CHECKED_BYTES = 8 * MIB  # a bigger answer is not worth the wait

# MCP results
DEFAULT_MAX_RESULT_BYTES = 64 * MIB  # what is kept of one result; what the model is shown is cut much shorter
MAX_RESULT_BYTES = 1024 * MIB

# Runs
MODEL_RESULT_CHARS = 24_000  # about 6,000 tokens: what a model is shown of one result; the rest is there to read
MAX_STORED_RESULTS = 64  # results that a run keeps for reading on; the oldest go first
DISCOVERY_TIMEOUT = 15.0  # how long the first turn waits for a remote server to say what it has

# Auth
MAX_AUTH_BODY_BYTES = 256 * KIB  # metadata documents and token answers are a few KiB
AUTH_TIMEOUT = 30.0  # seconds for one exchange with an authorization server
TOKEN_LEEWAY = 60.0  # seconds before its expiry a token is renewed: longer than a request and two clocks' difference
TOKEN_LEEWAY_SHARE = 0.25  # ... but at most this part of a short token's life, or it would never be fresh
ASSERTION_LIFETIME = 300.0  # seconds that a signed client assertion is good for; authorization servers refuse long ones
LOGIN_TIMEOUT = 300.0  # seconds for a person to find the browser window, log in and agree
MAX_REDIRECT_REQUEST_BYTES = 16 * KIB  # the one GET that a browser sends back to us
REDIRECT_REQUEST_TIMEOUT = 10.0  # seconds for a connection to the loopback redirect to say what it wants
REDIRECT_LINGER = 0.5  # seconds for the "you can close this window" page to leave before the listener goes
TOKEN_LOCK_TIMEOUT = 15.0  # seconds to wait for another process that is renewing the same token
TOKEN_LOCK_POLL = 0.05

# Skills

# Models
MAX_SAMPLING_TOKENS = 1_024  # of an answer that a server asks our model for: it is our bill
MODEL_CONNECT_TIMEOUT = 15.0  # to reach an API: name, connection and TLS
MODEL_FIRST_EVENT_TIMEOUT = 600.0  # a reasoning model may think this long before it says anything
MODEL_IDLE_TIMEOUT = 300.0  # between two events; some think again in the middle
MODEL_REFUSAL_TIMEOUT = 5.0  # for the words of a refusal whose status is known
MODEL_TAIL_TIMEOUT = 0.05  # for an API to end the stream after its last event, so that the connection can be used again
MODEL_ATTEMPTS = 4  # one and three more: a short overload passes, a long one is reported
MODEL_FIRST_PAUSE = 0.5  # before the second attempt; doubled each time
MODEL_MAX_PAUSE = 8.0  # of our own choosing: a person is waiting
MODEL_MAX_RETRY_AFTER = 60.0  # a provider that wants a longer pause is reported instead of waited for
MODEL_BREAKER_FAILURES = 5  # in a row: then the provider is left alone ...
MODEL_BREAKER_PAUSE = 30.0  # ... for this long
MODEL_WAIT_FIRST_PAUSE = 1.0  # before a background response asks again, after the attempts above; doubled each time
MODEL_WAIT_MAX_PAUSE = 15.0  # a model that is back is noticed within this; nobody sits there and waits
DEFAULT_MODEL_WAIT = 600.0  # seconds that a background response waits for a model: a restart, an overload
DEFAULT_ANSWER_BYTES = 16 * MIB  # of one turn: models write at most some 128,000 tokens, which is half a megabyte
DEFAULT_RESPONSE_BYTES = 64 * MIB  # of all turns of one response
DELTA_COST = 200  # bytes that a piece of an answer counts for in the budget beside its text: it is an event, and JSON
CALL_COST = 256  # bytes that a tool call counts for beside its arguments: a turn may have thousands of empty ones
MAX_MODEL_LINE_BYTES = 32 * MIB  # of an event stream; a final event repeats a whole answer with its images
MAX_MODEL_BODY_BYTES = 64 * MIB  # of an answer that came in one piece
MAX_MODEL_ERROR_BYTES = 64 * KIB  # of a body that only explains an error
MAX_MODEL_ERROR_CHARS = 500  # of a provider's words quoted in an error
DEFAULT_ANTHROPIC_MAX_TOKENS = 8_192  # this API demands a number; every current model accepts this one

# The gateway
DEFAULT_BODY_BYTES = 32 * MIB  # a few images in a request
SMALL_BODY_BYTES = 16 * KIB  # of a request that asks no model: it may come although much is going on
DEFAULT_CONTEXT_BYTES = 64 * MIB  # what is read for a request of all that came before it: more than models take
MAX_JSON_DEPTH = 100  # of a body, a message, arguments; schemas that are in use nest 20 deep, perhaps 40
MIN_SEAL_KEY_BYTES = 32  # as many as the cipher has
MAX_PAGE_BYTES = 32 * MIB  # of a page of items; the others are on the next
DEFAULT_BODIES_BYTES = 256 * MIB  # of all requests at once; what is counted takes up to eight times as much memory
DEFAULT_IN_FLIGHT = 1_000  # requests at once; one more is refused, not queued
DEFAULT_KEY_IN_FLIGHT = 256  # of one caller
DEFAULT_KEY_BACKGROUND = 256  # of one caller, on all gateways: four times what one gateway does at once
BACKGROUND_RETRY_AFTER = 5.0  # seconds; a run takes from a few of them to minutes, and who asks too early waits again
DEFAULT_SOCKETS = 1_000  # WebSockets that are open, also those that ask for nothing
DEFAULT_KEY_SOCKETS = 256  # of one caller
DEFAULT_DRAIN_SECONDS = 30.0  # what orchestrators wait before they kill
DEFAULT_RETENTION_DAYS = 30.0  # what users of the OpenAI API expect
MAX_SECRET_FILE_BYTES = 64 * KIB
JWT_LEEWAY = 30  # seconds between two clocks that are both right
JWKS_MIN_REFRESH = 30.0  # tokens with made-up key ids must not make us hammer the identity provider
JWKS_MAX_AGE = 600.0  # seconds until keys are asked for again: one that was withdrawn opens nothing for longer
JWKS_TIMEOUT = 10.0
DEFAULT_SERVERS_PER_REQUEST = 8  # that it may bring along by their addresses
MAX_REQUEST_SERVERS = 1_000  # connections to such servers, of all callers: each is a socket or two
MAX_CALLER_SERVERS = 64  # of one caller, who must not use up the others'
REQUEST_SERVER_IDLE = 300.0  # seconds without use before such a connection is closed: a conversation pauses that long
REQUEST_SERVER_START = 30.0  # seconds for such a server to answer for the first time; nothing is downloaded for it
MAX_REQUEST_SERVER_RESULT = 8 * MIB  # what is kept of one result of a server that a stranger chose
MAX_REQUEST_SERVER_TOOLS = 512  # of such a server: more than a model can choose from, and few enough to prepare at once
MAX_REQUEST_HEADERS = 32  # for such a server
SHORTAGE_LOG_PAUSE = 10.0  # seconds between two lines of the log about a lack of files: one says it for all
SHORTAGE_POLL = 2.0  # seconds between two looks whether there is room for one more
LOAD_RETRY_AFTER = 1.0  # seconds, when a provider that has too much to do does not say how long
SHORTAGE_RETRY_AFTER = 1.0  # seconds; some of what is going on has ended by then
MAX_OPEN_FILES = 65_536  # of a gateway: a request takes two or three, and the usual 1,024 are for one user's program
THREAD_EXIT_TIMEOUT = (
    3.0  # seconds for threads to end after everything else has; one that hangs must not keep the process
)
GC_NEW_OBJECTS = (
    100_000  # before cycles among them are looked for: a request makes hundreds, and few of them are cycles
)

# The terminal
PROGRESS_DELAY = 1.0  # what is over sooner needs no explanation
PROGRESS_STEP = 0.2  # often enough to look alive
MAX_DESCRIPTION_SHOWN = 100  # characters of a description in a table; -v shows all
MAX_REASON_SHOWN = 160  # characters of why a server is down, in a table
MAX_SAVED_NAME_CHARS = 60  # of a file that a result is saved to
MAX_ARGUMENTS_SHOWN = 100  # characters of a call's arguments: the line stays a line
MAX_OUTCOME_SHOWN = 120  # characters of a call's result in its line
MAX_FAILURE_SHOWN = 600  # characters of why something failed: last words of a server included
MAX_QUESTION_BYTES = 4 * MIB  # of a question on standard input: more than any model reads
MAX_IMAGE_BYTES = 20 * MIB  # what the large providers accept for one image
MAX_ANSWER_BYTES = 4 * KIB  # of a line that a person types as an answer
MAX_BUFFERED_LINES = 10_000  # written while a person thinks about a question: more than anybody scrolls back
MAX_BUFFERED_CHARS = 1_000_000  # the same in a chat
MAX_APPROVAL_SHOWN = 10_000  # characters of what a person is asked to agree to: all of it, unless it is absurd
LIVE_STEP = 0.08  # seconds between two pictures of an answer that is being written: fluent, and cheap
MAX_LIVE_MARKDOWN = 4_000  # characters of a block in progress that are rendered each time; a longer one is shown plain
LINE_LOCK_TIMEOUT = 1.0  # seconds for another thread to end its line; one that was left behind may never do so
PIPE_WIDTH = 200  # columns of a table that no terminal bounds

# The rehearsal model
MAX_CACHED_TEXT_CHARS = 1_000  # of each: longer ones are documents, and come once
MAX_CACHED_TEXTS = 16_384  # stems of tool names and descriptions: a large catalogue, once
MAX_REHEARSED_CHARS = 8_000  # of a request that is searched for arguments; what is longer is a document, not a request
MAX_ENTITIES = 60  # things in a request that could be arguments
MAX_REPORTED_CHARS = 1_500  # of a tool's answer that is told again: a screen
MAX_NAMED_TOOLS = 12  # in an answer that says what is on offer
MAX_REHEARSED_CALLS = 8  # in one turn: a person names a few things, not a hundred

# Tool schemas
MAX_SCHEMA_DEPTH = 16  # deeper arguments are beyond every model that was tried; OpenAI's strict mode stops at 10

# Storage
SQLITE_BUSY_SECONDS = 10.0  # for another process that writes to the same file; it is soon done
GROUP_COMMIT_JOBS = 64  # writers that share a transaction; more would make the first of them wait
FILE_CHECK_AGE = 300.0  # seconds for which a check of a database file is believed
FILE_CHECK_SECONDS = 120.0  # for one check; a file that takes longer is checked as far as that
FILE_CHECK_SPACING = 30.0  # times as long as a check took, until the next
FILE_CHECK_WAIT = 10.0  # for a check, by who asks for what does not seem to be there
INLINE_WRITE_BYTES = 64 * KIB  # of a row that the serving thread writes itself, when it has nothing else to do
INLINE_WRITES_IN_A_ROW = (
    100  # of those; then the writing thread takes one, and tidies up what they have left in the journal
)
INLINE_WRITE_SECONDS = 0.02  # for one of them; a disk that takes longer ...
INLINE_WRITE_PAUSE = 60.0  # ... is left to the writing thread for this long
DELETE_BATCH = 500  # rows deleted at a time, so that others get their turn
MAX_SEARCHED_RESPONSES = 1_000  # of a caller, newest first, for an item that a request only refers to
MAX_SEARCHED_BYTES = 64 * MIB  # of those: a search takes a tenth of a second, and others wait for it
SEARCH_BATCH = 16  # responses that are fetched together to be searched
MAX_REFERENCES = 64  # of one request
MAX_CONTEXT_DEPTH = 1_000  # responses in a chain; a longer one is a loop or should be compacted

# Requests to the gateway: the sizes that the Responses API has
MAX_INPUT_ITEMS = 10_000  # a long conversation sent whole; more is a mistake
MAX_INPUT_TEXT_CHARS = 10_485_760
MAX_IMAGE_URL_CHARS = 20_971_520
MAX_FILE_DATA_CHARS = 33_554_432
MAX_CALL_ID_CHARS = 512  # the API says 64, but providers behind us make longer ones
MAX_IDENTIFIER_CHARS = 64  # of safety_identifier and prompt_cache_key
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512
MAX_STOP_WORDS = 16  # of a chat completion; OpenAI takes 4, other servers more
MAX_SEED = 2**63 - 1
MAX_REQUEST_TOOLS = 128  # of one request; an MCP declaration is one
MIN_OUTPUT_TOKENS = 16
MAX_TOP_LOGPROBS = 20
MAX_TEMPERATURE = 2.0
MAX_PENALTY = 2.0
OBFUSCATION_CHARS = 16  # a delta is padded to a multiple of this, so that its size says little about its text
LISTEN_BACKLOG = 2_048  # connections that wait to be taken: a crowd that comes at once is not turned away
CONNECTIONS_GRACE = 10  # seconds that open connections get after the runs have ended
KEEP_ALIVE_SECONDS = 75  # without a request: longer than proxies keep theirs (60), who report what we end as a 502
MAX_HEAD_BYTES = 64 * KIB  # of a request line and headers: several of the longest tokens fit in
DEFAULT_SILENT_SECONDS = 10.0  # of a stream, which proxies end after 30 (Google's), 60 (nginx, Amazon's) or more
DEFAULT_READER_SECONDS = 60.0  # in which a reader takes nothing of its answer: it sleeps, or is gone without a word
MISSING_RETRY_AFTER = "5"  # seconds, as a header says it: a dead server is tried again within a few
SHUTDOWN_RETRY_AFTER = "1"  # seconds, as a header says it: by then a new connection reaches a gateway that stays
STOP_WAIT = 2.0  # seconds for runs that were stopped to be stored and told; no reader is waited for longer
SHUTDOWN_READER_SECONDS = 1.0  # for a reader that takes nothing, once the gateway ends
DEFAULT_REQUEST_SECONDS = 20.0  # for headers, and between two pieces of a body, also from a slow phone
MIN_BODY_RATE = 1 * KIB  # bytes a second of a body or a message, beyond that time: the slowest phone sends more
POSTGRES_CONNECTIONS = 10  # of one gateway; with those of durable runs, five gateways fit into the usual limit of 100
POSTGRES_TIMEOUT = 10.0  # seconds to connect, and for one statement; each touches few rows
POSTGRES_CLOSE_TIMEOUT = 2.0  # seconds to take leave of a server; one that does not answer is left without a word
POSTGRES_ATTEMPTS = 6  # a server that is restarted is away for a second or two ...
POSTGRES_FIRST_PAUSE = 0.1  # ... and is asked again after this long, doubled each time
GATEWAY_LIVENESS_RETRY = 0.1  # seconds; until a gateway is back in its database, another that starts takes it for dead
GATEWAY_LIVENESS_TIMEOUT = 3.0  # seconds for that; a new attempt finds a server that is back sooner than an old one
GATEWAY_LIVENESS_INTERVAL = (
    2.0  # seconds between two looks whether the lock is still held: a lost server does not say so
)
POSTGRES_KEEPALIVE_IDLE = 2  # seconds of silence before the server asks whether our machine is still there, ...
POSTGRES_KEEPALIVE_INTERVAL = 1  # ... again after this long, ...
POSTGRES_KEEPALIVE_COUNT = 3  # ... and how often in vain: work of a machine that vanished is free after 5 seconds
STORE_RETRY_PAUSE = 1.0  # seconds before a background response that could not be stored is tried again
MAX_PAUSED_TURNS = 8  # looked at for a call that came back: there are models that give one id to several calls
LEASE_ATTEMPTS = 5  # of a request to take what waits in a conversation that others change at the same moment
STORAGE_RETRY = 5.0  # seconds before storage that was away at the start is asked again
MAX_PRINTED_CHARS = 16_384  # of a line that a function prints: more is a document, and no line of a log
LOG_PAUSE = 0.05  # seconds that a line of the log may wait for others
MAX_LOG_LINES_WAITING = 10_000  # while nobody reads them; a few MB
TRACE_FLUSH_SECONDS = 5.0  # for the last spans at the end; a collector that is away must not keep us
MAX_HOSTS_REMEMBERED = 256  # names that clients reach us by: they repeat themselves with every request
MAX_REQUEST_ID_CHARS = 128  # of one that a client or a proxy has made; a longer one is not an id
MAX_METRIC_SERIES = 2_000  # of one metric; the servers of requests may have any names, a dashboard has a limit
RETENTION_INTERVAL = 3_600.0  # what is old is forgotten once an hour
MAX_PENDING_CALL_BYTES = 16 * MIB  # of calls that wait in responses which nobody stores; each has a few hundred
MAX_TOOL_HISTORY_BYTES = 64 * MIB  # of what was done before clients' functions were called, which they do not send back
PENDING_CALL_SECONDS = 3_600.0  # that they are remembered: as long as a connection would be
MIN_UNIQUE_ID_CHARS = 9  # of an id that a model gives to one call only; shorter ones are numbers
MAX_RECENT_RESPONSES = 8  # that a WebSocket remembers: an agent goes on from its last one, and may go back a little
MAX_RECENT_BYTES = 8 * MIB  # of them together, unless the latest alone is more
MAX_SOCKET_SECONDS = 3_600.0  # the Responses API ends a WebSocket after an hour
FRAMES_AT_ONCE = 100  # of one WebSocket, which may send a million empty ones: two milliseconds, then others have theirs
MAX_QUEUED_MESSAGES = 16  # of a WebSocket whose response is still being made
CHARS_PER_TOKEN = 4  # of English text and JSON, in all of today's tokenizers, roughly
TOKENS_PER_ITEM = 4  # what the role and the ends of a message take
TOKENS_PER_IMAGE = 765  # a picture of 1024 x 1024 at high detail, as OpenAI counts it
MAX_STRICT_DEPTH = 10  # OpenAI's strict mode refuses deeper ones
MAX_INLINED_NODES = 5_000  # references can multiply; a schema of this size costs a model more than its answer is worth
MAX_SCHEMA_NOTES = 50  # of changes, shown to a person
MAX_ENUM_VALUES = 500  # OpenAI counts a thousand over all of a tool's fields
OPENAI_DESCRIPTION_CHARS = 1_024  # longer ones are refused
MAX_TOOL_DESCRIPTION_CHARS = 8_192  # longer ones crowd out the conversation
MAX_FIELD_DESCRIPTION_CHARS = 4_096

# The local model
COPY_CHUNK_BYTES = 1 * MIB
DOWNLOAD_ATTEMPTS = 4  # that bring nothing; one that brings something starts the count anew
DOWNLOAD_TIMEOUT = 30.0  # without a byte
LOCAL_CONTEXT_TOKENS = 4_096  # a longer prompt takes minutes to read on two cores
LOCAL_PROMPT_CHARS = 8_000  # of a conversation; with the tools it fits the context
LOCAL_RESULT_CHARS = 2_000  # of a tool's answer
LOCAL_ANSWER_TOKENS = 512  # half a minute of writing
LOCAL_CHOICE_TOKENS = 384
LOCAL_SHORTLIST = 3  # of eight tools the 0.5B model finds two right ones of four; of three, six of six
LOCAL_TOOL_CHARS = 300  # of a description
LOCAL_CLOSE_TIMEOUT = 5.0  # for the piece that is being computed
MAX_ADAPTED_BYTES = 32 * MIB  # of them together: clients bring schemas, too, and new ones with every request
MAX_ADAPTED_SCHEMAS = 20_000  # schemas adapted for a model: as many as the tools that one server may list

# Durable runs
MAX_DURABLE_RUNS = 64  # background runs that one gateway begins; what is more waits until somebody has room
DURABLE_CONNECTIONS = 8  # a step holds one for a millisecond
DURABLE_COUNT_WAIT = 2.0  # seconds for a number on a dashboard; the others must not wait for a database that hangs
DURABLE_CLOSE_WAIT = 5.0  # seconds for the engine to end; its threads may wait for a database that does not answer
DURABLE_POLL = 0.5  # seconds between two looks at what waits for room
MAX_DURABLE_ATTEMPTS = 100  # deaths of the process with the same run under way, before the run is thought to cause them
STREAM_STORE_INTERVAL = 0.2  # seconds between two writes of a stream that somebody follows: it still looks alive
RUN_START_TIMEOUT = 1.0  # seconds that a reader waits for its run to begin here, before it reads what is stored
STORED_STREAM_POLL = 0.25  # seconds between two looks at a stream that another gateway writes
CANCEL_POLL = 0.25  # seconds until a cancellation that another gateway was asked for is noticed
CANCEL_WAIT = 10.0  # seconds that a client waits for another gateway to stop; it is stopped later all the same
TAKE_OVER_INTERVAL = 1.0  # seconds between two looks for gateways that are gone
CLEANUP_LOOKS = 30  # of those looks, between two for work whose response has ended: it is in nobody's way
OTHER_VERSION_LOOKS = 5  # times as many looks, before work that only another version can do is given up
DAMAGED_LOOKS = 3  # in a row at which work was taken and is not done, before it counts as damaged: it may just begin
TAKE_OVER_LOOKS = 3  # looks at which a gateway must be missing: a database that restarts hides all of them for a moment

# Durable runs in a terminal
STORED_RUN_DAYS = 30.0  # an ended run is looked at again within days; the gateway keeps what it has for as long
INTERRUPT_GRACE = 5.0  # seconds for calls under way after Ctrl-C: most end sooner, and a person waits
CLAIM_POLL = 0.05  # seconds between two looks whether a run is ours by now: a person waits
RUN_STORE_TIMEOUT = 10.0  # seconds for the end of a run to be written: one row
MAX_RUNS_LISTED = 50  # the newest; a screen or two
MAX_QUESTION_SHOWN = 60  # characters of a question in a table
MAX_STEPS_SHOWN = 200  # of one run, the last ones
MAX_ANSWER_SHOWN = 20_000  # characters of an answer that is shown again
DAY = 86_400.0
