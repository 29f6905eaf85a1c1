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

# Auth
MAX_AUTH_ATTEMPTS = 4  # no token, then a nonce, then a wider scope: each is one honest refusal
MAX_AUTH_BODY_BYTES = 256 * KIB  # metadata documents and token answers are a few KiB
MAX_REFUSAL_BODY_BYTES = 64 * KIB  # of a 401 or 403 that is shown to a provider
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
MAX_SKILL_PAGES = 100
MAX_FRONTMATTER_BYTES = 64 * KIB  # a name, a description and a few settings
