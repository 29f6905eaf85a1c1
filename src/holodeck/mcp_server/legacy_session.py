"""A session of the protocol up to 2025-11-25, which begins with a handshake.

`LegacySession` is the state of one client: its capabilities, its log level, its subscriptions and the questions that it
has not answered. It does not own a transport. Messages that belong to a request go to the `send` that comes with the
request; all others go to the `send` of the session. The owner calls `close` at the end.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from holodeck.lib import log
from holodeck.mcp_server.context import RequestContext, Send, select_capabilities
from holodeck.mcp_server.errors import INVALID_REQUEST, RPCError, build_unexpected_error, invalid_params
from holodeck.mcp_server.list_changes import Area, ListChanges
from holodeck.mcp_server.methods import CAPABILITIES, MAX_SUBSCRIPTIONS, Methods, Result
from holodeck.mcp_server.view import View
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, Message, RequestId, build_cancellation
from holodeck.tools.mcp.protocol.peer import Params, RefusalError
from holodeck.tools.mcp.protocol.server_log import LEVEL_NAMES
from holodeck.tools.mcp.protocol.versions import CLIENT_INFO, LEGACY_VERSIONS, ProtocolEra, mapping
from holodeck.tools.mcp.resource_subscriptions import ResourceSubscription

# The lowest level of log messages for a client that has not chosen one.
DEFAULT_LOG_LEVEL = "info"


class LegacySession:
    """One client with its handshake."""

    def __init__(self, methods: Methods, changes: ListChanges, view: View, *, send: Send) -> None:
        self.view = view
        self.version = LEGACY_VERSIONS[-1]
        self.is_initialized = False
        self._methods = methods
        self._changes = changes
        self._send = send
        self._capabilities: Mapping[str, Any] = {}
        self._log_level = DEFAULT_LOG_LEVEL
        self._questions: dict[object, asyncio.Future[Message]] = {}
        self._subscriptions: dict[str, ResourceSubscription] = {}
        self._stop_listening: Callable[[], None] | None = None
        self._own: Mapping[str, Callable[[Params], Awaitable[Result]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "logging/setLevel": self._set_log_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    async def respond(self, request_id: RequestId, method: str, params: Params, send: Send) -> Message:
        """Return the response to a request, whatever happens. `send`: as in `handle_request`."""
        try:
            result = await self.handle_request(method, params, send)
        except RPCError as error:
            return error.to_response(request_id)
        # The boundary: a bug here must not leave the client without an answer.
        except Exception as error:
            return build_unexpected_error(error, method, request_id)
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    async def handle_request(self, method: str, params: Params, send: Send) -> Result:
        """Return the result of a request. `send`: for messages that belong to it. Raises RPCError."""
        if method in self._own:
            return await self._own[method](params)
        if not self.is_initialized:
            raise RPCError(INVALID_REQUEST, "The session is not initialized: send 'initialize' first")
        return await self._methods.handle(method, params, self.build_context(params, send))

    def build_context(self, params: Params, send: Send) -> RequestContext:
        return RequestContext(
            self.view,
            era=ProtocolEra.LEGACY,
            capabilities=self._capabilities,
            params=params,
            send=send,
            ask=partial(self._ask, send),
            log_level=self._log_level,
            client=self,
        )

    def handle_response(self, message: Message) -> None:
        """Take the answer to a question of a server. One that is not waited for is ignored."""
        request_id = message.get("id")
        future = self._questions.get(request_id) if isinstance(request_id, str) else None
        if future is not None and not future.done():
            future.set_result(message)

    def describe(self) -> dict[str, Any]:
        """Return what another process needs to go on with the session, as JSON values."""
        return {
            "version": self.version,
            "capabilities": self._capabilities,
            "log_level": self._log_level,
            "subscriptions": sorted(self._subscriptions),
        }

    def restore(self, described: Mapping[str, Any]) -> None:
        """Go on with the session of another process. `subscribe_again` is to follow."""
        self._begin(described["version"], described["capabilities"])
        self._log_level = described["log_level"]

    async def subscribe_again(self, described: Mapping[str, Any]) -> None:
        """Subscribe to the resources of a restored session. One that cannot be watched any more is left out."""
        for uri in described["subscriptions"]:
            try:
                await self._subscribe({"uri": uri})
            except RPCError as error:
                log.info("mcp_server.not_subscribed", error=error)

    async def close(self) -> None:
        """End the subscriptions and the open questions."""
        if self._stop_listening is not None:
            self._stop_listening()
        for future in self._questions.values():
            future.cancel()
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        self._subscriptions.clear()

    async def _initialize(self, params: Params) -> Result:
        version = params.get("protocolVersion")
        if not isinstance(version, str):
            raise invalid_params("'protocolVersion' must be a text")
        known = version if version in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]
        self._begin(known, select_capabilities(params.get("capabilities")))
        result: dict[str, Any] = {
            "protocolVersion": self.version,
            "capabilities": CAPABILITIES,
            "serverInfo": CLIENT_INFO,
        }
        instructions = self._methods.describe(self.view)
        return result if instructions is None else {**result, "instructions": instructions}

    def _begin(self, version: str, capabilities: Mapping[str, Any]) -> None:
        self.version, self._capabilities = version, capabilities
        self.is_initialized = True
        if self._stop_listening is None:
            self._stop_listening = self._changes.listen(self._send_change)

    async def _ping(self, params: Params) -> Result:
        return {}

    async def _set_log_level(self, params: Params) -> Result:
        level = params.get("level")
        if level not in LEVEL_NAMES:
            raise invalid_params(f"'level' must be one of {', '.join(LEVEL_NAMES)}")
        self._log_level = str(level)
        await self._methods.request_log_level(self._log_level, self.view)
        return {}

    async def _subscribe(self, params: Params) -> Result:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise invalid_params("'uri' must be a text")
        if uri not in self._subscriptions:
            if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
                raise invalid_params(f"This session has {MAX_SUBSCRIPTIONS} subscriptions: end some first")
            subscription = await self._methods.subscribe(uri, self.view, self._send_update)
            if self._subscriptions.setdefault(uri, subscription) is not subscription:
                # The same request, at the same time, has subscribed before.
                await subscription.close()
        return {}

    async def _unsubscribe(self, params: Params) -> Result:
        subscription = self._subscriptions.pop(str(params.get("uri")), None)
        if subscription is not None:
            await subscription.close()
        return {}

    async def _ask(self, send: Send, method: str, params: Params, key: str) -> Mapping[str, Any]:
        """Send a request to the client with the messages of one of its own requests, and wait for the answer."""
        # Random, so that no answer can be sent before its question was read.
        request_id = f"holodeck-{secrets.token_urlsafe(16)}"
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._questions[request_id] = future
        try:
            send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params)})
            answer = await future
        except asyncio.CancelledError:
            if future.cancelled():
                raise RefusalError(INTERNAL_ERROR, "The client has left") from None
            send(build_cancellation(request_id, "the answer is not needed any more"))
            raise
        finally:
            self._questions.pop(request_id, None)
        if isinstance(answer.get("result"), dict):
            result: Mapping[str, Any] = answer["result"]
            return result
        error = mapping(answer.get("error"))
        code = error.get("code")
        text = str(error.get("message") or "refused")
        raise RefusalError(code if isinstance(code, int) else INTERNAL_ERROR, text, error.get("data"))

    def _send_change(self, area: Area, servers: Collection[str] | None) -> None:
        if self.view.has_any_server(servers):
            self._send({"jsonrpc": "2.0", "method": f"notifications/{area}/list_changed"})

    def _send_update(self, uri: str) -> None:
        self._send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
