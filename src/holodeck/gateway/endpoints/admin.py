"""Health, readiness, metrics, models and MCP servers of the gateway."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.scope import CallerScope
from holodeck.gateway.backends import select_backends
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.errors import APIError, not_found_error, unknown_server_text
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.metrics import Labels, Metrics
from holodeck.gateway.runs.background import Background
from holodeck.lib.errors import MCPError, StorageError
from holodeck.storage.base import ResponseStore
from holodeck.tools.mcp.connection.connection import ConnectionState
from holodeck.tools.mcp.server_tools import ServerTools


class AdminEndpoints:
    """Routes that do not use a model.

    The gateway is ready while its storage and its audit log are, whether or not MCP servers are up.
    """

    def __init__(
        self,
        configurations: ConfigurationHolder,
        store: ResponseStore,
        metrics: Metrics,
        *,
        in_flight: Callable[[], int],
        sockets: Callable[[], int],
        background: Background,
        audit: AuditLog,
    ) -> None:
        self._configurations = configurations
        self._store = store
        self._metrics = metrics
        self._in_flight = in_flight
        self._sockets = sockets
        self._background = background
        self._audit = audit

    async def get_health(self, request: Request) -> Reply:
        return json_reply({"status": "ok"})

    async def get_readiness(self, request: Request) -> Reply:
        try:
            is_ready = await self._store.check_health() and await self._background.check_storage()
        except StorageError:
            is_ready = False
        if is_ready and await self._audit.find_failure():
            return json_reply({"status": "no audit log"}, 503)
        return json_reply({"status": "ok" if is_ready else "no storage"}, 200 if is_ready else 503)

    async def get_metrics(self, request: Request) -> Reply:
        """Render the counters and histograms, with gauges of this moment."""
        # The value is a count, because two agents may each have a server of the same name.
        counts = Counter((offer.server.name, offer.server.state) for offer in self._server_tools())
        states: list[tuple[Labels, float]] = [
            ((("server", name), ("state", state.name.lower())), float(counts[name, state]))
            for name in dict.fromkeys(name for name, _ in counts)
            for state in ConnectionState
        ]
        breakers: list[tuple[Labels, float]] = [
            ((("model", name),), float(getattr(backend.provider, "is_open", False)))
            for name, backend in self._configurations.current.backends.items()
        ]
        in_flight: list[tuple[Labels, float]] = [((), float(self._in_flight()))]
        gauges: dict[str, list[tuple[Labels, float]]] = {
            "holodeck_in_flight": in_flight,
            "holodeck_sockets": [((), float(self._sockets()))],
            "holodeck_mcp_server_state": states,
            "holodeck_model_breaker_open": breakers,
            "holodeck_background_waiting": [((), float(await self._count_queued()))],
            "holodeck_background_running": [((), float(self._background.running_count))],
        }
        return Reply(body=self._metrics.render(gauges), content_type="text/plain; version=0.0.4")

    async def list_models(self, request: Request) -> Reply:
        backends = select_backends(self._configurations.current.backends, request.caller.scope)
        return json_reply({"object": "list", "data": [backend.to_resource() for backend in backends.values()]})

    async def get_model(self, request: Request) -> Reply:
        backend = self._configurations.current.backends.get(request.path_params["id"])
        if backend is None or not backend.is_allowed_by(request.caller.scope):
            raise not_found_error("Model", request.path_params["id"])
        return json_reply(backend.to_resource())

    async def list_servers(self, request: Request) -> Reply:
        offers = self._allowed_server_tools(request.caller.scope)
        return json_reply({"object": "list", "data": [_server_resource_of(offer) for offer in offers]})

    async def list_tools(self, request: Request) -> Reply:
        server, scope = self._require_servers(request)[0].server, request.caller.scope
        try:
            tools = [tool for tool in await server.list_tools() if scope.allows_tool(server.name, tool.name)]
        except MCPError as error:
            return json_reply({"object": "list", "data": [], "error": str(error)})
        data = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools]
        return json_reply({"object": "list", "data": data})

    async def refresh_server(self, request: Request) -> Reply:
        """Reconnect to every server of the name, and wait for it."""
        offers = self._require_servers(request)
        for offer in offers:
            # The error is in the resource of the server.
            with suppress(MCPError):
                await offer.refresh()
        return json_reply(_server_resource_of(offers[0]))

    async def _count_queued(self) -> float:
        try:
            return await self._background.count_queued()
        except StorageError:
            return math.nan

    def _server_tools(self) -> list[ServerTools]:
        return self._configurations.current.server_tools

    def _allowed_server_tools(self, scope: CallerScope) -> list[ServerTools]:
        return [offer for offer in self._server_tools() if scope.allows_server(offer.server.name)]

    def _require_servers(self, request: Request) -> list[ServerTools]:
        """The servers of the name in the path, since two agents may each have one. Raises the 404 if there is none.

        A server out of the caller's scope is as one that does not exist.
        """
        name, offers = request.path_params["name"], self._allowed_server_tools(request.caller.scope)
        found = [offer for offer in offers if offer.server.name == name]
        if not found:
            message = unknown_server_text(name, (offer.server.name for offer in offers))
            raise APIError(404, message, kind="not_found", code="not_found")
        return found


def _server_resource_of(offer: ServerTools) -> dict[str, Any]:
    server = offer.server
    return {
        "name": server.name,
        "object": "mcp_server",
        "state": server.state.name.lower(),
        "transport": server.config.transport.value,
        "era": server.era.value if server.era is not None else None,
        "protocol_version": server.protocol_version,
        "last_error": str(offer.failure) if offer.failure is not None else None,
        "next_try_at": int(offer.next_try) if offer.next_try is not None else None,
        "warnings": list(server.unmatched_patterns),
        "withheld": [
            {"tool": drift.tool, "kind": drift.kind, "reason": drift.reason} for drift in server.withheld_tools
        ],
    }
