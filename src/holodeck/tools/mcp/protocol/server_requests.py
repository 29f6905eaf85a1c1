"""Answers the requests of a server: roots, and, where the program provides a handler, sampling and elicitation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holodeck.lib import log
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from holodeck.tools.mcp.protocol.versions import ProtocolEra, mapping

# Seconds for a person or a model to answer a request of a server.
ANSWER_TIMEOUT = 600.0

Params = Mapping[str, Any]
Handler = Callable[[Params], Awaitable[Mapping[str, Any]]]

CONFIG_EXTENSION = "dev.holodeck/config"
# The code that the protocol specifies for a sampling request that the user rejects.
REFUSED_BY_USER = -1
ROOTS_METHOD = "roots/list"
INTERACTIVE_METHODS = frozenset({"sampling/createMessage", "elicitation/create"})


@record
class Callbacks:
    """Handlers and listeners of the program that uses a server. All are optional."""

    sampling: Handler | None = None
    """Runs the agent's model for the server. Used only if the definition also has `sampling: allow`."""
    elicitation: Handler | None = None
    """Asks the person. Without it every elicitation is declined."""
    on_message: Callable[[Mapping[str, Any] | Exception], None] | None = None
    """Called with every notification of the server, and every failure of its connection."""
    on_tools_changed: Callable[[], None] | None = None
    on_prompts_changed: Callable[[], None] | None = None


class RefusalError(RuntimeError):
    """A request of the server is refused. The code and the text are sent to the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerRequestResponder:
    """Answers the requests of one server, and declares the matching client capabilities."""

    def __init__(self, tool: MCPTool, callbacks: Callbacks, base_dir: Path) -> None:
        self._server = tool.name
        self._sampling = callbacks.sampling if tool.sampling == "allow" else None
        self._elicitation = callbacks.elicitation
        self._config = tool.config
        self._roots = roots_of(tool, base_dir)

    def capabilities(self, era: ProtocolEra) -> dict[str, Any]:
        """Return the client capabilities to declare: only those that will be answered."""
        declared: dict[str, Any] = {}
        if self._roots:
            declared["roots"] = {}
        if self._sampling is not None:
            declared["sampling"] = {}
        if self._elicitation is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self._config:
            declared["extensions" if era is ProtocolEra.MODERN else "experimental"] = {CONFIG_EXTENSION: self._config}
        return declared

    async def respond(self, method: str, params: Params) -> Mapping[str, Any]:
        """Return the result of one request. Raises only RefusalError and cancellation."""
        if method == "ping":
            return {}
        if method == ROOTS_METHOD:
            return {"roots": self._roots}
        if method == "sampling/createMessage":
            if self._sampling is None:
                raise RefusalError(REFUSED_BY_USER, "Sampling is not allowed for this server")
            return await self._call_handler(self._sampling, method, params)
        if method == "elicitation/create":
            if self._elicitation is None:
                return {"action": "decline"}
            return with_defaults(await self._call_handler(self._elicitation, method, params), params)
        raise RefusalError(METHOD_NOT_FOUND, f"Method not found: {method}")

    async def _call_handler(self, handler: Handler, method: str, params: Params) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await handler(params)
        except RefusalError:
            raise
        # The handler is code of the program, and its error must not reach the server.
        except Exception as error:
            log.warning("mcp.answer_failed", server=self._server, method=method, error=type(error).__name__)
            raise RefusalError(INTERNAL_ERROR, f"The client could not answer {method}") from error


def roots_of(tool: MCPTool, base_dir: Path) -> list[dict[str, str]]:
    """Return the folders of the tool as MCP roots: `roots`, and `allowed_directories` of its `config`."""
    configured = tool.config.get("allowed_directories")
    extra = [item for item in configured if isinstance(item, str)] if isinstance(configured, list) else []
    folders: Sequence[Path] = [(base_dir / Path(folder).expanduser()).absolute() for folder in (*tool.roots, *extra)]
    return [{"uri": folder.as_uri(), "name": folder.name or str(folder)} for folder in dict.fromkeys(folders)]


def with_defaults(answer: Mapping[str, Any], params: Params) -> Mapping[str, Any]:
    """Fill the omitted fields of an accepted form with the defaults of its schema."""
    if answer.get("action") != "accept" or params.get("mode") == "url":
        return answer
    properties = mapping(mapping(params.get("requestedSchema")).get("properties"))
    defaults = {key: mapping(schema)["default"] for key, schema in properties.items() if "default" in mapping(schema)}
    return {**answer, "content": {**defaults, **mapping(answer.get("content"))}}
