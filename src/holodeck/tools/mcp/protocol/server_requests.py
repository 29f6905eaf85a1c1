"""Answers the requests of a server: roots, and, where the program provides a handler, sampling and elicitation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from holodeck.lib import log
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from holodeck.tools.mcp.protocol.peer import (
    ELICITATION_METHOD,
    ROOTS_METHOD,
    SAMPLING_METHOD,
    Params,
    Peer,
    RefusalError,
)
from holodeck.tools.mcp.protocol.versions import TASKS_EXTENSION, ProtocolEra, mapping

# Seconds for a person or a model to answer a request of a server.
ANSWER_TIMEOUT = 600.0

Handler = Callable[[Params], Awaitable[Mapping[str, Any]]]
ListArea = Literal["tools", "prompts", "resources"]
"""A list of a server."""

CONFIG_EXTENSION = "dev.holodeck/config"
# The code that the protocol specifies for a sampling request that the user rejects.
REFUSED_BY_USER = -1
INTERACTIVE_METHODS = frozenset({SAMPLING_METHOD, ELICITATION_METHOD})


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
    on_resources_changed: Callable[[], None] | None = None
    on_list_changed: Callable[[ListArea, str], None] | None = None
    """Called with the list that has changed and the name of its server, in place of the three before."""
    on_stderr: Callable[[str], None] | None = None
    """Called with each line that the process of the server writes to standard error, secrets masked."""
    has_peers: bool = False
    """Whether calls may come with a peer, which is asked before the handlers above."""
    find_peer: Callable[[], Peer | None] | None = None
    """Returns the peer for requests that belong to no call: the only client of this program, if there is one."""

    def list_listeners(self, server: str) -> Mapping[str, Callable[[], None] | None]:
        """Return what is called when a list of this server has changed."""
        if self.on_list_changed is not None:
            areas: tuple[ListArea, ...] = ("tools", "prompts", "resources")
            return {area: partial(self.on_list_changed, area, server) for area in areas}
        return {
            "tools": self.on_tools_changed,
            "prompts": self.on_prompts_changed,
            "resources": self.on_resources_changed,
        }


class ServerRequestResponder:
    """Answers the requests of one server, and declares the matching client capabilities."""

    def __init__(self, tool: MCPTool, callbacks: Callbacks, base_dir: Path) -> None:
        self._server = tool.name
        self._may_sample = tool.sampling == "allow"
        self._callbacks = callbacks
        self._config = tool.config
        self._roots = roots_of(tool, base_dir)

    def capabilities(self, era: ProtocolEra, peer: Peer | None = None) -> dict[str, Any]:
        """Return the client capabilities to declare: only those that will be answered.

        `peer`: of the call, where they are declared for one call. A legacy connection declares them once, for all
        peers that it may have.
        """
        callbacks, is_shared = self._callbacks, era is ProtocolEra.LEGACY and self._callbacks.has_peers
        declared: dict[str, Any] = {}
        if self._roots:
            declared["roots"] = {}
        elif self._can_ask(peer or self.find_only_peer(), ROOTS_METHOD):
            # Its client may announce changes of them, which are passed on.
            declared["roots"] = {"listChanged": True} if era is ProtocolEra.LEGACY else {}
        if self._may_sample and (callbacks.sampling is not None or is_shared or self._can_ask(peer, SAMPLING_METHOD)):
            declared["sampling"] = {}
        is_everything = callbacks.elicitation is not None or is_shared
        modes = ("form", "url")
        asked: dict[str, Any] = {
            mode: {} for mode in modes if is_everything or self._can_ask(peer, ELICITATION_METHOD, {"mode": mode})
        }
        if asked:
            declared["elicitation"] = asked
        extensions: dict[str, Any] = {CONFIG_EXTENSION: self._config} if self._config else {}
        if era is ProtocolEra.MODERN:
            declared["extensions"] = {TASKS_EXTENSION: {}, **extensions}
        elif extensions:
            declared["experimental"] = extensions
        return declared

    @property
    def passes_roots_on(self) -> bool:
        """Whether the server is given the roots of the only client in front, and none of its definition."""
        return not self._roots and self._can_ask(self.find_only_peer(), ROOTS_METHOD)

    def find_only_peer(self) -> Peer | None:
        """Return the peer for requests and notifications that belong to no call, or None."""
        find = self._callbacks.find_peer
        return None if find is None else find()

    async def respond(self, method: str, params: Params, peer: Peer | None = None, key: str = "") -> Mapping[str, Any]:
        """Return the result of one request. Raises only RefusalError and cancellation.

        `peer`: the client whose call the server is working on. It is asked first, if it can answer. `key`: see `Peer`.
        """
        if method == "ping":
            return {}
        can_ask = self._can_ask(peer, method, params)
        if method == ROOTS_METHOD:
            is_asked = can_ask and not self._roots
            return await self._ask(peer, method, params, key) if is_asked else {"roots": self._roots}
        if method == SAMPLING_METHOD:
            handler = self._callbacks.sampling
            if not self._may_sample or (handler is None and not can_ask):
                raise RefusalError(REFUSED_BY_USER, "Sampling is not allowed for this server")
            if can_ask or handler is None:
                return await self._ask(peer, method, params, key)
            return await self._call_handler(handler, method, params)
        if method == ELICITATION_METHOD:
            if can_ask:
                return await self._ask(peer, method, params, key)
            if self._callbacks.elicitation is None:
                return {"action": "decline"}
            return with_defaults(await self._call_handler(self._callbacks.elicitation, method, params), params)
        raise RefusalError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _can_ask(self, peer: Peer | None, method: str, params: Params | None = None) -> bool:
        return peer is not None and peer.can_answer(method, params or {})

    async def _ask(self, peer: Peer | None, method: str, params: Params, key: str) -> Mapping[str, Any]:
        assert peer is not None  # noqa: S101 - the caller has checked it
        return await self._call_handler(lambda sent: peer.ask(method, sent, key), method, params)

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
