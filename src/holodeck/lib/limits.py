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

# The rehearsal model
MAX_CACHED_TEXTS = 16_384  # stems of tool names and descriptions: a large catalogue, once
MAX_REHEARSED_CHARS = 8_000  # of a request that is searched for arguments; what is longer is a document, not a request
MAX_FINDINGS = 60  # things in a request that could be arguments
MAX_REPORTED_CHARS = 1_500  # of a tool's answer that is told again: a screen
MAX_NAMED_TOOLS = 12  # in an answer that says what is on offer
MAX_REHEARSED_CALLS = 8  # in one turn: a person names a few things, not a hundred

# Tool schemas
MAX_SCHEMA_DEPTH = 16  # deeper arguments are beyond every model that was tried; OpenAI's strict mode stops at 10
MAX_STRICT_DEPTH = 10  # OpenAI's strict mode refuses deeper ones
MAX_SCHEMA_NODES = 5_000  # references can multiply; a schema of this size costs a model more than its answer is worth
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
