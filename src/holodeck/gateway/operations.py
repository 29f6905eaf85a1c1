"""What an operator looks at: is it alive, is it ready, which models and MCP servers it has, and in which state."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holodeck.gateway.backends import Backend
from holodeck.gateway.background import Background
from holodeck.gateway.metrics import Labels, Metrics
from holodeck.gateway.problems import not_found
from holodeck.gateway.replies import Reply, json_reply
from holodeck.lib.errors import MCPError, StorageError
from holodeck.storage.store import ResponseStore
from holodeck.tools.mcp.connection import State
from holodeck.tools.mcp.offer import ServerOffer

if TYPE_CHECKING:
    from holodeck.gateway.app import Call


class Operations:
    """Answers without touching a model. MCP being down never makes the gateway unready."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        store: ResponseStore,
        metrics: Metrics,
        *,
        in_flight: Callable[[], int],
        sockets: Callable[[], int],
        background: Background,
    ) -> None:
        self._backends = backends
        self._store = store
        self._metrics = metrics
        self._in_flight = in_flight
        self._sockets = sockets
        self._background = background

    async def healthz(self, call: Call) -> Reply:
        return json_reply({"status": "ok"})

    async def readyz(self, call: Call) -> Reply:
        try:
            is_ready = await self._store.is_healthy() and await self._background.is_able()
        except StorageError:
            is_ready = False
        return json_reply({"status": "ok" if is_ready else "no storage"}, 200 if is_ready else 503)

    async def metrics(self, call: Call) -> Reply:
        """Everything that was counted, and what is true now."""
        # Two agents may each have a server of the same name: then it is counted how many are in a state.
        found = Counter((offer.server.name, offer.server.state) for offer in self._offers())
        states: list[tuple[Labels, float]] = [
            ((("server", name), ("state", state.name.lower())), float(found[name, state]))
            for name in dict.fromkeys(name for name, _ in found)
            for state in State
        ]
        breakers: list[tuple[Labels, float]] = [
            ((("model", name),), float(getattr(backend.provider, "is_open", False)))
            for name, backend in self._backends.items()
        ]
        in_flight: list[tuple[Labels, float]] = [((), float(self._in_flight()))]
        gauges: dict[str, list[tuple[Labels, float]]] = {
            "holodeck_in_flight": in_flight,
            "holodeck_sockets": [((), float(self._sockets()))],
            "holodeck_mcp_server_state": states,
            "holodeck_model_breaker_open": breakers,
            "holodeck_background_waiting": [((), float(await self._waiting()))],
            "holodeck_background_running": [((), float(self._background.running))],
        }
        return Reply(body=self._metrics.text(gauges), content_type="text/plain; version=0.0.4")

    async def _waiting(self) -> float:
        try:
            return await self._background.waiting()
        except StorageError:
            return math.nan

    async def models(self, call: Call) -> Reply:
        return json_reply({"object": "list", "data": [backend.card() for backend in self._backends.values()]})

    async def model(self, call: Call) -> Reply:
        backend = self._backends.get(call.path["id"])
        if backend is None:
            raise not_found("Model", call.path["id"])
        return json_reply(backend.card())

    async def servers(self, call: Call) -> Reply:
        return json_reply({"object": "list", "data": [_shown(offer) for offer in self._offers()]})

    async def tools(self, call: Call) -> Reply:
        server = self._found(call)[0].server
        try:
            tools = await server.list_tools()
        except MCPError as error:
            return json_reply({"object": "list", "data": [], "error": str(error)})
        shown = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools]
        return json_reply({"object": "list", "data": shown})

    async def refresh(self, call: Call) -> Reply:
        """Connect anew, now."""
        offers = self._found(call)
        for offer in offers:
            with suppress(MCPError):  # it is shown with the server
                await offer.refresh()
        return json_reply(_shown(offers[0]))

    def _offers(self) -> list[ServerOffer]:
        """Every server once, also one that several models share."""
        return list(dict.fromkeys(offer for each in self._backends.values() for offer in each.mcp.offers.values()))

    def _found(self, call: Call) -> list[ServerOffer]:
        """The servers of this name; two agents may each have one."""
        found = [offer for offer in self._offers() if offer.server.name == call.path["name"]]
        if not found:
            raise not_found("MCP server", call.path["name"])
        return found


def _shown(offer: ServerOffer) -> dict[str, Any]:
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
    }
