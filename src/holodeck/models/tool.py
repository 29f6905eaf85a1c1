"""The models of `tools`: MCP servers and Python functions. Rules between fields are in `tool_rules`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from holodeck.lib.limits import KIB, MAX_TIMEOUT, MIB
from holodeck.lib.secret import Secret
from holodeck.models import tool_rules
from holodeck.models.auth import Auth
from holodeck.models.file_model import (
    Boolean,
    FileModel,
    Integer,
    NonEmpty,
    Number,
    Violation,
    text_or_mapping,
    validate_with_rules,
)
from holodeck.models.transport import TRANSPORT_SPECS
from holodeck.models.transport import TransportType as TransportType  # noqa: PLC0414 - part of this module too

# Seconds for one call: generous, for complex operations.
DEFAULT_REQUEST_TIMEOUT = 60
# Seconds to connect, and of silence on an event stream.
DEFAULT_CONNECT_TIMEOUT = 30.0
DEFAULT_SSE_READ_TIMEOUT = 300.0
# Seconds for a server to start: a cold `npx -y` downloads for 20 s and more.
DEFAULT_STARTUP_TIMEOUT = 120.0
# Calls of one server at once: enough for a busy gateway, and not too many for a small server.
DEFAULT_CONCURRENT_CALLS = 64
MAX_CONCURRENT_CALLS = 10_000
# Bytes of one result; the model receives a much shorter text.
DEFAULT_MAX_RESULT_BYTES = 64 * MIB
MAX_RESULT_BYTES = 1024 * MIB

TOOL_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"

ToolName = Annotated[str, Field(pattern=TOOL_NAME_PATTERN)]
Seconds = Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)]


class CommandType(StrEnum):
    """Program that starts an MCP server on this machine."""

    NPX = "npx"
    UVX = "uvx"
    DOCKER = "docker"


DEFAULT_ARGS: Mapping[str, tuple[str, ...]] = {
    CommandType.NPX: ("-y",),
    CommandType.UVX: (),
    CommandType.DOCKER: ("run", "--rm", "-i"),
}
"""Arguments before `server`, for a tool without `args`."""


class Approval(FileModel):
    """Tools of a server whose calls need approval, by name or glob."""

    always: list[NonEmpty] = Field(default_factory=list)
    """Tools whose every call needs approval. E.g. `[write_*, delete_*]`, not `write_*`."""
    never: list[NonEmpty] = Field(default_factory=list)
    """Tools that need no approval, even if `always` matches. E.g. `[write_log]`, not `write_log`."""


class Sandbox(FileModel):
    """What a server may reach on this machine."""

    network: Boolean = True
    """Whether the server may use the network, this machine's own addresses included. E.g. `false`, not `'off'`."""
    read: list[NonEmpty] = Field(default_factory=lambda: ["."])
    """Files and folders that it may read and execute, besides those of `write` and those of the system. Absent: the
    folder of the agent file, without its `.env` files. E.g. `[data]`, not `data`."""
    write: list[NonEmpty] = Field(default_factory=list)
    """Files and folders that it may read and change, besides its own home folder. The agent file, the lock, `.env` and
    `.git` cannot be among them. E.g. `[output]`, not `output`."""


class MCPTool(FileModel):
    """An MCP server: how it is started or reached, and what the agent may do with it."""

    name: ToolName
    """Name of the server for the agent, the log and the commands; unique in the file. E.g. `files`, not `my files`."""
    description: NonEmpty | None = None
    """Purpose of the server, for people and models. Absent: the server's own description. E.g. `Files of this project`,
    not `''`."""
    type: Literal["mcp"] = "mcp"
    """An MCP server. E.g. `mcp`, not `mpc`."""
    server: str = ""
    """Package or service: an npm or PyPI name, an image, or a label. E.g. `'@modelcontextprotocol/server-filesystem'`,
    not `''`."""
    transport: TransportType = Field(default=TransportType.STDIO, strict=False)
    """Transport to the server: a process on this machine (`stdio`), or the network. E.g. `http`, not `streamable-http`,
    beside `{transport: http, url: 'https://mcp.example.com/mcp', command: null, server: tickets}`."""

    command: (
        Annotated[Annotated[CommandType, Field(strict=False)] | NonEmpty, Field(union_mode="left_to_right")] | None
    ) = None
    """Program that starts the server: npx, uvx or docker, or one that `allowed_commands` lists. E.g. `npx`, not
    `python`."""
    args: list[str] | None = None
    """Arguments of `command`. Absent: derived from `server`. E.g. `[-y, '@modelcontextprotocol/server-filesystem',
    data]`, not `data`, beside `{server: files}`."""
    env: dict[str, Secret] = Field(default_factory=dict)
    """Environment variables of the server's process. E.g. `{LOG_LEVEL: debug}`, not `[LOG_LEVEL=debug]`."""
    env_file: NonEmpty | None = Field(default=None, validation_alias=AliasChoices("envFile", "env_file"))
    """File of variables, relative to the agent file, for the server's process and for `${...}` in this tool. E.g.
    `server.env`, not `missing.env`."""
    encoding: NonEmpty = "utf-8"
    """Encoding of the server's standard input and output. E.g. `latin-1`, not `utf-9`."""
    cwd: NonEmpty | None = None
    """Working directory of the server. Absent: the folder of the agent file. E.g. `data`, not `''`."""

    url: NonEmpty | None = None
    """URL of the server, such as `https://mcp.example.com/mcp`. E.g. `https://mcp.example.com/mcp`, not absent, beside
    `{transport: http, url: 'https://mcp.example.com/mcp', command: null, server: tickets}`."""
    headers: dict[str, Secret] = Field(default_factory=dict)
    """Headers of every request, such as `Authorization: Bearer ${API_TOKEN}`. E.g. `{Authorization: 'Bearer
    ${API_TOKEN}'}`, not `'Authorization: Bearer ${API_TOKEN}'`, beside `{transport: http, url:
    'https://mcp.example.com/mcp', command: null, server: tickets}`."""
    timeout: Seconds = DEFAULT_CONNECT_TIMEOUT
    """Seconds to establish a connection. E.g. `10`, not `0`, beside `{transport: http, url:
    'https://mcp.example.com/mcp', command: null, server: tickets}`."""
    sse_read_timeout: Seconds = DEFAULT_SSE_READ_TIMEOUT
    """Seconds of silence after which an event stream is closed. E.g. `600`, not `10m`, beside `{transport: http, url:
    'https://mcp.example.com/mcp', command: null, server: tickets}`."""
    terminate_on_close: Boolean = True
    """Whether the server is notified when the session ends. E.g. `false`, not `'no'`, beside `{transport: http, url:
    'https://mcp.example.com/mcp', command: null, server: tickets}`."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may be reached by plain http://, such as names inside a cluster. E.g. `[tools.internal]`, not
    `tools.internal`, beside `{transport: http, url: 'http://tools.internal/mcp', command: null, server: tickets}`."""
    auth: Auth | None = None
    """How HoloDeck authenticates to the server. Absent: by `headers` only. E.g. `{type: bearer, token:
    '${API_TOKEN}'}`, not `{type: basic}`, beside `{transport: http, url: 'https://mcp.example.com/mcp', command: null,
    server: tickets}`."""
    caller_authorization: Boolean = False
    """In a gateway: whether a request may carry its caller's own `authorization` or `headers` for this server.

    They replace `auth` and `headers` of this file, on a connection that only that caller uses. E.g. `true`, not
    `'yes'`, beside `{transport: http, url: 'https://mcp.example.com/mcp', command: null, server: tickets}`.
    """

    config: dict[str, Any] = Field(default_factory=dict)
    """Settings for the server itself; `allowed_directories` become MCP roots. E.g. `{allowed_directories: [data]}`, not
    `[data]`."""
    load_tools: Boolean = True
    """Whether the server's tools are offered to the model. E.g. `false`, not `'off'`."""
    load_prompts: Boolean = True
    """Whether the server's prompts are offered to the user. E.g. `false`, not `'off'`."""
    load_resources: Boolean = False
    """Whether the model may read the server's resources with `read_resource`, and the user attach them in a chat. E.g.
    `true`, not `'on'`."""
    request_timeout: Annotated[Integer, Field(ge=1, le=MAX_TIMEOUT)] = DEFAULT_REQUEST_TIMEOUT
    """Seconds after which a call fails with a tool error. E.g. `120`, not `0`."""
    max_concurrent_calls: Annotated[Integer, Field(ge=1, le=MAX_CONCURRENT_CALLS)] = DEFAULT_CONCURRENT_CALLS
    """Calls of this server at once. Further ones wait, within their own `request_timeout`. E.g. `4`, not `0`."""
    startup_timeout: Seconds = DEFAULT_STARTUP_TIMEOUT
    """Seconds for the server to start and to answer its first request. E.g. `30`, not `30s`."""
    protocol: Literal["auto", "legacy", "modern"] = "auto"
    """Era of MCP that is spoken with the server: `legacy` (up to 2025-11-25), `modern` (from 2026-07-28), or `auto`.

    `auto` asks a server once which one it speaks. The other two never try the other era. E.g. `legacy`, not
    `'2025-11-25'`.
    """

    enabled: Boolean = True
    """Whether the server is used. false: it is ignored. E.g. `false`, not `'off'`."""
    required: Boolean = False
    """Whether runs need this server. true: without it, a run fails before its first turn, a request with status 503.
    E.g. `true`, not `1`."""
    allowed_tools: list[NonEmpty] | None = None
    """Names or globs of tools that are offered to the model. Absent: all. E.g. `[read_*, list_directory]`, not
    `read_*`."""
    denied_tools: list[NonEmpty] = Field(default_factory=list)
    """Names or globs of tools that are never offered. E.g. `[write_file]`, not `write_file`."""
    approval: Annotated[
        Annotated[Literal["never", "always"], Tag("text")] | Annotated[Approval, Tag("mapping")],
        Discriminator(text_or_mapping),
    ] = "never"
    """Calls that need approval: `never`, `always`, or lists of tools. E.g. `{always: [write_*]}`, not `sometimes`."""
    sampling: Literal["deny", "allow"] = "deny"
    """Whether the server may send requests to the agent's model (MCP sampling). E.g. `allow`, not `'yes'`."""
    idempotent_tools: list[NonEmpty] = Field(default_factory=list)
    """Names or globs of tools that may be called again if the connection is lost during a call. E.g. `[read_*]`, not
    `read_*`."""
    roots: list[NonEmpty] = Field(default_factory=list)
    """Folders that are announced to the server as MCP roots. E.g. `[data]`, not `data`."""
    max_result_bytes: Annotated[Integer, Field(ge=KIB, le=MAX_RESULT_BYTES)] = DEFAULT_MAX_RESULT_BYTES
    """Bytes of one result. The rest is cut off, and the cut is marked. E.g. `1048576`, not `100`."""
    sandbox: Annotated[
        Annotated[Boolean, Tag("text")] | Annotated[Sandbox, Tag("mapping")],
        Discriminator(text_or_mapping),
    ] = False
    """Whether the server's process is kept from your other files, and what it may reach. Only on Linux. E.g. `true`,
    not `'yes'`."""
    allow_unsafe_args: Boolean = False
    """Whether arguments and variables that can run other code than the named server are allowed. E.g. `true`, not
    `'yes'`."""

    @property
    def transport_name(self) -> str:
        """How the server is reached, in logs and recordings."""
        return self.transport.value

    @property
    def starts_process(self) -> bool:
        """Whether the server is a child process; otherwise it is remote, at `url`."""
        return TRANSPORT_SPECS[self.transport].starts_process

    @property
    def sandbox_limits(self) -> Sandbox | None:
        """What the server may reach; None if it runs without a sandbox."""
        if isinstance(self.sandbox, Sandbox):
            return self.sandbox
        return Sandbox() if self.sandbox else None

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, value: str) -> str:
        problem = tool_rules.encoding_problem(value)
        if problem:
            raise PydanticCustomError("encoding", "{problem}", {"problem": problem})
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[MCPTool]) -> MCPTool:
        """Check rules between fields. A bare npm name without a command is deprecated, and started with npx."""
        if isinstance(data, dict) and tool_rules.is_legacy_npm(data):
            message = f"server {data['server']} has no command and is started with npx; write 'command: npx'"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            data = {**data, "command": "npx"}
        if isinstance(data, dict) and not data.get("transport"):
            data = {**data, "transport": tool_rules.default_transport(data)}
        return validate_with_rules(cls.__name__, data, handler, tool_rules.find_violations)


class InMemoryTool(MCPTool):
    """An MCP server that is an object of this program. No file can define one: it starts nothing and has no URL."""

    transport: TransportType = TransportType.HTTP
    """Without meaning; a definition has to have one that starts no process."""
    server_object: Any = Field(exclude=True, repr=False)
    """The server, in the form of the official SDK."""

    @property
    def transport_name(self) -> str:
        return "memory"

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[InMemoryTool]) -> InMemoryTool:
        """Check nothing more: the rules between fields are those of transports that files name."""
        return handler(data)


class FunctionTool(FileModel):
    """A Python function in the agent's project, offered to the model as a tool."""

    name: ToolName
    """Name of the function for the model and the log; unique in the file. E.g. `price`, not `the price`."""
    description: NonEmpty | None = None
    """Description of the function. Absent: its docstring. E.g. `Price of a product in euros`, not `''`."""
    type: Literal["function"]
    """A Python function of the project. E.g. `function`, not `python`."""
    file: NonEmpty
    """Path of the Python file, relative to the agent file and inside its folder. E.g. `tools/prices.py`, not
    `tools/missing.py`."""
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the function in that file. E.g. `price`, not `prices.price`."""
    parameters: dict[str, Any] | None = None
    """JSON Schema of the arguments. Absent: derived from the signature. E.g. `{type: object, properties: {product:
    {type: string}}}`, not `product`."""
    request_timeout: Annotated[Integer, Field(ge=1, le=MAX_TIMEOUT)] = DEFAULT_REQUEST_TIMEOUT
    """Seconds after which a call fails with a tool error. E.g. `5`, not `0`."""


class AgentTool(FileModel):
    """Another agent, offered to the model as a tool: a call asks it a question."""

    name: ToolName
    """Name of the tool for the model and the log; unique in the file. E.g. `ask_librarian`, not `ask the librarian`."""
    description: NonEmpty | None = None
    """Description of the tool. Absent: that of the agent. E.g. `Knows all novels`, not `''`."""
    type: Literal["agent"]
    """Another agent. E.g. `agent`, not `agents`."""
    file: NonEmpty | None = None
    """Path of its agent file, relative to this one. It or `agent` is required. E.g. `librarian.yaml`, not
    `missing.yaml`."""
    agent: NonEmpty | None = None
    """Name of an agent of the gateway that serves this file. E.g. `librarian`, not `nobody`, beside `{file: null}`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[AgentTool]) -> AgentTool:
        return validate_with_rules(cls.__name__, data, handler, _check_one_agent)


def _check_one_agent(data: dict[str, Any]) -> list[Violation]:
    if data.get("file") is not None and data.get("agent") is not None:
        return [Violation(key="agent", message="give 'file' or 'agent', not both")]
    if data.get("file") is None and data.get("agent") is None:
        return [Violation(key="file", message="'file' or 'agent' is required")]
    return []


Tool = Annotated[MCPTool | FunctionTool | AgentTool, Field(discriminator="type")]
TOOL_TYPES = ("mcp", "function", "agent")
