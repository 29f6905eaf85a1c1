"""A gateway as it stands in its file: what it serves, to whom, with which servers behind it, within which limits."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from holodeck.lib.limits import (
    DEFAULT_ANSWER_BYTES,
    DEFAULT_CONTEXT_BYTES,
    DEFAULT_MAX_TURNS,
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
from holodeck.lib.net.ip_policy import parse_networks
from holodeck.lib.secret import Secret
from holodeck.models.file_model import (
    Boolean,
    FileModel,
    Integer,
    NonEmpty,
    Number,
    Violation,
    quote_value,
    validate_with_rules,
)
from holodeck.models.llm import LLM
from holodeck.models.tool import Tool
from holodeck.models.url import ALLOW_INSECURE, CLEARTEXT_KEY, is_sent_in_cleartext, url_problem

# Seconds that a background response waits for a model: a restart, an overload.
DEFAULT_MODEL_WAIT = 600.0
# A few images in a request.
DEFAULT_BODY_BYTES = 32 * MIB
# Of all requests at once; what is counted takes up to eight times as much memory.
DEFAULT_BODIES_BYTES = 256 * MIB
# Requests at once; one more is refused, not queued.
DEFAULT_IN_FLIGHT = 1_000
# Of one caller.
DEFAULT_KEY_IN_FLIGHT = 256
# Of one caller, on all gateways: four times what one gateway does at once.
DEFAULT_KEY_BACKGROUND = 256
# Of one caller.
DEFAULT_KEY_SOCKETS = 256
# What orchestrators wait before they kill.
DEFAULT_DRAIN_SECONDS = 30.0
# What users of the OpenAI API expect.
DEFAULT_RETENTION_DAYS = 30.0
# That it may bring along by their addresses.
DEFAULT_SERVERS_PER_REQUEST = 8
# In which a reader takes nothing of its answer: it sleeps, or is gone without a word.
DEFAULT_READER_SECONDS = 60.0
# The Responses API ends a WebSocket after an hour.
MAX_SOCKET_SECONDS = 3_600.0
# Background runs that one gateway begins; what is more waits until somebody has room.
MAX_DURABLE_RUNS = 64


Algorithm = Literal["RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "EdDSA"]
PublicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$")]


class Listen(FileModel):
    """Where the gateway listens."""

    host: NonEmpty = "127.0.0.1"
    """The address to listen on. Without keys only one of loopback is allowed."""
    port: Annotated[Integer, Field(ge=0, le=65535)] = 8080
    """0: any free one, which is printed."""
    allowed_hosts: list[NonEmpty] = Field(default_factory=list)
    """Names that requests may be addressed to (`Host`). Absent: the host itself, and loopback names."""
    closes_first: Boolean = False
    """On SIGTERM, take no new connection from then on, instead of answering it with 503: for a balancer that does not
    ask `/readyz`, but goes to another gateway when one refuses, as nginx does."""


class ServedModel(FileModel):
    """A plain model behind a name of ours."""

    name: PublicName
    """What clients say as `model`."""
    model: LLM
    """Which model it is, as in an agent file."""
    instructions: NonEmpty | None = None
    """What the model is told before each conversation."""
    use_mcp: Boolean = True
    """Whether the gateway's MCP servers are offered to it."""


class ServedAgent(FileModel):
    """An agent file served under its name."""

    file: NonEmpty
    """Relative to the gateway file."""
    name: PublicName | None = None
    """What clients say as `model`. Absent: the agent's own name."""


class KeyLimits(FileModel):
    """How much one caller may ask for."""

    in_flight: Annotated[Integer, Field(ge=1)] = DEFAULT_KEY_IN_FLIGHT
    """Requests at once. A background response that does not survive the process counts until it has ended."""
    background: Annotated[Integer, Field(ge=1)] = DEFAULT_KEY_BACKGROUND
    """Background responses that are queued or running, of all gateways that share a storage together."""
    requests_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Requests in a minute. Absent: unlimited."""
    tokens_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Tokens of models in a minute. Absent: unlimited."""
    sockets: Annotated[Integer, Field(ge=0)] = DEFAULT_KEY_SOCKETS
    """WebSockets that are open at once, also those that ask for nothing. 0: none."""


class CallerKey(FileModel):
    """A caller, known by the hash of a key that `holodeck keys create` showed once."""

    name: PublicName
    """Who the caller is in logs and in what it stores; unique in the file."""
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """The hash of the key, as `holodeck keys create` prints it."""
    is_admin: Boolean = Field(default=False, alias="admin")
    """May see `/v1/mcp/servers` and `/metrics`."""
    limits: KeyLimits | None = None
    """Limits of this caller. Absent: `limits.key`."""


class JWTCallers(FileModel):
    """Callers who bring a token of an identity provider."""

    issuer: NonEmpty
    """The identity provider, as it stands in the claim `iss`."""
    audience: NonEmpty
    """What tokens must be made for, as it stands in the claim `aud`."""
    jwks_url: NonEmpty | None = None
    """Where the provider's keys are. It or `jwks_file` is required."""
    jwks_file: NonEmpty | None = None
    """A file with the provider's keys, relative to the gateway file."""
    caller_claim: NonEmpty = "sub"
    """The claim that names the caller."""
    admin_scope: NonEmpty | None = None
    """The scope that makes a caller an operator. Absent: none does."""
    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "ES256"), strict=False)
    """The signatures that are accepted."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[JWTCallers]) -> JWTCallers:
        return validate_with_rules(cls.__name__, data, handler, _check_one_key_set)


def _check_one_key_set(data: dict[str, Any]) -> list[Violation]:
    url = data.get("jwks_url")
    if (url is None) == (data.get("jwks_file") is None):
        return [Violation(key="jwks_url", message="give 'jwks_url' or 'jwks_file', one of them")]
    problem = url_problem(url, websocket=False) if isinstance(url, str) else None
    if problem is not None:
        fix = "Whoever can change the keys on their way can be any caller."
        return [Violation(key="jwks_url", message=problem.replace("'url'", "'jwks_url'"), fix=fix)]
    return []


class Storage(FileModel):
    """Where responses and conversations are kept."""

    url: NonEmpty = "sqlite:///holodeck.db"
    """`sqlite:///path`, relative to the gateway file, or `postgresql://...`."""
    retention_days: Annotated[Number, Field(gt=0)] = DEFAULT_RETENTION_DAYS
    """Days after which responses and conversations are deleted."""
    durability: Literal["fast", "safe"] = "fast"
    """`safe` waits for the disk on every save; `fast` may lose the last moments when the power fails."""

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
    """Responses that nobody waits for (`background: true`)."""

    durable: Boolean | None = None
    """Whether they survive the process. Absent: yes, if HoloDeck is installed with the extra `durable`."""
    at_once: Annotated[Integer, Field(ge=1)] = MAX_DURABLE_RUNS
    """How many durable ones a gateway does at once, new ones and those it takes over together.

    The others wait for whichever gateway has room first.
    """
    model_wait_seconds: Annotated[Number, Field(ge=0, le=MAX_TIMEOUT)] = DEFAULT_MODEL_WAIT
    """How long each turn asks a model again that cannot be reached, is overloaded or fails, before the response fails.

    Meanwhile it is `in_progress` and counts among those at once. 0: it fails as others do.
    """


class GatewayLimits(FileModel):
    """What the gateway as a whole takes on."""

    in_flight: Annotated[Integer, Field(ge=1)] = DEFAULT_IN_FLIGHT
    """Requests at once; one more is refused at once."""
    body_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_BODY_BYTES
    """Bytes of one request, or of one message on a WebSocket."""
    bodies_bytes: Annotated[Integer, Field(ge=1024)] | None = None
    """Bodies of all requests that are sent or answered at once, messages of WebSockets that are sent, wait or are
    answered, what their sealed items hold, answers of MCP servers that are read or kept for reading on, and answers of
    models until their runs have ended. One more request is refused at once; one more answer of a server is dropped,
    and the model is told; one of a model is cut, and the response incomplete. Memory for eight times as
    much is needed; many small values in a body count for more than their text. Absent: 256 MiB, or what one body may
    have, if that is more."""
    context_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_CONTEXT_BYTES
    """Of all that comes before a request: its conversation, or the responses that it goes on from.

    And of what its sealed items hold."""
    answer_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_ANSWER_BYTES
    """Of what a model says in one turn, thoughts and calls included. There the response ends as incomplete."""
    response_bytes: Annotated[Integer, Field(ge=1024, le=1024 * MIB)] = DEFAULT_RESPONSE_BYTES
    """The same of all turns of a response."""
    max_turns: Annotated[Integer, Field(ge=1, le=MAX_MAX_TURNS)] = DEFAULT_MAX_TURNS
    """How often a plain model may be asked for one response; an agent has its own."""
    discovery_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DISCOVERY_TIMEOUT
    """How long a request waits for an MCP server to say what it has."""
    request_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DEFAULT_REQUEST_SECONDS
    """How long a client may take to send its headers, and between two pieces of a body."""
    reader_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DEFAULT_READER_SECONDS
    """How long a client may take nothing of an answer that waits for it; then its connection is closed."""
    silent_seconds: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] = DEFAULT_SILENT_SECONDS
    """How often a stream that has nothing to tell says so, for proxies that end silent connections."""
    drain_seconds: Annotated[Number, Field(ge=0, le=MAX_TIMEOUT)] = DEFAULT_DRAIN_SECONDS
    """How long running requests may go on after SIGTERM."""
    sockets: Annotated[Integer, Field(ge=0)] = DEFAULT_SOCKETS
    """WebSockets that are open at once; one more is refused at once. 0: none."""
    socket_seconds: Annotated[Number, Field(gt=0, le=MAX_SOCKET_SECONDS)] = MAX_SOCKET_SECONDS
    """How long a WebSocket may stay open; the API itself ends it after an hour."""
    key: KeyLimits = Field(default_factory=KeyLimits)
    """For every caller without limits of its own."""

    @property
    def body_budget(self) -> int:
        """Bytes of bodies at once."""
        return self.bodies_bytes or max(DEFAULT_BODIES_BYTES, self.body_bytes)

    @field_validator("bodies_bytes")
    @classmethod
    def _check_fits_one_body(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < info.data.get("body_bytes", 0):
            violation = Violation(key="bodies_bytes", message="'bodies_bytes' must be at least 'body_bytes'")
            raise PydanticCustomError("contract", "{text}", {"text": violation.message, "violation": violation})
        return value


class RequestServers(FileModel):
    """MCP servers that a request brings along by `server_url`. Only public addresses are dialled, and only https."""

    allow: Boolean = False
    """Without it such a request is refused."""
    hosts: Annotated[list[NonEmpty], Field(min_length=1)] | None = None
    """Names or globs of the hosts that may be named. Absent: every public one."""
    allow_private_hosts: list[NonEmpty] = Field(default_factory=list)
    """Names, addresses or networks that may be dialled although they are not public, such as `10.20.0.0/16`."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may be reached by plain http://."""
    max_per_request: Annotated[Integer, Field(ge=1, le=MAX_REQUEST_TOOLS)] = DEFAULT_SERVERS_PER_REQUEST
    """How many servers one request may bring."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[RequestServers]) -> RequestServers:
        return validate_with_rules(cls.__name__, data, handler, _check_hosts)


def _check_hosts(data: dict[str, Any]) -> list[Violation]:
    found: list[Violation] = []
    idle = [key for key in data if key in RequestServers.model_fields and key != "allow"]
    if idle and data.get("allow", False) is False:
        found.append(Violation(key=idle[0], message="it has no meaning without 'allow: true'"))
    for key in ("hosts", "allow_private_hosts", "allow_insecure_hosts"):
        listed = data.get(key)
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, str) and ("://" in entry or ("/" in entry and not parse_networks([entry]))):
                fix = "Write the name alone, such as tools.example.com, or a network, such as 10.20.0.0/16."
                found.append(Violation(key=key, message=f"{quote_value(entry)} is not a host", fix=fix))
    return found


class Log(FileModel):
    """What the gateway writes to standard error."""

    format: Literal["text", "json"] = "text"
    """`json`: one object in each line, for programs that collect logs."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are written."""


class OTel(FileModel):
    """Traces for an OpenTelemetry collector. Whatever is absent is as the standard OTEL_* variables say."""

    endpoint: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    """The collector's address for OTLP over HTTP, such as `http://127.0.0.1:4318`."""
    headers: dict[str, Secret] = Field(default_factory=dict)
    """Sent with every export; keys of a hosted collector, as references."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may get the headers by plain http://, such as names inside a cluster."""
    service_name: NonEmpty | None = None
    """Absent: `holodeck`."""
    sample_ratio: Annotated[Number, Field(ge=0, le=1)] | None = None
    """The share of traces to keep, of those that nobody else began. Absent: all."""

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


class GatewayFile(FileModel):
    """The whole of `gateway.yaml`."""

    listen: Listen = Field(default_factory=Listen)
    """The address and port of the gateway."""
    models: list[ServedModel] = Field(default_factory=list)
    """Plain models, by the names that clients say."""
    agents: list[ServedAgent] = Field(default_factory=list)
    """Agent files that are served as models."""
    mcp_servers: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """MCP servers that the models above are offered."""
    keys: list[CallerKey] = Field(default_factory=list)
    """Callers with a key of the gateway."""
    jwt: JWTCallers | None = None
    """Callers with a token of an identity provider."""
    storage: Storage = Field(default_factory=Storage)
    """Where responses and conversations are stored."""
    background: BackgroundRuns = Field(default_factory=BackgroundRuns)
    """Responses with `background: true`."""
    limits: GatewayLimits = Field(default_factory=GatewayLimits)
    """What the gateway and each caller may use at once."""
    log: Log = Field(default_factory=Log)
    """What is written to standard error."""
    otel: OTel | None = None
    """Absent, and with no OTEL_EXPORTER_OTLP_ENDPOINT: nothing is traced."""
    cors_origins: list[NonEmpty] = Field(default_factory=list)
    """Origins of web pages that may use the gateway, such as `https://app.example.com`."""
    request_servers: RequestServers = Field(default_factory=RequestServers)
    """MCP servers that a request may bring along."""
    allow_stdio: Boolean = False
    """Lets MCP servers be started as processes of this machine."""
    seal_key: list[Secret] = Field(default_factory=list)
    """Seals what clients keep and cannot read, such as folded conversations. Several gateways share one.

    One secret or a list of them: the first one seals, all of them open what they have sealed.
    Absent: made once and kept beside the SQLite file; with another storage, it lasts until the gateway stops.
    """
    mcp_output: Literal["auto", "openai", "portable"] = "auto"
    """How calls to configured MCP servers appear on the wire. `auto`: as the request, or the program, knows them."""

    @field_validator("seal_key", mode="before")
    @classmethod
    def _wrap_in_list(cls, value: object) -> object:
        if value is None:
            return []
        return value if isinstance(value, list) else [value]
