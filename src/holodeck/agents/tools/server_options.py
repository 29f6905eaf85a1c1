"""The options of an `MCPServer`, and the definition that they and its transport make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pydantic
from typing_extensions import TypedDict

from holodeck.agents.hooks import Elicitation
from holodeck.agents.models import describe_problems
from holodeck.lib.errors import MCPConfigError
from holodeck.lib.record import record
from holodeck.models.auth import Auth, BearerAuth
from holodeck.models.tool import Approval, InMemoryTool, MCPTool, Sandbox
from holodeck.models.tool_rules import CommandRule

if TYPE_CHECKING:
    from holodeck.tools.mcp.protocol.server_requests import Callbacks, Handler

AnyMCPTool = TypeVar("AnyMCPTool", bound=MCPTool)


@record
class LogMessage:
    """A log message of a server."""

    level: str
    """`debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`."""
    data: Any
    """The message: a text, or any other JSON value."""
    logger: str | None = None
    """Part of the server that logs."""


OnElicitation = Callable[[Elicitation], Awaitable[Mapping[str, Any] | None]]
"""Answers a question with the values that its schema asks for. None: declined."""
OnSampling = Callable[[Mapping[str, Any]], Awaitable[str | Mapping[str, Any]]]
"""Answers `sampling/createMessage`, whose parameters it gets, with the text of a message or the whole result."""


class ServerOptions(TypedDict, total=False):
    """Options of every MCP server."""

    description: str
    """Purpose of the server, for models. Absent: the server's own description."""
    allowed_tools: Sequence[str]
    """Names or globs of tools that are used. Absent: all."""
    denied_tools: Sequence[str]
    """Names or globs of tools that are never used."""
    idempotent_tools: Sequence[str]
    """Names or globs of tools that may be called again if the connection is lost during a call."""
    approval: Literal["never", "always"] | Approval | Mapping[str, Sequence[str]]
    """Calls of an agent that need approval: `never`, `always`, or lists of tools by these words."""
    required: bool
    """Whether runs of an agent need this server. True: without it, a run fails before its first turn."""
    request_timeout: int
    """Seconds after which a call fails. Absent: 60."""
    startup_timeout: float
    """Seconds for the server to start and to answer its first request. Absent: 120."""
    max_concurrent_calls: int
    """Calls at once. Further ones wait, within their own timeout."""
    max_result_bytes: int
    """Bytes of one result. The rest is cut off, and the cut is marked."""
    protocol: Literal["auto", "legacy", "modern"]
    """Era of MCP that is spoken. Absent: the server is asked once."""
    sampling: Literal["deny", "allow"]
    """Whether the server may send requests to the model of an agent."""
    roots: Sequence[str | Path]
    """Folders that are announced to the server."""
    config: Mapping[str, Any]
    """Settings for the server itself."""
    load_resources: bool
    """Whether the model of an agent may read the resources of the server."""
    on_tools_changed: Callable[[], None]
    """Called when the server announces other tools."""
    on_log: Callable[[LogMessage], None]
    """Called with each log message of the server."""
    on_elicitation: OnElicitation
    """Answers questions of the server. Absent: they are declined."""
    on_sampling: OnSampling
    """Answers requests of the server to a model; this allows `sampling`. Absent: the model of an agent does."""


class StdioOptions(ServerOptions, total=False):
    """Options of a server that is a program on this machine."""

    sandbox: bool | Sandbox | Mapping[str, Any]
    """Whether the program is kept from other files, and what it may reach. Only on Linux."""
    encoding: str
    """Encoding of the program's standard input and output. Absent: UTF-8."""


class RemoteOptions(ServerOptions, total=False):
    """Options of a server at a URL."""

    timeout: float
    """Seconds to establish a connection. Absent: 30."""
    sse_read_timeout: float
    """Seconds of silence after which an event stream is closed. Absent: 300."""
    terminate_on_close: bool
    """Whether the server is notified when the session ends."""
    allow_insecure_hosts: Sequence[str]
    """Hosts that may be reached by plain http://, such as names inside a cluster."""


_CALLBACKS = ("on_tools_changed", "on_log", "on_elicitation", "on_sampling")


@record
class ServerCallbacks:
    """The functions of a program that an MCP server's messages are given to."""

    on_tools_changed: Callable[[], None] | None = None
    on_log: Callable[[LogMessage], None] | None = None
    on_elicitation: OnElicitation | None = None
    on_sampling: OnSampling | None = None

    def build(self, server: str, agents: Sequence[Callbacks]) -> Callbacks:
        """Return the callbacks of a connection. Requests without a function of the program go to the first agent.

        `server`: its name. `agents`: those that use the connection, the one that opens it included; it may change.
        """
        from holodeck.tools.mcp.protocol.server_requests import Callbacks

        return Callbacks(
            sampling=_adapt_sampling(self.on_sampling) if self.on_sampling else _delegate(agents, "sampling"),
            elicitation=(
                _adapt_elicitation(server, self.on_elicitation)
                if self.on_elicitation
                else _delegate(agents, "elicitation")
            ),
            has_peers=any(each.has_peers for each in agents),
            on_tools_changed=self.on_tools_changed,
            on_message=None if self.on_log is None else _adapt_log(self.on_log),
        )


def build_server(
    entry: Mapping[str, Any], options: Mapping[str, Any], allowed: type[ServerOptions], folder: Path
) -> tuple[MCPTool, ServerCallbacks]:
    """Return the definition of a server and the functions for its messages. Raises `MCPConfigError`.

    `entry`: the keys of its transport. `allowed`: the options that it may have. `folder`: relative paths start there.
    """
    definition, callbacks = _validate(entry, options, allowed, folder, MCPTool)
    limits = definition.sandbox_limits
    if limits is None:
        return definition, callbacks
    paths = {key: _to_absolute_paths(getattr(limits, key), folder) for key in ("read", "write")}
    return definition.model_copy(update={"sandbox": limits.model_copy(update=paths)}), callbacks


def build_in_memory_server(
    name: str, server_object: object, options: Mapping[str, Any]
) -> tuple[InMemoryTool, ServerCallbacks]:
    """Do as `build_server` does, for a server that is an object of the program."""
    entry = {"name": name, "server_object": server_object}
    return _validate(entry, options, ServerOptions, Path.cwd(), InMemoryTool)


def _validate(
    entry: Mapping[str, Any],
    options: Mapping[str, Any],
    allowed: type[ServerOptions],
    folder: Path,
    kind: type[AnyMCPTool],
) -> tuple[AnyMCPTool, ServerCallbacks]:
    name = entry["name"]
    known = allowed.__annotations__
    for key in options:
        if key not in known:
            import difflib

            similar = difflib.get_close_matches(key, known, n=1)
            fix = f" Did you mean '{similar[0]}'?" if similar else ""
            raise MCPConfigError(f"The MCP server '{name}' has no option '{key}'.{fix}")
    callbacks = ServerCallbacks(**{key: options[key] for key in _CALLBACKS if key in options})
    further = {key: _to_plain(key, value, folder) for key, value in options.items() if key not in _CALLBACKS}
    if callbacks.on_sampling is not None:
        further["sampling"] = "allow"
    written = {key: value for key, value in {**entry, **further}.items() if value is not None}
    try:
        definition = kind.model_validate(CommandRule(allows_all=True).apply({"type": "mcp", **written}))
    except pydantic.ValidationError as error:
        problems = describe_problems(error, {"tools": [{"type": "mcp", **written}]}, at=("tools", 0))
        raise MCPConfigError(f"The MCP server '{name}' is defined wrongly: {problems}") from None
    return definition, callbacks


def to_auth(auth: str | Auth | Mapping[str, Any] | None) -> Auth | Mapping[str, Any] | None:
    """Return the `auth` of a definition: a text is a bearer token."""
    return BearerAuth.model_validate({"type": "bearer", "token": auth}) if isinstance(auth, str) else auth


def _to_plain(key: str, value: Any, folder: Path) -> Any:
    """Return an option in the form of files: lists, and absolute paths."""
    if key == "roots":
        return _to_absolute_paths(value, folder)
    if isinstance(value, str) or not isinstance(value, Sequence | Mapping):
        return value
    return dict(value) if isinstance(value, Mapping) else list(value)


def _to_absolute_paths(paths: Sequence[str | Path], folder: Path) -> list[str]:
    return [str(folder / Path(each).expanduser()) for each in paths]


def _delegate(agents: Sequence[Callbacks], kind: Literal["sampling", "elicitation"]) -> Handler | None:
    """Return a handler that asks the first agent that has one; None if the agent that opens the connection has none."""
    from holodeck.tools.mcp.protocol.peer import RefusalError
    from holodeck.tools.mcp.protocol.server_requests import REFUSED_BY_USER

    if not any(getattr(each, kind) for each in agents):
        return None

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        handler: Handler | None = next(filter(None, (getattr(each, kind) for each in agents)), None)
        if handler is None:
            raise RefusalError(REFUSED_BY_USER, "The agent that could answer has ended")
        return await handler(params)

    return answer


def _adapt_sampling(on_sampling: OnSampling) -> Handler:
    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        result = await on_sampling(params)
        if isinstance(result, str):
            content = {"type": "text", "text": result}
            return {"role": "assistant", "content": content, "model": "program", "stopReason": "endTurn"}
        return result

    return answer


def _adapt_elicitation(server: str, on_elicitation: OnElicitation) -> Handler:
    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        question = Elicitation.from_params(server, params)
        return question.build_result(await on_elicitation(question))

    return answer


def _adapt_log(on_log: Callable[[LogMessage], None]) -> Callable[[Mapping[str, Any] | Exception], None]:
    def listen(message: Mapping[str, Any] | Exception) -> None:
        if isinstance(message, Exception) or message.get("method") != "notifications/message":
            return
        params = message.get("params")
        if isinstance(params, dict):
            logger = params.get("logger")
            level = str(params.get("level") or "info")
            on_log(LogMessage(level=level, data=params.get("data"), logger=logger if isinstance(logger, str) else None))

    return listen
