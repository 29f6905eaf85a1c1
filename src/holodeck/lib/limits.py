"""Every number that bounds something, named, with the reason it has its size."""

KIB = 1024
MIB = 1024 * KIB

# Configuration files
MAX_FILE_BYTES = 4 * MIB  # an agent file is a page of text; more is a mistake or an attack
MAX_ENV_FILE_BYTES = 1 * MIB
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

# MCP results
DEFAULT_MAX_RESULT_BYTES = 64 * MIB  # what is kept of one result; what the model is shown is cut much shorter
MAX_RESULT_BYTES = 1024 * MIB

# HTTP clients
HTTP_READ_CHUNK = 256 * KIB  # big answers arrive in few pieces
HTTP_KEEPALIVE = 30.0  # servers close idle connections after a minute or more

# Models
MODEL_CONNECT_TIMEOUT = 15.0  # to reach an API: name, connection and TLS
MODEL_FIRST_EVENT_TIMEOUT = 600.0  # a reasoning model may think this long before it says anything
MODEL_IDLE_TIMEOUT = 300.0  # between two events; some think again in the middle
MODEL_TAIL = 0.05  # for an API to end the stream after its last event, so that the connection can be used again
MODEL_ATTEMPTS = 4  # one and three more: a short overload passes, a long one is reported
MODEL_FIRST_PAUSE = 0.5  # before the second attempt; doubled each time
MODEL_MAX_PAUSE = 8.0  # of our own choosing: a person is waiting
MODEL_MAX_RETRY_AFTER = 60.0  # a provider that wants a longer pause is reported instead of waited for
MODEL_BREAKER_FAILURES = 5  # in a row: then the provider is left alone ...
MODEL_BREAKER_PAUSE = 30.0  # ... for this long
MAX_MODEL_LINE_BYTES = 32 * MIB  # of an event stream; a final event repeats a whole answer with its images
MAX_MODEL_BODY_BYTES = 64 * MIB  # of an answer that came in one piece
MAX_MODEL_ERROR_BYTES = 64 * KIB  # of a body that only explains an error
MAX_MODEL_ERROR_CHARS = 500  # of a provider's words quoted in an error
DEFAULT_ANTHROPIC_MAX_TOKENS = 8_192  # this API demands a number; every current model accepts this one
