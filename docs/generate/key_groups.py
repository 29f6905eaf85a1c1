"""The groups of keys of each configuration file.

The docstring of a field ends with an example and a wrong value: "E.g. `9000`, not `90000`.". They are put into
`Group.file` at `Group.at`. `file_page` loads the result: an example must be valid, a wrong value must not be, and the
page shows the error that it really gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from holodeck.config.json_schema import field_docstrings, file_models

_EXAMPLE = re.compile(r"E\.g\. `(.*?)`, not (?:`(.*?)`|absent)(?:, beside `(.*?)`)?\.$")
LEFT_OUT = object()
"""As a wrong value: the key is not there."""


@dataclass(frozen=True)
class Key:
    """How one key is shown: a valid value, a wrong one, and other keys that both need beside them."""

    example: Any
    wrong: Any
    beside: Mapping[str, Any] = field(default_factory=dict)


def read_keys(model: str) -> dict[str, Key]:
    """Return the keys of a mapping as the docstrings of its fields show them; not those without an example."""
    texts = {name: " ".join(text.split()) for name, text in field_docstrings(file_models()[model]).items()}
    found = {name: match for name, text in texts.items() if (match := _EXAMPLE.search(text))}
    return {name: _parse_key(*match.groups()) for name, match in found.items()}


def _parse_key(example: str, wrong: str | None, beside: str | None) -> Key:
    wrong_value = LEFT_OUT if wrong is None else yaml.safe_load(wrong)
    return Key(yaml.safe_load(example), wrong_value, yaml.safe_load(beside or "{}"))


@dataclass(frozen=True, kw_only=True)
class Group:
    """The keys of one mapping of a file."""

    model: str
    """Name of the model of the mapping."""
    is_file: bool = False
    """Whether the mapping is the file itself."""
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
    other_keys: Mapping[str, Key] = field(default_factory=dict)
    """Of keys that are no fields, and of fields that are shown in another way here."""

    @property
    def definition(self) -> str:
        """Name of the mapping in the JSON Schema; empty for the file itself."""
        return "" if self.is_file else self.model

    @cached_property
    def keys(self) -> Mapping[str, Key]:
        return read_keys(self.model) | dict(self.other_keys)


_STDIO = {"name": "files", "type": "mcp", "command": "npx", "server": "@modelcontextprotocol/server-filesystem"}
_HTTP = {"name": "tickets", "type": "mcp", "transport": "http", "url": "https://mcp.example.com/mcp"}
_SERVER = {"name": "tickets", "transport": "http", "url": "https://mcp.example.com/mcp"}
_LOGIN = {
    "issuer": "https://login.example.com",
    "audience": "holodeck",
    "jwks_url": "https://login.example.com/keys",
    "login": {"client_id": "holodeck"},
}
_CLIENT = {"id": "editor", "redirect_uris": ["http://127.0.0.1/callback"]}
_OPENAI = {"provider": "openai", "name": "gpt-5-mini"}

_PRICE = {"input": 0.25, "output": 2}


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

_DEPLOYED = {
    "provider": "azure_openai",
    "name": "gpt-5-mini",
    "api_key": "${MODEL_KEY}",
    "deployments": [{"endpoint": "https://me.openai.azure.com"}],
}

AGENT_GROUPS = (
    Group(
        model="Agent",
        is_file=True,
        path="",
        title="The file itself",
        file=_agent(),
        at=(),
    ),
    Group(
        model="LLM",
        path="model.",
        title="Keys of model",
        about="The model that answers, and how it is asked. The `rehearsal` model needs no key and no network.",
        file=_agent(model=_OPENAI),
        at=("model",),
    ),
    Group(
        model="Price",
        path="model.price.",
        title="The price of a model",
        about="Per million tokens. It wins over the price table that comes with HoloDeck: see `holodeck prices`.",
        file=_agent(model={**_OPENAI, "price": {"input": 0.25, "output": 2}}),
        at=("model", "price"),
    ),
    Group(
        model="LongPromptPrices",
        path="model.price.long_prompts[].",
        title="The price of long prompts",
        about="Prices of a whole turn whose prompt has more tokens than `above`, its output included.",
        file=_agent(
            model={
                **_OPENAI,
                "price": {**_PRICE, "long_prompts": [{"above": 200_000, "input": 0.5, "output": 3}]},
            }
        ),
        at=("model", "price", "long_prompts", 0),
    ),
    Group(
        model="TierPrices",
        path="model.price.service_tiers.NAME.",
        title="The price of a service tier",
        about="Prices of turns for which the provider reports this tier.",
        file=_agent(model={**_OPENAI, "price": {**_PRICE, "service_tiers": {"flex": {"input": 0.125, "output": 1}}}}),
        at=("model", "price", "service_tiers", "flex"),
    ),
    Group(
        model="Deployment",
        path="model.deployments[].",
        title="Keys of a deployment",
        about="The same model at another address or with another key. Limits are those of one gateway.",
        file=_agent(model=_DEPLOYED),
        at=("model", "deployments", 0),
    ),
    Group(
        model="InstructionsSource",
        path="instructions.",
        title="Keys of instructions",
        about="Instructions are a text, or a mapping with one of these keys.",
        file=_agent(instructions={}),
        at=("instructions",),
    ),
    Group(
        model="MCPTool",
        path="tools[].",
        title="Keys of an MCP server",
        about=(
            "An entry with `type: mcp` is an MCP server. `command` starts one on this machine; `transport` and `url` "
            "reach one over the network. In `gateway.yaml` and `config.yaml` the same keys stand under `mcp_servers`, "
            "where `type` may be left out."
        ),
        file=_agent(tools=[_STDIO]),
        at=("tools", 0),
        other_keys={
            "env_file": Key("server.env", "missing.env"),
        },
    ),
    Group(
        model="Approval",
        path="tools[].approval.",
        title="Keys of approval",
        about="`approval` is `never`, `always`, or a mapping with these keys. Entries are names or globs.",
        file=_agent(tools=[{**_STDIO, "approval": {}}]),
        at=("tools", 0, "approval"),
    ),
    Group(
        model="Sandbox",
        path="tools[].sandbox.",
        title="Keys of sandbox",
        about="`sandbox` is `true`, `false`, or a mapping with these keys. Paths are relative to the file.",
        file=_agent(tools=[{**_STDIO, "sandbox": {}}]),
        at=("tools", 0, "sandbox"),
    ),
    Group(
        model="BearerAuth",
        path="tools[].auth.",
        variant="bearer",
        title="Keys of auth: a fixed token",
        about="`auth` with `type: bearer` sends one token with every request.",
        file=_agent(tools=[{**_HTTP, "auth": {"type": "bearer", "token": "${API_TOKEN}"}}]),
        at=("tools", 0, "auth"),
    ),
    Group(
        model="OAuthClientCredentials",
        path="tools[].auth.",
        variant="oauth_client_credentials",
        title="Keys of auth: OAuth without a user",
        about="`auth` with `type: oauth_client_credentials` fetches tokens for the program itself.",
        file=_agent(tools=[{**_HTTP, "auth": _CREDENTIALS}]),
        at=("tools", 0, "auth"),
    ),
    Group(
        model="OAuthAuthorizationCode",
        path="tools[].auth.",
        variant="oauth_authorization_code",
        title="Keys of auth: OAuth with a browser",
        about="`auth` with `type: oauth_authorization_code` uses the login of a person: `holodeck mcp login SERVER`.",
        file=_agent(tools=[{**_HTTP, "auth": {"type": "oauth_authorization_code"}}]),
        at=("tools", 0, "auth"),
    ),
    Group(
        model="FunctionTool",
        path="tools[].",
        variant="function",
        title="Keys of a Python function",
        about="An entry with `type: function` is a function of your project.",
        file=_agent(tools=[{"name": "price", "type": "function", "file": "tools/prices.py", "function": "price"}]),
        at=("tools", 0),
    ),
    Group(
        model="AgentTool",
        path="tools[].",
        variant="agent",
        title="Keys of another agent",
        about="An entry with `type: agent` is another agent, which the model may ask.",
        file=_agent(tools=[{"name": "ask_librarian", "type": "agent", "file": "librarian.yaml"}]),
        at=("tools", 0),
    ),
    Group(
        model="TestCase",
        path="test_cases[].",
        title="Keys of a test case",
        about="Questions that `holodeck test` asks, with what should happen.",
        file=_agent(test_cases=[{"input": "What is 1 + 2?"}]),
        at=("test_cases", 0),
    ),
    Group(
        model="ExpectedTool",
        path="test_cases[].expected_tools[].",
        title="Keys of an expected tool",
        about="An entry of `expected_tools` is a name, or a mapping with these keys.",
        file=_agent(test_cases=[{"input": "What is 1 + 2?", "expected_tools": [{"name": "add"}]}]),
        at=("test_cases", 0, "expected_tools", 0),
    ),
    Group(
        model="JSONExpectation",
        path="test_cases[].json.",
        title="Keys of json",
        file=_case(json={"values": {"$.sum": 3}}),
        at=("test_cases", 0, "json"),
    ),
    Group(
        model="SimilarText",
        path="test_cases[].similar.",
        title="Keys of similar",
        about="`similar` is a text, or a mapping with these keys.",
        file=_case(similar={"to": "The sum of one and two is three."}),
        at=("test_cases", 0, "similar"),
    ),
    Group(
        model="JudgeExpectation",
        path="test_cases[].judge.",
        title="Keys of judge",
        about="`judge` is a rubric, or a mapping with these keys. The model under test must not judge itself.",
        file=_case(judge={"rubric": "Names the sum and nothing else.", "model": _OPENAI}),
        at=("test_cases", 0, "judge"),
    ),
    Group(
        model="ToolExpectation",
        path="test_cases[].tools.",
        title="Keys of tools of a test case",
        file=_case(tools={}),
        at=("test_cases", 0, "tools"),
    ),
    Group(
        model="ExpectedCall",
        path="test_cases[].tools.called[].",
        title="Keys of a tool that must be called",
        about="An entry of `called` is a name, or a mapping with these keys.",
        file=_case(tools={"called": [{"name": "add"}]}),
        at=("test_cases", 0, "tools", "called", 0),
    ),
    Group(
        model="ForbiddenOutput",
        path="test_cases[].forbidden.",
        title="Keys of forbidden",
        file=_case(forbidden={}),
        at=("test_cases", 0, "forbidden"),
    ),
    Group(
        model="TestSettings",
        path="test_settings.",
        title="Keys of test settings",
        file=_case(test_settings={}),
        at=("test_settings",),
    ),
)

GATEWAY_GROUPS = (
    Group(
        model="GatewayFile",
        is_file=True,
        path="",
        title="The file itself",
        file=_gateway(),
        at=(),
        other_keys={
            "seal_key_file": Key("seal.key", "missing.key"),
        },
    ),
    Group(
        model="Listen",
        path="listen.",
        title="Keys of listen",
        file=_gateway(listen={}),
        at=("listen",),
    ),
    Group(
        model="ServedModel",
        path="models[].",
        title="Keys of a served model",
        about="Each entry is a model under a name of your choice.",
        file=_gateway(),
        at=("models", 0),
    ),
    Group(
        model="ServedAgent",
        path="agents[].",
        title="Keys of a served agent",
        about="Each entry is an agent file, served as if it were a model.",
        file=_gateway(agents=[{"file": "agent.yaml"}]),
        at=("agents", 0),
    ),
    Group(
        model="CallerKey",
        path="keys[].",
        title="Keys of a caller",
        about="Each entry is a caller. `holodeck keys create NAME` prints the entry and the key.",
        file=_gateway(
            models=_PRICED,
            groups=[{"name": "research"}],
            keys=[{"name": "alice", "hash": "sha256:" + "0" * 64}],
        ),
        at=("keys", 0),
    ),
    Group(
        model="CallerGroup",
        path="groups[].",
        title="Keys of a group",
        about="Each entry is a group of callers: keys that name it, and tokens by the values of a claim.",
        file=_gateway(
            models=_PRICED,
            groups=[{"name": "research"}],
            jwt={
                "issuer": "https://login.example.com",
                "audience": "holodeck",
                "jwks_url": "https://login.example.com/keys",
                "allow_by_claim": {"claim": "groups", "values": {"admins": {}}},
            },
        ),
        at=("groups", 0),
    ),
    Group(
        model="GroupLimits",
        path="groups[].limits.",
        title="Keys of a group's limits",
        about="Limits of all members of a group together, beside those of each of them. Each gateway counts by itself.",
        file=_gateway(groups=[{"name": "research", "limits": {}}]),
        at=("groups", 0, "limits"),
    ),
    Group(
        model="Scope",
        path="keys[].allow.",
        title="Keys of a scope",
        about="What a caller may use: `allow` of a key, of a group, of `jwt`, and of each value of "
        "`jwt.allow_by_claim`. A list has names and globs. One that begins with `!` denies, and wins over all others. "
        "A list that is absent allows everything of its kind, `[]` nothing, and a list with only denials all the rest.",
        file=_gateway(keys=[{"name": "alice", "hash": "sha256:" + "0" * 64, "allow": {}}]),
        at=("keys", 0, "allow"),
    ),
    Group(
        model="KeyLimits",
        path="limits.key.",
        title="Keys of a caller's limits",
        about="Limits of one caller: `limits.key` for every caller, `limits` of an entry of `keys` for that one.",
        file=_gateway(limits={"key": {}}),
        at=("limits", "key"),
    ),
    Group(
        model="Budget",
        path="keys[].budget.",
        title="Keys of a budget",
        about="What one caller may spend on models: `budget` of an entry of `keys` for that one, `limits.key_budget` "
        "for each of the others. Every model that the caller may use needs a `price`.",
        file=_gateway(models=_PRICED, limits={"key_budget": {"amount": 20, "period": "month"}}),
        at=("limits", "key_budget"),
    ),
    Group(
        model="JWTCallers",
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
    ),
    Group(
        model="ClaimScopes",
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
    ),
    Group(
        model="PersonLogin",
        path="jwt.login.",
        title="Keys of jwt.login",
        about="Persons log in to the console with the identity provider, and may do what their tokens may.",
        file=_gateway(
            jwt=_LOGIN,
        ),
        at=("jwt", "login"),
        other_keys={"client_secret_file": Key("login.secret", "missing.secret")},
    ),
    Group(
        model="TrustedHeader",
        path="jwt.trusted_header.",
        title="Keys of jwt.trusted_header",
        about="A proxy in front of the gateway authenticates persons, and names them in a header.",
        file=_gateway(
            jwt={
                "issuer": "https://login.example.com",
                "audience": "holodeck",
                "jwks_url": "https://login.example.com/keys",
                "trusted_header": {"name": "x-forwarded-user", "proxies": ["10.1.0.0/24"]},
            }
        ),
        at=("jwt", "trusted_header"),
    ),
    Group(
        model="Storage",
        path="storage.",
        title="Keys of storage",
        file=_gateway(storage={}),
        at=("storage",),
        other_keys={
            "url_file": Key("database.url", "missing.url"),
        },
    ),
    Group(
        model="BackgroundRuns",
        path="background.",
        title="Keys of background",
        file=_gateway(background={}),
        at=("background",),
    ),
    Group(
        model="GatewayLimits",
        path="limits.",
        title="Keys of limits",
        file=_gateway(models=_PRICED, limits={}),
        at=("limits",),
    ),
    Group(
        model="Log",
        path="log.",
        title="Keys of log",
        file=_gateway(log={}),
        at=("log",),
    ),
    Group(
        model="MetricsSettings",
        path="metrics.",
        title="Keys of metrics",
        about="See [metrics and alerts](../operate/metrics-and-alerts.md).",
        file=_gateway(metrics={}),
        at=("metrics",),
    ),
    Group(
        model="Audit",
        path="audit.",
        title="Keys of audit",
        about="See [audit log](../operate/audit-log.md).",
        file=_gateway(audit={"file": "audit.jsonl"}),
        at=("audit",),
    ),
    Group(
        model="Reload",
        path="reload.",
        title="Keys of reload",
        about="See [changing the configuration](../operate/changing-configuration.md).",
        file=_gateway(reload={}),
        at=("reload",),
    ),
    Group(
        model="OTel",
        path="otel.",
        title="Keys of otel",
        file=_gateway(otel={"endpoint": "https://collector.example.com"}),
        at=("otel",),
    ),
    Group(
        model="CompactionSettings",
        path="compaction.",
        title="Keys of compaction",
        about="Summaries of long conversations, where a client asks for them.",
        file=_gateway(compaction={}),
        at=("compaction",),
    ),
    Group(
        model="MCPEndpointSettings",
        path="mcp_endpoint.",
        title="Keys of mcp_endpoint",
        about="The gateway is an MCP server for other programs, at `/mcp` for all its servers and at `/mcp/NAME` for "
        "one of them, with the same keys as every route.",
        file=_gateway(mcp_endpoint={}, jwt=_LOGIN),
        at=("mcp_endpoint",),
    ),
    Group(
        model="MCPLogin",
        path="mcp_endpoint.login.",
        title="Keys of mcp_endpoint.login",
        about="MCP clients log in at the gateway, which sends their persons to the identity provider of `jwt.login`.",
        file=_gateway(mcp_endpoint={"login": {}}, jwt=_LOGIN),
        at=("mcp_endpoint", "login"),
    ),
    Group(
        model="MCPClientEntry",
        path="mcp_endpoint.login.clients[].",
        title="Keys of mcp_endpoint.login.clients",
        about="A client that registers itself, or is described by a document, needs no entry.",
        file=_gateway(mcp_endpoint={"login": {"clients": [_CLIENT]}}, jwt=_LOGIN),
        at=("mcp_endpoint", "login", "clients", 0),
    ),
    Group(
        model="ClientDocuments",
        path="mcp_endpoint.login.documents.",
        title="Keys of mcp_endpoint.login.documents",
        about="A client whose id is a URL describes itself there: its name, and where a browser may be sent back to.",
        file=_gateway(mcp_endpoint={"login": {"documents": {}}}, jwt=_LOGIN),
        at=("mcp_endpoint", "login", "documents"),
    ),
    Group(
        model="RequestServers",
        path="request_servers.",
        title="Keys of request_servers",
        about="MCP servers that a request names by URL. They are refused unless `allow` is true.",
        file=_gateway(request_servers={"allow": True}),
        at=("request_servers",),
    ),
    Group(
        model="BuiltinTools",
        path="builtin_tools.",
        title="Keys of builtin_tools",
        about="Tools that OpenAI's API runs itself. Here a tool of one of the `mcp_servers` does.",
        file=_gateway(mcp_servers=[_SERVER], builtin_tools={}),
        at=("builtin_tools",),
    ),
    Group(
        model="RequestFiles",
        path="request_files.",
        title="Keys of request_files",
        about="Files that a request names by URL. They are refused unless `allow` is true.",
        file=_gateway(request_files={"allow": True}),
        at=("request_files",),
        other_keys={
            "hosts": Key(["files.example.com"], ["https://files.example.com"]),
            "allow_insecure_hosts": Key(["files.internal"], "files.internal"),
        },
    ),
)

CONFIG_GROUPS = (
    Group(
        model="SharedSettings",
        is_file=True,
        path="",
        title="The file itself",
        file={},
        at=(),
    ),
    Group(
        model="NamedModel",
        path="models[].",
        title="Keys of a model",
        about="A model that agent files name by `use`.",
        file={"models": [{"name": "fast", "model": {"provider": "rehearsal"}}]},
        at=("models", 0),
    ),
)
