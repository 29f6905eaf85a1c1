"""The groups of keys of each configuration file, with an example and a wrong value for each key.

An example is put into `Group.file` at `Group.at`. `file_page` loads the result: an example must be valid, a wrong
value must not be, and the page shows the error that it really gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LEFT_OUT = object()
"""As a wrong value: the key is not there."""


@dataclass(frozen=True)
class Key:
    """How one key is shown: a valid value, a wrong one, and other keys that both need beside them."""

    example: Any
    wrong: Any
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The keys of one mapping of a file."""

    definition: str
    """Name of the mapping in the JSON Schema; empty for the file itself."""
    path: str
    """How keys of the group begin, such as `tools[].`."""
    title: str
    about: str = ""
    variant: str = ""
    """Which of several forms of the mapping this is, where a key alone does not say it."""
    file: Mapping[str, Any]
    """A valid file that has the mapping."""
    at: tuple[str | int, ...]
    """Where the mapping is in `file`."""
    keys: Mapping[str, Key]


_STDIO = {"name": "files", "type": "mcp", "command": "npx", "server": "@modelcontextprotocol/server-filesystem"}
_HTTP = {"name": "tickets", "type": "mcp", "transport": "http", "url": "https://mcp.example.com/mcp"}
_SERVER = {"name": "tickets", "transport": "http", "url": "https://mcp.example.com/mcp"}
_REMOTE = {"transport": "http", "url": "https://mcp.example.com/mcp", "command": None, "server": "tickets"}
_OPENAI = {"provider": "openai", "name": "gpt-5-mini"}
_COMPATIBLE = {"provider": "openai_compatible", "endpoint": "http://localhost:8000/v1"}


_PRICED = [{"name": "small", "model": {"provider": "rehearsal", "price": {"input": 0, "output": 0}}}]


def _agent(**keys: Any) -> dict[str, Any]:
    return {"name": "helper", "model": {"provider": "rehearsal"}, **keys}


def _case(test_settings: Mapping[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """An agent file with one test case of these keys."""
    settings = {} if test_settings is None else {"test_settings": dict(test_settings)}
    return _agent(test_cases=[{"input": "What is 1 + 2?", **keys}], **settings)


def _gateway(**keys: Any) -> dict[str, Any]:
    return {"models": [{"name": "small", "model": {"provider": "rehearsal"}}], **keys}


_CREDENTIALS = {
    "type": "oauth_client_credentials",
    "client_id": "holodeck",
    "client_secret": "${CLIENT_SECRET}",
    "issuer": "https://login.example.com",
}
_BY_PRIVATE_KEY = {"client_secret": None, "private_key_file": "client.pem"}

AGENT_GROUPS = (
    Group(
        definition="",
        path="",
        title="The file itself",
        file=_agent(),
        at=(),
        keys={
            "name": Key("helper", "my@agent"),
            "description": Key("Answers questions about the files in data/", ""),
            "author": Key("Ada Lovelace", ""),
            "model": Key({"provider": "openai", "name": "gpt-5-mini"}, "gpt-5-mini"),
            "instructions": Key({"file": "instructions.md"}, {"file": "missing.md"}),
            "response_format": Key("answer.schema.json", {"type": "strin"}),
            "max_turns": Key(20, 0),
            "tools": Key([_STDIO], "files"),
            "test_cases": Key([{"input": "What is 1 + 2?"}], {"input": "What is 1 + 2?"}),
            "test_settings": Key({"ground_truth_by": "equals"}, {"ground_truth_by": "bleu"}),
        },
    ),
    Group(
        definition="LLM",
        path="model.",
        title="Keys of model",
        about="The model that answers, and how it is asked. The `rehearsal` model needs no key and no network.",
        file=_agent(model=_OPENAI),
        at=("model",),
        keys={
            "provider": Key("anthropic", "open_ai", {"name": "claude-sonnet-4-5"}),
            "name": Key("gpt-5-mini", LEFT_OUT),
            "endpoint": Key("https://models.example.com/v1", "models.example.com", {"provider": "openai_compatible"}),
            "api_key": Key("${OPENAI_API_KEY}", "${NOT_SET}"),
            "allow_insecure_hosts": Key(
                ["models.internal"],
                "models.internal",
                {"provider": "openai_compatible", "endpoint": "http://models.internal/v1", "api_key": "${MODEL_KEY}"},
            ),
            "temperature": Key(0.2, 3),
            "max_tokens": Key(2000, "2000"),
            "context_tokens": Key(128000, 0),
            "top_p": Key(0.9, 90),
            "effort": Key("low", "little"),
            "verbosity": Key("low", "brief"),
            "stop": Key(["END"], "END", _COMPATIBLE),
            "seed": Key(7, "7", _COMPATIBLE),
            "presence_penalty": Key(0.5, 3),
            "frequency_penalty": Key(0.5, 3),
            "headers": Key({"X-Team": "${API_TOKEN}"}, {"Content-Type": "text/plain"}),
            "extra_body": Key({"top_k": 20}, {"temperature": 0.5}, _COMPATIBLE),
            "allow_extra_parameters": Key(["top_k"], ["messages"], _COMPATIBLE),
            "timeout": Key(120, 0),
            "price": Key({"input": 0.25, "cached_input": 0.025, "output": 2}, {"input": 0.25}),
            "api_version": Key(
                "2025-04-01-preview", 20250401, {"provider": "azure_openai", "endpoint": "https://me.openai.azure.com"}
            ),
        },
    ),
    Group(
        definition="Price",
        path="model.price.",
        title="The price of a model",
        about="Per million tokens. Providers change their prices: HoloDeck knows none by itself.",
        file=_agent(model={**_OPENAI, "price": {"input": 0.25, "output": 2}}),
        at=("model", "price"),
        keys={"input": Key(0.25, -1), "cached_input": Key(0.025, "free"), "output": Key(2, LEFT_OUT)},
    ),
    Group(
        definition="InstructionsSource",
        path="instructions.",
        title="Keys of instructions",
        about="Instructions are a text, or a mapping with one of these keys.",
        file=_agent(instructions={}),
        at=("instructions",),
        keys={
            "inline": Key("Answer in one sentence.", "", {}),
            "file": Key("instructions.md", "missing.md"),
        },
    ),
    Group(
        definition="MCPTool",
        path="tools[].",
        title="Keys of an MCP server",
        about=(
            "An entry with `type: mcp` is an MCP server. `command` starts one on this machine; `transport` and `url` "
            "reach one over the network. In `gateway.yaml` and `config.yaml` the same keys stand under `mcp_servers`, "
            "where `type` may be left out."
        ),
        file=_agent(tools=[_STDIO]),
        at=("tools", 0),
        keys={
            "name": Key("files", "my files"),
            "description": Key("Files of this project", ""),
            "type": Key("mcp", "mpc"),
            "server": Key("@modelcontextprotocol/server-filesystem", ""),
            "transport": Key("http", "streamable-http", {**_REMOTE}),
            "command": Key("npx", "python"),
            "args": Key(["-y", "@modelcontextprotocol/server-filesystem", "data"], "data", {"server": "files"}),
            "env": Key({"LOG_LEVEL": "debug"}, ["LOG_LEVEL=debug"]),
            "envFile": Key("server.env", "missing.env"),
            "encoding": Key("latin-1", "utf-9"),
            "cwd": Key("data", ""),
            "url": Key("https://mcp.example.com/mcp", LEFT_OUT, _REMOTE),
            "headers": Key({"Authorization": "Bearer ${API_TOKEN}"}, "Authorization: Bearer ${API_TOKEN}", _REMOTE),
            "timeout": Key(10, 0, _REMOTE),
            "sse_read_timeout": Key(600, "10m", _REMOTE),
            "terminate_on_close": Key(False, "no", _REMOTE),
            "allow_insecure_hosts": Key(
                ["tools.internal"], "tools.internal", {**_REMOTE, "url": "http://tools.internal/mcp"}
            ),
            "auth": Key({"type": "bearer", "token": "${API_TOKEN}"}, {"type": "basic"}, _REMOTE),
            "caller_authorization": Key(True, "yes", _REMOTE),
            "config": Key({"allowed_directories": ["data"]}, ["data"]),
            "load_tools": Key(False, "off"),
            "load_prompts": Key(False, "off"),
            "load_resources": Key(True, "on"),
            "request_timeout": Key(120, 0),
            "max_concurrent_calls": Key(4, 0),
            "startup_timeout": Key(30, "30s"),
            "protocol": Key("legacy", "2025-11-25"),
            "enabled": Key(False, "off"),
            "required": Key(True, 1),
            "allowed_tools": Key(["read_*", "list_directory"], "read_*"),
            "denied_tools": Key(["write_file"], "write_file"),
            "approval": Key({"always": ["write_*"]}, "sometimes"),
            "sampling": Key("allow", "yes"),
            "idempotent_tools": Key(["read_*"], "read_*"),
            "roots": Key(["data"], "data"),
            "max_result_bytes": Key(1048576, 100),
            "sandbox": Key(True, "yes"),
            "allow_unsafe_args": Key(True, "yes"),
            "env_file": Key("server.env", "missing.env"),
        },
    ),
    Group(
        definition="Approval",
        path="tools[].approval.",
        title="Keys of approval",
        about="`approval` is `never`, `always`, or a mapping with these keys. Entries are names or globs.",
        file=_agent(tools=[{**_STDIO, "approval": {}}]),
        at=("tools", 0, "approval"),
        keys={
            "always": Key(["write_*", "delete_*"], "write_*"),
            "never": Key(["write_log"], "write_log"),
        },
    ),
    Group(
        definition="Sandbox",
        path="tools[].sandbox.",
        title="Keys of sandbox",
        about="`sandbox` is `true`, `false`, or a mapping with these keys. Paths are relative to the file.",
        file=_agent(tools=[{**_STDIO, "sandbox": {}}]),
        at=("tools", 0, "sandbox"),
        keys={
            "network": Key(False, "off"),
            "read": Key(["data"], "data"),
            "write": Key(["output"], "output"),
        },
    ),
    Group(
        definition="BearerAuth",
        path="tools[].auth.",
        variant="bearer",
        title="Keys of auth: a fixed token",
        about="`auth` with `type: bearer` sends one token with every request.",
        file=_agent(tools=[{**_HTTP, "auth": {"type": "bearer", "token": "${API_TOKEN}"}}]),
        at=("tools", 0, "auth"),
        keys={
            "type": Key("bearer", "baerer"),
            "token": Key("${API_TOKEN}", LEFT_OUT),
        },
    ),
    Group(
        definition="OAuthClientCredentials",
        path="tools[].auth.",
        variant="oauth_client_credentials",
        title="Keys of auth: OAuth without a user",
        about="`auth` with `type: oauth_client_credentials` fetches tokens for the program itself.",
        file=_agent(tools=[{**_HTTP, "auth": _CREDENTIALS}]),
        at=("tools", 0, "auth"),
        keys={
            "type": Key("oauth_client_credentials", "oauth"),
            "client_id": Key("holodeck", LEFT_OUT),
            "client_secret": Key("${CLIENT_SECRET}", "${NOT_SET}"),
            "private_key_file": Key("client.pem", "missing.pem", {"client_secret": None}),
            "signing_algorithm": Key("ES256", "", _BY_PRIVATE_KEY),
            "assertion_file": Key("assertion.jwt", "missing.jwt", {"client_secret": None}),
            "token_url": Key("https://login.example.com/token", "login.example.com/token", {"issuer": None}),
            "issuer": Key("https://login.example.com", LEFT_OUT),
            "auth_method": Key("client_secret_post", "post"),
            "scopes": Key(["tickets.read"], "tickets.read"),
            "resource": Key("https://mcp.example.com/mcp", ""),
            "dpop": Key(True, "yes"),
        },
    ),
    Group(
        definition="OAuthAuthorizationCode",
        path="tools[].auth.",
        variant="oauth_authorization_code",
        title="Keys of auth: OAuth with a browser",
        about="`auth` with `type: oauth_authorization_code` uses the login of a person: `holodeck mcp login SERVER`.",
        file=_agent(tools=[{**_HTTP, "auth": {"type": "oauth_authorization_code"}}]),
        at=("tools", 0, "auth"),
        keys={
            "type": Key("oauth_authorization_code", "oauth"),
            "client_id": Key("holodeck", ""),
            "client_secret": Key(
                "${CLIENT_SECRET}", "${NOT_SET}", {"client_id": "holodeck", "issuer": "https://login.example.com"}
            ),
            "client_metadata_url": Key("https://example.com/holodeck.json", ""),
            "issuer": Key("https://login.example.com", "login.example.com"),
            "scopes": Key(["tickets.read"], "tickets.read"),
            "redirect_port": Key(8976, 70000),
            "dpop": Key(True, "yes"),
        },
    ),
    Group(
        definition="FunctionTool",
        path="tools[].",
        variant="function",
        title="Keys of a Python function",
        about="An entry with `type: function` is a function of your project.",
        file=_agent(tools=[{"name": "price", "type": "function", "file": "tools/prices.py", "function": "price"}]),
        at=("tools", 0),
        keys={
            "name": Key("price", "the price"),
            "description": Key("Price of a product in euros", ""),
            "type": Key("function", "python"),
            "file": Key("tools/prices.py", "tools/missing.py"),
            "function": Key("price", "prices.price"),
            "parameters": Key({"type": "object", "properties": {"product": {"type": "string"}}}, "product"),
            "request_timeout": Key(5, 0),
        },
    ),
    Group(
        definition="TestCase",
        path="test_cases[].",
        title="Keys of a test case",
        about="Questions that `holodeck test` asks, with what should happen.",
        file=_agent(test_cases=[{"input": "What is 1 + 2?"}]),
        at=("test_cases", 0),
        keys={
            "name": Key("adds", ""),
            "input": Key("What is 1 + 2?", LEFT_OUT),
            "expected_tools": Key(["calc.add"], "calc.add"),
            "ground_truth": Key("3", 3),
            "ground_truth_by": Key("number", "bleu", {"ground_truth": "3"}),
            "contains": Key(["3", "sum"], 3),
            "equals": Key("3", 3),
            "matches": Key("^[0-9]+$", "(["),
            "json": Key({"values": {"$.sum": 3}}, {"values": {"sum": 3}}),
            "similar": Key("The sum of one and two is three.", {"at_least": 0.6}),
            "judge": Key({"rubric": "Names the sum and nothing else.", "model": _OPENAI}, "Names the sum."),
            "tools": Key({"called": ["calc.add"], "at_most": 2}, ["calc.add"]),
            "forbidden": Key({"texts": ["I think"], "tools": ["files"]}, ["I think"]),
            "max_turns": Key(3, 0),
            "max_tokens": Key(2000, 0),
            "max_seconds": Key(20, 0),
        },
    ),
    Group(
        definition="ExpectedTool",
        path="test_cases[].expected_tools[].",
        title="Keys of an expected tool",
        about="An entry of `expected_tools` is a name, or a mapping with these keys.",
        file=_agent(test_cases=[{"input": "What is 1 + 2?", "expected_tools": [{"name": "add"}]}]),
        at=("test_cases", 0, "expected_tools", 0),
        keys={
            "name": Key("calc.add", LEFT_OUT),
            "arguments": Key({"a": 1}, [1, 2]),
        },
    ),
    Group(
        definition="JSONExpectation",
        path="test_cases[].json.",
        title="Keys of json",
        file=_case(json={"values": {"$.sum": 3}}),
        at=("test_cases", 0, "json"),
        keys={
            "schema": Key({"type": "object", "required": ["sum"]}, {"type": "objekt"}),
            "values": Key({"$.items[0].price": 9.5}, {"items[0].price": 9.5}),
            "tolerance": Key(0.01, -1),
        },
    ),
    Group(
        definition="SimilarText",
        path="test_cases[].similar.",
        title="Keys of similar",
        about="`similar` is a text, or a mapping with these keys.",
        file=_case(similar={"to": "The sum of one and two is three."}),
        at=("test_cases", 0, "similar"),
        keys={"to": Key("The sum of one and two is three.", LEFT_OUT), "at_least": Key(0.6, 60)},
    ),
    Group(
        definition="JudgeExpectation",
        path="test_cases[].judge.",
        title="Keys of judge",
        about="`judge` is a rubric, or a mapping with these keys. The model under test must not judge itself.",
        file=_case(judge={"rubric": "Names the sum and nothing else.", "model": _OPENAI}),
        at=("test_cases", 0, "judge"),
        keys={
            "rubric": Key("Names the sum and nothing else.", LEFT_OUT),
            "model": Key(_OPENAI, {"provider": "rehearsal"}),
            "allow_same_model": Key(example=True, wrong="sometimes", beside={"model": {"provider": "rehearsal"}}),
        },
    ),
    Group(
        definition="ToolExpectation",
        path="test_cases[].tools.",
        title="Keys of tools of a test case",
        file=_case(tools={}),
        at=("test_cases", 0, "tools"),
        keys={
            "called": Key([{"name": "calc.add", "times": 2}], "calc.add"),
            "not_called": Key(["files.write_file"], "files.write_file"),
            "order": Key(["files.read_text_file", "calc.add"], "calc.add"),
            "at_most": Key({"calc.add": 2}, -1),
        },
    ),
    Group(
        definition="ExpectedCall",
        path="test_cases[].tools.called[].",
        title="Keys of a tool that must be called",
        about="An entry of `called` is a name, or a mapping with these keys.",
        file=_case(tools={"called": [{"name": "add"}]}),
        at=("test_cases", 0, "tools", "called", 0),
        keys={
            "name": Key("calc.add", LEFT_OUT),
            "arguments": Key({"a": 1}, [1, 2]),
            "times": Key(2, 0),
        },
    ),
    Group(
        definition="ForbiddenOutput",
        path="test_cases[].forbidden.",
        title="Keys of forbidden",
        file=_case(forbidden={}),
        at=("test_cases", 0, "forbidden"),
        keys={"tools": Key(["files.write_file"], "files"), "texts": Key(["password"], "password")},
    ),
    Group(
        definition="TestSettings",
        path="test_settings.",
        title="Keys of test settings",
        file=_case(test_settings={}),
        at=("test_settings",),
        keys={
            "ground_truth_by": Key("contains", "bleu"),
            "similar_at_least": Key(0.6, 60),
            "judge": Key(_OPENAI, "gpt-5-mini"),
            "models": Key({"small": _OPENAI}, {"small": "gpt-5-mini"}),
        },
    ),
)

GATEWAY_GROUPS = (
    Group(
        definition="",
        path="",
        title="The file itself",
        file=_gateway(),
        at=(),
        keys={
            "listen": Key({"port": 9000}, 9000),
            "models": Key([{"name": "small", "model": {"provider": "rehearsal"}}], "gpt-5-mini"),
            "agents": Key([{"file": "agent.yaml"}], [{"file": "missing.yaml"}]),
            "mcp_servers": Key([{"name": "tickets", "transport": "http", "url": "https://mcp.example.com/mcp"}], {}),
            "mcp_connect": Key("start", "never"),
            "keys": Key([{"name": "alice", "hash": "sha256:" + "0" * 64}], ["alice"]),
            "jwt": Key({"issuer": "https://login.example.com", "audience": "holodeck", "jwks_file": "keys.json"}, True),
            "auth": Key("none", "no"),
            "storage": Key({"url": "sqlite:///data/holodeck.db"}, "sqlite:///data/holodeck.db"),
            "background": Key({"at_once": 8}, True),
            "limits": Key({"in_flight": 200}, 200),
            "reload": Key({"watch": False}, False),
            "compaction": Key({"target_tokens": 8000}, 8000),
            "log": Key({"format": "json"}, "json"),
            "metrics": Key({"by_caller": True}, True),
            "audit": Key({"file": "audit.jsonl"}, "audit.jsonl"),
            "otel": Key({"endpoint": "http://127.0.0.1:4318"}, "http://127.0.0.1:4318"),
            "cors_origins": Key(["https://app.example.com"], "https://app.example.com"),
            "mcp_endpoint": Key({"enabled": False}, False),
            "request_servers": Key({"allow": True}, True),
            "builtin_tools": Key({"web_search": "tickets.find"}, "tickets.find", {"mcp_servers": [_SERVER]}),
            "request_files": Key({"allow": True}, True),
            "allow_stdio": Key(True, "yes"),
            "allowed_commands": Key(["python", "/opt/tools/server"], "python"),
            "seal_key": Key("${SEAL_KEY}", "${SHORT}"),
            "mcp_output": Key("openai", "open_ai"),
            "seal_key_file": Key("seal.key", "missing.key"),
        },
    ),
    Group(
        definition="Listen",
        path="listen.",
        title="Keys of listen",
        file=_gateway(listen={}),
        at=("listen",),
        keys={
            "host": Key("127.0.0.1", "0.0.0.0"),  # noqa: S104 - the wrong value of the example
            "port": Key(9000, 90000),
            "allowed_hosts": Key(["gateway.example.com"], "gateway.example.com"),
            "trusted_proxies": Key(["10.20.0.0/16"], ["proxy.example.com"]),
            "closes_first": Key(True, "yes"),
        },
    ),
    Group(
        definition="ServedModel",
        path="models[].",
        title="Keys of a served model",
        about="Each entry is a model under a name of your choice.",
        file=_gateway(),
        at=("models", 0),
        keys={
            "name": Key("small", "small model"),
            "model": Key(_OPENAI, LEFT_OUT),
            "instructions": Key("Answer in one sentence.", ""),
            "use_mcp": Key(False, "no"),
        },
    ),
    Group(
        definition="ServedAgent",
        path="agents[].",
        title="Keys of a served agent",
        about="Each entry is an agent file, served as if it were a model.",
        file=_gateway(agents=[{"file": "agent.yaml"}]),
        at=("agents", 0),
        keys={
            "file": Key("agent.yaml", "missing.yaml"),
            "name": Key("helper", "my helper"),
        },
    ),
    Group(
        definition="CallerKey",
        path="keys[].",
        title="Keys of a caller",
        about="Each entry is a caller. `holodeck keys create NAME` prints the entry and the key.",
        file=_gateway(models=_PRICED, keys=[{"name": "alice", "hash": "sha256:" + "0" * 64}]),
        at=("keys", 0),
        keys={
            "name": Key("alice", "alice smith"),
            "id": Key("qkzvhtwbarme", "Alice"),
            "hash": Key("sha256:" + "0" * 64, "hd_0123456789"),
            "admin": Key(True, "yes"),
            "allow": Key({"models": ["small"], "tools": ["*.*", "!*.delete_*"]}, ["small"]),
            "limits": Key({"requests_per_minute": 60}, 60),
            "budget": Key({"amount": 20, "period": "month"}, 20),
            "old_hash": Key("sha256:" + "1" * 64, "hd_0123456789", {"old_hash_expires": "2030-01-31T12:00:00Z"}),
            "old_hash_expires": Key("2030-01-31T12:00:00Z", "2030-01-31T12:00:00", {"old_hash": "sha256:" + "1" * 64}),
        },
    ),
    Group(
        definition="Scope",
        path="keys[].allow.",
        title="Keys of a scope",
        about="What a caller may use: `allow` of a key, of `jwt`, and of each value of `jwt.allow_by_claim`. A list "
        "has names and globs. One that begins with `!` denies, and wins over all others. A list that is absent allows "
        "everything of its kind, `[]` nothing, and a list with only denials all the rest.",
        file=_gateway(keys=[{"name": "alice", "hash": "sha256:" + "0" * 64, "allow": {}}]),
        at=("keys", 0, "allow"),
        keys={
            "models": Key(["small", "!small-old"], "small"),
            "agents": Key(["*"], [""]),
            "servers": Key(["*"], ["!"]),
            "tools": Key(["*.get_*", "!*.get_secret"], ["github"]),
            "prompts": Key(["github.review_*"], ["github"]),
        },
    ),
    Group(
        definition="KeyLimits",
        path="limits.key.",
        title="Keys of a caller's limits",
        about="Limits of one caller: `limits.key` for every caller, `limits` of an entry of `keys` for that one.",
        file=_gateway(limits={"key": {}}),
        at=("limits", "key"),
        keys={
            "in_flight": Key(16, 0),
            "background": Key(10, 0),
            "requests_per_minute": Key(60, 0),
            "tokens_per_minute": Key(100000, 0),
            "sockets": Key(4, -1),
            "mcp_streams": Key(16, -1),
        },
    ),
    Group(
        definition="Budget",
        path="keys[].budget.",
        title="Keys of a budget",
        about="What one caller may spend on models: `budget` of an entry of `keys` for that one, `limits.key_budget` "
        "for each of the others. Every model that the caller may use needs a `price`.",
        file=_gateway(models=_PRICED, limits={"key_budget": {"amount": 20, "period": "month"}}),
        at=("limits", "key_budget"),
        keys={"amount": Key(20, 0), "period": Key("month", "year")},
    ),
    Group(
        definition="JWTCallers",
        path="jwt.",
        title="Keys of jwt",
        about="Callers that show a token of an identity provider instead of a key.",
        file=_gateway(
            jwt={
                "issuer": "https://login.example.com",
                "audience": "holodeck",
                "jwks_url": "https://login.example.com/keys",
            }
        ),
        at=("jwt",),
        keys={
            "issuer": Key("https://login.example.com", LEFT_OUT),
            "audience": Key("holodeck", LEFT_OUT),
            "jwks_url": Key("https://login.example.com/keys", "http://login.example.com/keys"),
            "jwks_file": Key("keys.json", "missing.json", {"jwks_url": None}),
            "caller_claim": Key("email", ""),
            "admin_scope": Key("holodeck.admin", ""),
            "algorithms": Key(["RS256"], ["HS256"]),
            "allow": Key({"models": ["small"]}, {"model": ["small"]}),
            "allow_by_claim": Key({"claim": "groups", "values": {"admins": {}}}, {"groups": {"admins": {}}}),
        },
    ),
    Group(
        definition="ClaimScopes",
        path="jwt.allow_by_claim.",
        title="Keys of jwt.allow_by_claim",
        about="A token may use what any of its values allows. One without a value that is listed may use what "
        "`jwt.allow` says, and nothing if that is absent.",
        file=_gateway(
            jwt={
                "issuer": "https://login.example.com",
                "audience": "holodeck",
                "jwks_url": "https://login.example.com/keys",
                "allow_by_claim": {"claim": "groups", "values": {"admins": {}}},
            }
        ),
        at=("jwt", "allow_by_claim"),
        keys={
            "claim": Key("groups", ""),
            "values": Key({"admins": {}, "readers": {"tools": ["*.get_*"]}}, ["admins"]),
        },
    ),
    Group(
        definition="Storage",
        path="storage.",
        title="Keys of storage",
        file=_gateway(storage={}),
        at=("storage",),
        keys={
            "url": Key("sqlite:///data/holodeck.db", "data/holodeck.db"),
            "retention_days": Key(7, 0),
            "usage_days": Key(400, 7),
            "durability": Key("safe", "save"),
            "url_file": Key("database.url", "missing.url"),
        },
    ),
    Group(
        definition="BackgroundRuns",
        path="background.",
        title="Keys of background",
        file=_gateway(background={}),
        at=("background",),
        keys={
            "durable": Key(False, "no"),
            "at_once": Key(8, 0),
            "model_wait_seconds": Key(60, -1),
        },
    ),
    Group(
        definition="GatewayLimits",
        path="limits.",
        title="Keys of limits",
        file=_gateway(models=_PRICED, limits={}),
        at=("limits",),
        keys={
            "in_flight": Key(200, 0),
            "body_bytes": Key(8388608, 100),
            "bodies_bytes": Key(67108864, 1048576),
            "context_bytes": Key(16777216, 100),
            "answer_bytes": Key(4194304, 100),
            "response_bytes": Key(16777216, 100),
            "max_turns": Key(20, 0),
            "discovery_seconds": Key(5, 0),
            "request_seconds": Key(30, 0),
            "reader_seconds": Key(120, 0),
            "silent_seconds": Key(10, 0),
            "drain_seconds": Key(60, -1),
            "sockets": Key(100, -1),
            "mcp_streams": Key(1000, -1),
            "socket_seconds": Key(600, 7200),
            "key": Key({"requests_per_minute": 60}, 60),
            "key_budget": Key({"amount": 5, "period": "day"}, 5),
        },
    ),
    Group(
        definition="Log",
        path="log.",
        title="Keys of log",
        file=_gateway(log={}),
        at=("log",),
        keys={
            "format": Key("json", "jsonl"),
            "level": Key("warning", "warn"),
        },
    ),
    Group(
        definition="MetricsSettings",
        path="metrics.",
        title="Keys of metrics",
        about="See [metrics and alerts](../operate/metrics-and-alerts.md).",
        file=_gateway(metrics={}),
        at=("metrics",),
        keys={
            "by_caller": Key(True, "yes"),
            "max_callers": Key(20, 0),
        },
    ),
    Group(
        definition="Audit",
        path="audit.",
        title="Keys of audit",
        about="See [audit log](../operate/audit-log.md).",
        file=_gateway(audit={"file": "audit.jsonl"}),
        at=("audit",),
        keys={
            "file": Key("audit.jsonl", ""),
            "logger": Key(True, "yes"),
            "values": Key(True, "yes"),
            "durability": Key("safe", "sure"),
            "on_failure": Key("continue", "ignore"),
        },
    ),
    Group(
        definition="Reload",
        path="reload.",
        title="Keys of reload",
        about="See [changing the configuration](../operate/changing-configuration.md).",
        file=_gateway(reload={}),
        at=("reload",),
        keys={
            "watch": Key(False, "no"),
        },
    ),
    Group(
        definition="OTel",
        path="otel.",
        title="Keys of otel",
        file=_gateway(otel={"endpoint": "https://collector.example.com"}),
        at=("otel",),
        keys={
            "endpoint": Key("http://127.0.0.1:4318", "127.0.0.1:4318"),
            "headers": Key({"api-key": "${COLLECTOR_KEY}"}, "api-key: ${COLLECTOR_KEY}"),
            "allow_insecure_hosts": Key(["collector.internal"], "collector.internal"),
            "service_name": Key("support-agents", ""),
            "sample_ratio": Key(0.1, 10),
        },
    ),
    Group(
        definition="CompactionSettings",
        path="compaction.",
        title="Keys of compaction",
        about="Summaries of long conversations, where a client asks for them.",
        file=_gateway(compaction={}),
        at=("compaction",),
        keys={
            "model": Key("small", "gone"),
            "target_tokens": Key(8000, 10),
        },
    ),
    Group(
        definition="MCPEndpointSettings",
        path="mcp_endpoint.",
        title="Keys of mcp_endpoint",
        about="The gateway is an MCP server for other programs, at `/mcp` for all its servers and at `/mcp/NAME` for "
        "one of them, with the same keys as every route.",
        file=_gateway(mcp_endpoint={}),
        at=("mcp_endpoint",),
        keys={
            "enabled": Key(False, "no"),
            "agents": Key(False, "no"),
            "public_url": Key("https://gateway.example.com", "gateway.example.com"),
        },
    ),
    Group(
        definition="RequestServers",
        path="request_servers.",
        title="Keys of request_servers",
        about="MCP servers that a request names by URL. They are refused unless `allow` is true.",
        file=_gateway(request_servers={"allow": True}),
        at=("request_servers",),
        keys={
            "allow": Key(True, "yes"),
            "hosts": Key(["mcp.example.com"], ["https://mcp.example.com"]),
            "allow_private_hosts": Key(["10.20.0.0/16"], "10.20.0.0/16"),
            "allow_insecure_hosts": Key(["tools.internal"], "tools.internal"),
            "max_per_request": Key(2, 0),
        },
    ),
    Group(
        definition="BuiltinTools",
        path="builtin_tools.",
        title="Keys of builtin_tools",
        about="Tools that OpenAI's API runs itself. Here a tool of one of the `mcp_servers` does.",
        file=_gateway(mcp_servers=[_SERVER], builtin_tools={}),
        at=("builtin_tools",),
        keys={
            "web_search": Key("tickets.search_web", "search_web"),
            "web_fetch": Key("tickets.read_page", "read_page"),
            "file_search": Key("tickets.find", "files.find"),
            "code_interpreter": Key("tickets.run_python", "run_python"),
            "image_generation": Key("tickets.draw", "draw"),
        },
    ),
    Group(
        definition="RequestFiles",
        path="request_files.",
        title="Keys of request_files",
        about="Files that a request names by URL. They are refused unless `allow` is true.",
        file=_gateway(request_files={"allow": True}),
        at=("request_files",),
        keys={
            "allow": Key(True, "yes"),
            "hosts": Key(["files.example.com"], ["https://files.example.com"]),
            "allow_private_hosts": Key(["10.20.0.0/16"], "10.20.0.0/16"),
            "allow_insecure_hosts": Key(["files.internal"], "files.internal"),
            "max_bytes": Key(1048576, 0),
            "max_seconds": Key(10, 0),
        },
    ),
)

CONFIG_GROUPS = (
    Group(
        definition="",
        path="",
        title="The file itself",
        file={},
        at=(),
        keys={
            "mcp_servers": Key([{"name": "time", "command": "uvx", "server": "mcp-server-time"}], {"time": {}}),
            "allowed_commands": Key(["python", "/opt/tools/server"], "python"),
            "registry": Key("https://registry.example.com", ["https://registry.example.com"]),
        },
    ),
)
