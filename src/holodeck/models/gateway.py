"""The models of `gateway.yaml`: models and agents that are served, callers, MCP servers, storage and limits."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from holodeck.lib.limits import (
    DEFAULT_ANSWER_BYTES,
    DEFAULT_CONTEXT_BYTES,
    DEFAULT_MAX_TURNS,
    DEFAULT_MCP_STREAMS,
    DEFAULT_REQUEST_SECONDS,
    DEFAULT_RESPONSE_BYTES,
    DEFAULT_SILENT_SECONDS,
    DEFAULT_SOCKETS,
    DISCOVERY_TIMEOUT,
    MAX_MAX_TURNS,
    MAX_REQUEST_TOOLS,
    MAX_TIMEOUT,
    MAX_TOOLS,
    MIB,
)
from holodeck.lib.secret import Secret
from holodeck.models.callers import Budget, CallerGroup, CallerKey, JWTCallers, KeyLimits
from holodeck.models.file_model import (
    Boolean,
    FileModel,
    Integer,
    Networks,
    NonEmpty,
    Number,
    PublicName,
    Violation,
    validate_with_rules,
)
from holodeck.models.llm import LLM
from holodeck.models.mcp_clients import MCPLogin, RequestHosts
from holodeck.models.tool import Tool
from holodeck.models.url import ALLOW_INSECURE, CLEARTEXT_KEY, is_sent_in_cleartext

# Seconds that a turn of a background response retries its model: enough for a restart or an overload.
DEFAULT_MODEL_WAIT = 600.0
# Bytes of one request: enough for a few images.
DEFAULT_BODY_BYTES = 32 * MIB
# Bytes of all requests at once; in memory they take up to eight times as much.
DEFAULT_BODIES_BYTES = 256 * MIB
# Requests at once. A further one is refused, not queued.
DEFAULT_IN_FLIGHT = 1_000
# Seconds for running requests after SIGTERM: orchestrators wait as long before they kill.
DEFAULT_DRAIN_SECONDS = 30.0
# Days that responses are stored: as in the OpenAI API.
DEFAULT_RETENTION_DAYS = 30.0
# MCP servers that one request may declare by URL.
DEFAULT_SERVERS_PER_REQUEST = 8
DEFAULT_FILE_BYTES = 8 * MIB
# As base64 it is as long as the content of a file that a request may have itself.
MAX_FILE_BYTES = 24 * MIB
# Seconds for all files of a request: their servers run already.
DEFAULT_FILE_SECONDS = 30.0
# Seconds in which a client reads nothing of its response: it sleeps, or its connection is lost.
DEFAULT_READER_SECONDS = 60.0
# Tokens of a compacted conversation: a summary of less would not be shorter.
MIN_TARGET_TOKENS = 1_000
# Seconds that a WebSocket may stay open: the Responses API closes one after an hour.
MAX_SOCKET_SECONDS = 3_600.0
# Callers with a label of their own: each has several series.
DEFAULT_MAX_CALLERS = 100
# Durable runs of one gateway at once. Further ones wait for any gateway with free capacity.
MAX_DURABLE_RUNS = 64

# Days of usage: two years can be compared.
DEFAULT_USAGE_DAYS = 800.0
# The longest period of a budget is a month, of which everything is needed.
MIN_USAGE_DAYS = 32

MCPOutput = Literal["openai", "portable"]


class Listen(FileModel):
    """The address on which the gateway listens."""

    host: NonEmpty = "127.0.0.1"
    """Address to listen on. Without keys, only a loopback address is allowed. E.g. `127.0.0.1`, not `0.0.0.0`."""
    port: Annotated[Integer, Field(ge=0, le=65535)] = 8080
    """Port to listen on. 0: any free port, which is printed. E.g. `9000`, not `90000`."""
    allowed_hosts: list[NonEmpty] = Field(default_factory=list)
    """Host names that requests may have in `Host`. Absent: `host` itself and the loopback names. E.g.
    `[gateway.example.com]`, not `gateway.example.com`."""
    trusted_proxies: Networks = Field(default_factory=list)
    """Addresses or networks of proxies, such as `10.20.0.0/16`, whose `X-Forwarded-For` names the client.

    For the addresses in the log and in the audit log. Absent: the header is ignored, and the address is that of the
    connection. E.g. `[10.20.0.0/16]`, not `[proxy.example.com]`.
    """
    closes_first: Boolean = False
    """On SIGTERM, refuse new connections instead of answering them with 503. For load balancers that do not check
    `/readyz` but use another gateway when one refuses a connection, such as nginx. E.g. `true`, not `'yes'`."""


class ServedModel(FileModel):
    """A plain model that is served under a public name."""

    name: PublicName
    """Public name, which clients send as `model`. E.g. `small`, not `small model`."""
    model: LLM
    """The model, as in an agent file. E.g. `{provider: openai, name: gpt-5-mini}`, not absent."""
    instructions: NonEmpty | None = None
    """Instructions for the model, sent before each conversation. E.g. `Answer in one sentence.`, not `''`."""
    use_mcp: Boolean = True
    """Whether the tools of the gateway's MCP servers are offered to the model. E.g. `false`, not `'no'`."""


class ServedAgent(FileModel):
    """An agent that is served under a public name."""

    file: NonEmpty
    """Path of the agent file, relative to the gateway file. E.g. `agent.yaml`, not `missing.yaml`."""
    name: PublicName | None = None
    """Public name, which clients send as `model`. Absent: the name of the agent. E.g. `helper`, not `my helper`."""


class Storage(FileModel):
    """The database for responses and conversations."""

    url: NonEmpty = "sqlite:///holodeck.db"
    """URL of the database: `sqlite:///path`, relative to the gateway file, or `postgresql://...`. E.g.
    `sqlite:///data/holodeck.db`, not `data/holodeck.db`."""
    retention_days: Annotated[Number, Field(gt=0)] = DEFAULT_RETENTION_DAYS
    """Days after which responses and conversations are deleted. E.g. `7`, not `0`."""
    usage_days: Annotated[Number, Field(ge=MIN_USAGE_DAYS)] = DEFAULT_USAGE_DAYS
    """Days after which the counts of usage by the hour and by the day are deleted. E.g. `400`, not `7`."""
    durability: Literal["fast", "safe"] = "fast"
    """`safe`: wait for the disk on every write. `fast`: a power failure may lose the last moments. E.g. `safe`, not
    `save`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[Storage]) -> Storage:
        return validate_with_rules(cls.__name__, data, handler, _check_storage_url)


_STORAGE_URL = re.compile(r"sqlite:///[^/].*|sqlite:////.+|sqlite://:memory:|postgres(ql)?://.*", re.DOTALL)


def _check_storage_url(data: dict[str, Any]) -> list[Violation]:
    url = data.get("url")
    if not isinstance(url, str) or _STORAGE_URL.fullmatch(url.strip()):
        return []
    message = (
        "'url' must be sqlite:///path (with three slashes, or four for an absolute path) or postgresql://host/name"
    )
    return [Violation(key="url", message=message)]


class BackgroundRuns(FileModel):
    """Background responses (`background: true`)."""

    durable: Boolean | None = None
    """Whether background responses survive the process. Absent: yes, if the extra `durable` is installed. E.g. `false`,
    not `'no'`."""
    at_once: Annotated[Integer, Field(ge=1)] = MAX_DURABLE_RUNS
    """Durable responses that one gateway runs at once, including those it takes over.

    Further ones wait for the first gateway with free capacity. E.g. `8`, not `0`.
    """
    model_wait_seconds: Annotated[Number, Field(ge=0, le=MAX_TIMEOUT)] = DEFAULT_MODEL_WAIT
    """Seconds for which each turn retries a model that is unreachable, overloaded or failing.

    Meanwhile the response is `in_progress` and counts towards `at_once`; after that it fails. 0: it fails as soon as a
    response in the foreground would. E.g. `60`, not `-1`.
    """


class GatewayLimits(FileModel):
    """Limits of the whole gateway."""

    in_flight: Annotated[Integer, Field(ge=1)] = DEFAULT_IN_FLIGHT
    """Requests at once. Further ones are refused immediately. E.g. `200`, not `0`."""
    body_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_BODY_BYTES
    """Bytes of one request body, or of one WebSocket message. E.g. `8388608`, not `100`."""
    bodies_bytes: Annotated[Integer, Field(ge=1024)] | None = None
    """Bytes in memory at once: bodies of requests and messages of WebSockets until they are answered, contents of
    their sealed items, answers of MCP servers that are being read or stored for paging, and answers of models until
    their runs end. Beyond it a request is refused immediately, an answer of a server is dropped and reported to the
    model, and an answer of a model is cut and its response incomplete. Plan memory for eight times as much; many small
    values in a body count for more than their text. Absent: 256 MiB, or `body_bytes` if that is more.
    E.g. `67108864`, not `1048576`."""
    context_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_CONTEXT_BYTES
    """Bytes of the context of one request: its conversation, or the responses that it continues.

    Also the limit for the contents of its sealed items. E.g. `16777216`, not `100`.
    """
    answer_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_ANSWER_BYTES
    """Bytes that a model may write in one turn, reasoning and calls included. Beyond it the response is incomplete.
    E.g. `4194304`, not `100`."""
    response_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_RESPONSE_BYTES
    """Bytes that a model may write in all turns of one response. Beyond it the response is incomplete. E.g. `16777216`,
    not `100`."""
    max_turns: Annotated[Integer, Field(ge=1, le=MAX_MAX_TURNS)] = DEFAULT_MAX_TURNS
    """Turns of one response of a plain model. An agent has its own limit. E.g. `20`, not `0`."""
    discovery_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DISCOVERY_TIMEOUT
    """Seconds that a request waits for an MCP server to list its tools. E.g. `5`, not `0`."""
    request_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DEFAULT_REQUEST_SECONDS
    """Seconds for a client to send its headers, and between two chunks of a body. E.g. `30`, not `0`."""
    reader_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DEFAULT_READER_SECONDS
    """Seconds after which the connection of a client that reads nothing of its response is closed. E.g. `120`, not `0`.
    """
    silent_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DEFAULT_SILENT_SECONDS
    """Seconds between keep-alives in a silent stream, for proxies that close silent connections. E.g. `10`, not `0`."""
    drain_seconds: Annotated[Number, Field(ge=0, le=MAX_TIMEOUT)] = DEFAULT_DRAIN_SECONDS
    """Seconds for running requests to finish after SIGTERM. E.g. `60`, not `-1`."""
    sockets: Annotated[Integer, Field(ge=0)] = DEFAULT_SOCKETS
    """Open WebSockets. Further ones are refused immediately. 0: none. E.g. `100`, not `-1`."""
    mcp_streams: Annotated[Integer, Field(ge=0)] = DEFAULT_MCP_STREAMS
    """Event streams on which MCP clients listen. Further ones are refused immediately. 0: none. E.g. `1000`, not `-1`.
    """
    socket_seconds: Annotated[Number, Field(gt=0, le=MAX_SOCKET_SECONDS)] = MAX_SOCKET_SECONDS
    """Seconds that a WebSocket may stay open. OpenAI's API closes one after an hour. E.g. `600`, not `7200`."""
    key: KeyLimits = Field(default_factory=KeyLimits)
    """Limits of every caller without `limits` of its own. E.g. `{requests_per_minute: 60}`, not `60`."""
    key_budget: Budget | None = None
    """Budget of every caller without a `budget` of its own, such as those of an identity provider: what each of them
    may spend. Absent: unlimited. E.g. `{amount: 5, period: day}`, not `5`."""

    @property
    def body_budget(self) -> int:
        """`bodies_bytes`, or its default."""
        return self.bodies_bytes or max(DEFAULT_BODIES_BYTES, self.body_bytes)

    @field_validator("bodies_bytes")
    @classmethod
    def _check_fits_one_body(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < info.data.get("body_bytes", 0):
            violation = Violation(key="bodies_bytes", message="'bodies_bytes' must be at least 'body_bytes'")
            raise PydanticCustomError("contract", "{text}", {"text": violation.message, "violation": violation})
        return value


class Reload(FileModel):
    """Changes of the configuration while the gateway runs."""

    watch: Boolean = True
    """Whether the gateway notices changes of its files by itself. false: it reads them again on SIGHUP only. E.g.
    `false`, not `'no'`."""


class CompactionSettings(FileModel):
    """Compaction of long conversations."""

    model: PublicName | None = None
    """Public name of the model that writes summaries. Absent: the model of the request. E.g. `small`, not `gone`."""
    target_tokens: Annotated[Integer, Field(ge=MIN_TARGET_TOKENS)] | None = None
    """Tokens of a compacted conversation, estimated. Absent: a quarter of what it has, but at least 1000. E.g. `8000`,
    not `10`."""


class RequestServers(RequestHosts):
    """MCP servers that requests declare by `server_url`. Unless allowed below, only public addresses and https."""

    allow: Boolean = False
    """Whether requests may declare MCP servers. false: such a request is refused. E.g. `true`, not `'yes'`."""
    max_per_request: Annotated[Integer, Field(ge=1, le=MAX_REQUEST_TOOLS)] = DEFAULT_SERVERS_PER_REQUEST
    """Servers that one request may declare. E.g. `2`, not `0`."""


class RequestFiles(RequestHosts):
    """Files that requests name by `file_url`. Unless allowed below, only public addresses and https."""

    allow: Boolean = False
    """Whether the gateway fetches such files. false: such a request is refused. E.g. `true`, not `'yes'`."""
    max_bytes: Annotated[Integer, Field(ge=1, le=MAX_FILE_BYTES)] = DEFAULT_FILE_BYTES
    """Bytes of one file. E.g. `1048576`, not `0`."""
    max_seconds: Annotated[Number, Field(gt=0)] = DEFAULT_FILE_SECONDS
    """Seconds in which all files of a request must have come. E.g. `10`, not `0`."""


class BuiltinTools(FileModel):
    """Tools that OpenAI's and Anthropic's APIs run themselves, each mapped to a tool of one of the `mcp_servers`, as
    `server.tool`."""

    web_search: NonEmpty | None = None
    """Tool for `web_search`, also for its dated and its preview types. Absent: such a request is refused. E.g.
    `tickets.search_web`, not `search_web`."""
    web_fetch: NonEmpty | None = None
    """Tool for the dated types of `web_fetch` in the Messages API. E.g. `tickets.read_page`, not `read_page`."""
    file_search: NonEmpty | None = None
    """Tool for `file_search`. E.g. `tickets.find`, not `files.find`."""
    code_interpreter: NonEmpty | None = None
    """Tool for `code_interpreter`. E.g. `tickets.run_python`, not `run_python`."""
    image_generation: NonEmpty | None = None
    """Tool for `image_generation`; the first image of its result is the result of the call. E.g. `tickets.draw`, not
    `draw`."""

    def find_target(self, kind: str) -> tuple[str, str] | None:
        """Return the server and the tool that a hosted tool is mapped to. None: it is not mapped."""
        target = getattr(self, kind)
        server, _, tool = (target or "").partition(".")
        return (server, tool) if target is not None else None


class Log(FileModel):
    """The log, which is written to standard error."""

    format: Literal["text", "json"] = "text"
    """`text`: lines for people. `json`: one object per line, for log collectors. E.g. `json`, not `jsonl`."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is written. E.g. `warning`, not `warn`."""


class MetricsSettings(FileModel):
    """The metrics at `/metrics`."""

    by_caller: Boolean = False
    """Whether requests, refusals, runs, tokens and cost have the label `caller`, which names keys and subjects. E.g.
    `true`, not `'yes'`."""
    max_callers: Annotated[Integer, Field(ge=1)] = DEFAULT_MAX_CALLERS
    """Callers that have a label value of their own, in the order in which they come. Further ones are `other`. E.g.
    `20`, not `0`."""


class Audit(FileModel):
    """The audit log: tool calls with their callers, approvals and outcomes, and what operators did."""

    file: NonEmpty | None = None
    """File of the audit log, relative to the gateway file. One gateway writes it; lines are only appended. E.g.
    `audit.jsonl`, not `''`."""
    logger: Boolean = False
    """Whether entries are events of the log on standard error, as `audit.tool_call`, beside or instead of the file.
    E.g. `true`, not `'yes'`."""
    values: Boolean = False
    """Whether the file has the arguments and the results of calls, cut at 16384 characters. false: a digest only. E.g.
    `true`, not `'yes'`."""
    durability: Literal["fast", "safe"] = "fast"
    """`safe`: wait for the disk before a call is made. `fast`: a power failure may lose the last moments. E.g. `safe`,
    not `sure`."""
    on_failure: Literal["refuse", "continue"] = "refuse"
    """While the file cannot be written: `refuse` tool calls, or `continue` without entries. E.g. `continue`, not
    `ignore`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[Audit]) -> Audit:
        return validate_with_rules(cls.__name__, data, handler, _check_audit)


def _check_audit(data: dict[str, Any]) -> list[Violation]:
    if data.get("file") is not None:
        return []
    if data.get("logger", False) is False:
        fix = "Write 'file: audit.jsonl', or 'logger: true'."
        return [Violation(key="file", message="an audit log needs a place: 'file' or 'logger'", fix=fix)]
    idle = next((key for key in ("values", "durability", "on_failure") if key in data), None)
    return [] if idle is None else [Violation(key=idle, message="it has no meaning without 'file'")]


class OTel(FileModel):
    """Traces for an OpenTelemetry collector. Absent values follow the standard OTEL_* variables."""

    endpoint: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    """Address of the collector for OTLP over HTTP, such as `http://127.0.0.1:4318`. E.g. `http://127.0.0.1:4318`, not
    `127.0.0.1:4318`."""
    headers: dict[str, Secret] = Field(default_factory=dict)
    """Headers of every export, such as the key of a hosted collector, as variables. E.g. `{api-key:
    '${COLLECTOR_KEY}'}`, not `'api-key: ${COLLECTOR_KEY}'`."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may receive the headers by plain http://, such as names inside a cluster. E.g. `[collector.internal]`,
    not `collector.internal`."""
    service_name: NonEmpty | None = None
    """Name of the service in traces. Absent: `holodeck`. E.g. `support-agents`, not `''`."""
    sample_ratio: Annotated[Number, Field(ge=0, le=1)] | None = None
    """Share of traces to record, of those that start at the gateway, from 0 to 1. Absent: all. E.g. `0.1`, not `10`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[OTel]) -> OTel:
        return validate_with_rules(cls.__name__, data, handler, _check_header_privacy)


def _check_header_privacy(data: dict[str, Any]) -> list[Violation]:
    endpoint = data.get("endpoint")
    if (
        isinstance(endpoint, str)
        and data.get("headers")
        and is_sent_in_cleartext(endpoint, data.get("allow_insecure_hosts"))
    ):
        message = CLEARTEXT_KEY.replace("the key", "'headers'")
        return [Violation(key="endpoint", message=message, fix=ALLOW_INSECURE)]
    return []


class MCPEndpointSettings(FileModel):
    """The gateway as an MCP server for other programs, at `/mcp`."""

    enabled: Boolean = True
    """Whether MCP clients may use the servers and agents at `/mcp` and `/mcp/{server}`. E.g. `false`, not `'no'`."""
    agents: Boolean = True
    """Whether agents are offered as tools, as `ask_<name>`. E.g. `false`, not `'no'`."""
    public_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    """Address at which clients reach the gateway, such as `https://gateway.example.com`.

    For logins with `jwt`, and for the redirect of logins at MCP servers. Absent: the one that a request names, which is
    wrong behind a proxy that terminates TLS, or the one of the console's page. E.g. `https://gateway.example.com`, not
    `gateway.example.com`.
    """
    login: MCPLogin | None = None
    """Logins of MCP clients at this gateway, in front of the identity provider of `jwt.login`. Absent: clients log in
    at the identity provider itself, if it knows them. E.g. `{}`, not `true`."""


class GatewayFile(FileModel):
    """The content of `gateway.yaml`."""

    listen: Listen = Field(default_factory=Listen)
    """Address and port of the gateway. E.g. `{port: 9000}`, not `9000`."""
    models: list[ServedModel] = Field(default_factory=list)
    """Plain models that are served, by public name. E.g. `[{name: small, model: {provider: rehearsal}}]`, not
    `gpt-5-mini`."""
    agents: list[ServedAgent] = Field(default_factory=list)
    """Agents that are served as models. E.g. `[{file: agent.yaml}]`, not `[{file: missing.yaml}]`."""
    mcp_servers: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers whose tools are offered to the models above. E.g. `[{name: tickets, transport: http, url:
    'https://mcp.example.com/mcp'}]`, not `{}`."""
    mcp_connect: Literal["first_use", "start"] = "first_use"
    """When MCP servers are connected: by the first request that needs them, or in the background once the gateway
    serves, so that the log says early what does not work. E.g. `start`, not `never`."""
    keys: list[CallerKey] = Field(default_factory=list)
    """Callers that authenticate with a key of the gateway. E.g. `[{name: alice, hash:
    'sha256:0000000000000000000000000000000000000000000000000000000000000000'}]`, not `[alice]`."""
    groups: list[CallerGroup] = Field(default_factory=list)
    """Groups of callers, each with a scope, limits and a budget of its own. E.g. `[{name: research, limits:
    {requests_per_minute: 600}}]`, not `[research]`."""
    jwt: JWTCallers | None = None
    """Callers that authenticate with a token of an identity provider. E.g. `{issuer: 'https://login.example.com',
    audience: holodeck, jwks_file: keys.json}`, not `true`."""
    auth: Literal["none"] | None = None
    """`none`: the gateway is meant to have neither `keys` nor `jwt`. Needed where it had callers before; otherwise a
    gateway that listens on loopback has no authentication until there are `keys` or `jwt`. E.g. `none`, not `'no'`."""
    storage: Storage = Field(default_factory=Storage)
    """Database for responses and conversations. E.g. `{url: 'sqlite:///data/holodeck.db'}`, not
    `sqlite:///data/holodeck.db`."""
    background: BackgroundRuns = Field(default_factory=BackgroundRuns)
    """Responses with `background: true`. E.g. `{at_once: 8}`, not `true`."""
    limits: GatewayLimits = Field(default_factory=GatewayLimits)
    """Limits of the gateway and of each caller. E.g. `{in_flight: 200}`, not `200`."""
    reload: Reload = Field(default_factory=Reload)
    """Changes of this file while the gateway runs. E.g. `{watch: false}`, not `false`."""
    compaction: CompactionSettings = Field(default_factory=CompactionSettings)
    """Compaction of long conversations, where a client asks for it. E.g. `{target_tokens: 8000}`, not `8000`."""
    log: Log = Field(default_factory=Log)
    """Log on standard error. E.g. `{format: json}`, not `json`."""
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    """Metrics for Prometheus. E.g. `{by_caller: true}`, not `true`."""
    audit: Audit | None = None
    """Audit log of tool calls and approvals. Absent: none. E.g. `{file: audit.jsonl}`, not `audit.jsonl`."""
    otel: OTel | None = None
    """Export of traces. Absent, and without OTEL_EXPORTER_OTLP_ENDPOINT: no traces. E.g. `{endpoint:
    'http://127.0.0.1:4318'}`, not `http://127.0.0.1:4318`."""
    cors_origins: list[NonEmpty] = Field(default_factory=list)
    """Origins of web pages that may use the gateway, such as `https://app.example.com`. E.g.
    `['https://app.example.com']`, not `https://app.example.com`."""
    mcp_endpoint: MCPEndpointSettings = Field(default_factory=MCPEndpointSettings)
    """The gateway as an MCP server for other programs. E.g. `{enabled: false}`, not `false`."""
    request_servers: RequestServers = Field(default_factory=RequestServers)
    """MCP servers that requests may declare. E.g. `{allow: true}`, not `true`."""
    builtin_tools: BuiltinTools = Field(default_factory=BuiltinTools)
    """Hosted tools of OpenAI's API that requests may use, each mapped to an MCP tool. Absent: none. E.g. `{web_search:
    tickets.find}`, not `tickets.find`, beside `{mcp_servers: [{name: tickets, transport: http, url:
    'https://mcp.example.com/mcp'}]}`."""
    request_files: RequestFiles = Field(default_factory=RequestFiles)
    """Files that requests may name by their URL. E.g. `{allow: true}`, not `true`."""
    allow_stdio: Boolean = False
    """Whether MCP servers may be started as processes on this machine. E.g. `true`, not `'yes'`."""
    allowed_commands: list[NonEmpty] = Field(default_factory=list)
    """Programs that `command` of these servers and agents may name besides npx, uvx and docker, such as `python`. E.g.
    `[python, /opt/tools/server]`, not `python`."""
    seal_key: list[Secret] = Field(default_factory=list)
    """Secret that encrypts items which clients store but cannot read, such as compacted conversations.

    One secret or a list: the first one encrypts, all of them decrypt. Several gateways share the same ones.
    Absent: generated once and stored beside the SQLite file; with another storage, valid until the gateway stops. E.g.
    `${SEAL_KEY}`, not `${SHORT}`.
    """
    mcp_output: MCPOutput = "openai"
    """Form of the calls that the gateway runs, in responses.

    `openai`: `mcp_call` items, which no client takes for calls of its own functions. `portable`: `function_call` and
    `function_call_output` items, for clients that check the Open Responses contract. A request that declares an MCP
    server gets `mcp_call` items in any case. E.g. `openai`, not `open_ai`.
    """

    @property
    def has_auth(self) -> bool:
        """Whether callers authenticate, by keys or at an identity provider. If not, every request is an operator's."""
        return bool(self.keys) or self.jwt is not None

    @field_validator("seal_key", mode="before")
    @classmethod
    def _wrap_in_list(cls, value: object) -> object:
        if value is None:
            return []
        return value if isinstance(value, list) else [value]
