"""The tools an agent may have, as they stand in its file. Data and rules; nothing is started here."""

from __future__ import annotations

import warnings
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
    text_or_mapping,
    validate_with_rules,
)

# Generous, for complex operations.
DEFAULT_REQUEST_TIMEOUT = 60
DEFAULT_CONNECT_TIMEOUT = 30.0
DEFAULT_SSE_READ_TIMEOUT = 300.0
# A cold `npx -y` downloads for 20 s and more.
DEFAULT_STARTUP_TIMEOUT = 120.0
# Of one server: a busy gateway needs them, and a small server still bears them.
DEFAULT_CONCURRENT_CALLS = 64
MAX_CONCURRENT_CALLS = 10_000
# What is kept of one result; what the model is shown is cut much shorter.
DEFAULT_MAX_RESULT_BYTES = 64 * MIB
MAX_RESULT_BYTES = 1024 * MIB


TOOL_NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"

ToolName = Annotated[str, Field(pattern=TOOL_NAME_PATTERN)]
Seconds = Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)]


class TransportType(StrEnum):
    """How HoloDeck talks to an MCP server."""

    STDIO = "stdio"
    SSE = "sse"
    WEBSOCKET = "websocket"
    HTTP = "http"


class CommandType(StrEnum):
    """What may start an MCP server on this machine."""

    NPX = "npx"
    UVX = "uvx"
    DOCKER = "docker"


class Approval(FileModel):
    """Which tools of a server a person must approve, by name or glob."""

    always: list[NonEmpty] = Field(default_factory=list)
    """Tools that a person must approve each time."""
    never: list[NonEmpty] = Field(default_factory=list)
    """Tools that need no approval, also where `always` matches."""


class MCPTool(FileModel):
    """An MCP server, with how to start or reach it and what the agent may do with it."""

    name: ToolName
    """How the agent, the logs and the commands call this server; unique in the file."""
    description: NonEmpty | None = None
    """What it is for, in words for people and models. Absent: what the server says of itself."""
    type: Literal["mcp"] = "mcp"
    """An MCP server."""
    server: str = ""
    """The package or service: an npm or PyPI name, an image, or a label."""
    transport: TransportType = Field(default=TransportType.STDIO, strict=False)
    """How the server is reached: started as a process (`stdio`), or over the network."""

    command: CommandType | None = Field(default=None, strict=False)
    """What starts the server: npx, uvx or docker."""
    args: list[str] | None = None
    """Arguments of `command`. Absent: made from `server`."""
    env: dict[str, Secret] = Field(default_factory=dict)
    """Variables for the server's process."""
    env_file: NonEmpty | None = Field(default=None, validation_alias=AliasChoices("envFile", "env_file"))
    """A file of variables, relative to the agent file, for the server's process and for `${...}` in this tool."""
    encoding: NonEmpty = "utf-8"
    """The encoding of the server's standard input and output."""
    cwd: NonEmpty | None = None
    """The folder that the server is started in. Absent: the agent file's folder."""

    url: NonEmpty | None = None
    """Where the server is, such as `https://mcp.example.com/mcp`."""
    headers: dict[str, Secret] = Field(default_factory=dict)
    """Sent with every request, such as `Authorization: Bearer ${API_TOKEN}`."""
    timeout: Seconds = DEFAULT_CONNECT_TIMEOUT
    """Seconds to establish a connection."""
    sse_read_timeout: Seconds = DEFAULT_SSE_READ_TIMEOUT
    """Seconds of silence on an event stream before it is given up."""
    terminate_on_close: Boolean = True
    """Tell the server when the session ends."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may be reached by plain http://, such as names inside a cluster."""
    auth: Auth | None = None
    """How HoloDeck proves to the server who it is. Absent: by `headers` alone."""
    caller_authorization: Boolean = False
    """In a gateway: a request may bring its caller's own `authorization` or `headers` for this server.

    They are sent instead of `auth` and `headers` of this file, over a connection that is only that caller's.
    """

    config: dict[str, Any] = Field(default_factory=dict)
    """Settings for the server itself; `allowed_directories` become MCP roots."""
    load_tools: Boolean = True
    """Whether the server's tools are offered to the model."""
    load_prompts: Boolean = True
    """Whether the server's prompts are offered to the person."""
    request_timeout: Annotated[Integer, Field(ge=1, le=MAX_TIMEOUT)] = DEFAULT_REQUEST_TIMEOUT
    """Seconds before a call becomes a tool error."""
    max_concurrent_calls: Annotated[Integer, Field(ge=1, le=MAX_CONCURRENT_CALLS)] = DEFAULT_CONCURRENT_CALLS
    """Calls of this server at once; one more waits for its turn, within its own `request_timeout`."""
    startup_timeout: Seconds = DEFAULT_STARTUP_TIMEOUT
    """Seconds for the server to start and answer for the first time."""

    enabled: Boolean = True
    """false: as if the server were not in the file."""
    required: Boolean = False
    """Without this server nothing runs: a run fails before the model is asked, a request with the status 503."""
    allowed_tools: list[NonEmpty] | None = None
    """Names or globs of the tools to offer. Absent: all."""
    denied_tools: list[NonEmpty] = Field(default_factory=list)
    """Names or globs of tools never to offer."""
    approval: Annotated[
        Annotated[Literal["never", "always"], Tag("text")] | Annotated[Approval, Tag("mapping")],
        Discriminator(text_or_mapping),
    ] = "never"
    """Which calls a person must approve first."""
    sampling: Literal["deny", "allow"] = "deny"
    """Whether the server may ask the agent's model to write for it."""
    idempotent_tools: list[NonEmpty] = Field(default_factory=list)
    """Names or globs of tools that may be called again when a connection is lost mid-call."""
    roots: list[NonEmpty] = Field(default_factory=list)
    """Folders offered to the server as MCP roots."""
    max_result_bytes: Annotated[Integer, Field(ge=KIB, le=MAX_RESULT_BYTES)] = DEFAULT_MAX_RESULT_BYTES
    """What is kept of one result; the rest is cut and marked."""
    allow_unsafe_args: Boolean = False
    """Allow arguments and variables that can run other code than the named server."""

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
        """The rules between fields. A bare npm name is started with npx, as it was before there was a command."""
        if isinstance(data, dict) and tool_rules.is_legacy_npm(data):
            message = f"server {data['server']} has no command and is started with npx; write 'command: npx'"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            data = {**data, "command": "npx"}
        return validate_with_rules(cls.__name__, data, handler, tool_rules.find_violations)


class FunctionTool(FileModel):
    """A Python function in the agent's project, offered to the model as a tool."""

    name: ToolName
    """How the model and the logs call this function; unique in the file."""
    description: NonEmpty | None = None
    """What it does. Absent: the function's docstring."""
    type: Literal["function"]
    """A Python function of the project."""
    file: NonEmpty
    """The Python file, relative to the agent file and inside its folder."""
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """The name of the function in that file."""
    parameters: dict[str, Any] | None = None
    """A JSON Schema of the arguments. Absent: made from the signature."""
    request_timeout: Annotated[Integer, Field(ge=1, le=MAX_TIMEOUT)] = DEFAULT_REQUEST_TIMEOUT
    """Seconds before a call becomes a tool error."""


Tool = Annotated[MCPTool | FunctionTool, Field(discriminator="type")]
TOOL_TYPES = ("mcp", "function")
