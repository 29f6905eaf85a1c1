"""Health, readiness, metrics and models of the gateway."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.backends import select_backends
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.errors import not_found_error
from holodeck.gateway.http.observation import READY_PATH
from holodeck.gateway.http.replies import HEALTHY, Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.metrics.exposition import Exposition, Gauge
from holodeck.gateway.runs.background import Background
from holodeck.lib.errors import StorageError
from holodeck.providers.base import is_open
from holodeck.storage.store import ResponseStore
from holodeck.tools.mcp.connection.connection import ConnectionState
from holodeck.tools.mcp.server_tools import ServerTools


class AdminEndpoints:
    """Routes that do not use a model.

    The gateway is ready while its storage and its audit log are, whether or not MCP servers are up. Tasks that keep
    failing are named beside that, and counted in the metrics.
    """

    def __init__(
        self,
        configurations: ConfigurationHolder,
        store: ResponseStore,
        exposition: Exposition,
        *,
        in_flight: Callable[[], int],
        sockets: Callable[[], int],
        background: Background,
        audit: AuditLog,
        list_failing: Callable[[], list[str]],
    ) -> None:
        """`list_failing`: the names of the tasks of the gateway that must live and keep failing."""
        self._configurations = configurations
        self._store = store
        self._exposition = exposition
        self._in_flight = in_flight
        self._sockets = sockets
        self._background = background
        self._audit = audit
        self._list_failing = list_failing

    @route(
        "GET",
        "/healthz",
        id="getHealth",
        tag="Operation",
        summary="Check that the process answers",
        description="For a supervisor that restarts a process which hangs. One whose event loop has not turned for 30 "
        "seconds is a 503.",
        reply="Health",
        example=examples.HEALTH,
        is_public=True,
    )
    async def get_health(self, request: Request) -> Reply:
        return HEALTHY

    @route(
        "GET",
        READY_PATH,
        id="getReadiness",
        tag="Operation",
        summary="Check that the gateway can serve",
        description=(
            "For a load balancer. 503 without storage, and while the gateway shuts down. `failing` names tasks "
            "of the gateway that keep failing while it serves."
        ),
        reply="Health",
        example=examples.HEALTH,
        errors=("drain",),
        unready_reply="Health",
        is_public=True,
    )
    async def get_readiness(self, request: Request) -> Reply:
        reason = ""
        try:
            is_ready = await self._store.check_health() and await self._background.check_storage()
        except StorageError as error:
            is_ready, reason = False, error.reason
        if is_ready and (loss := self._store.loss):
            return json_reply({"status": "storage incomplete", "reason": loss}, 503)
        if is_ready and await self._audit.find_failure():
            return json_reply({"status": "no audit log"}, 503)
        # It still serves: a cause that all gateways share, such as one row, must not take all of them away.
        failing = self._list_failing()
        health: dict[str, Any] = {"status": "ok" if is_ready else "no storage"}
        health |= {"reason": reason} if reason else {}
        health |= {"failing": failing} if failing else {}
        return json_reply(health, 200 if is_ready else 503)

    @route(
        "GET",
        "/metrics",
        id="getMetrics",
        tag="Operation",
        summary="Get the metrics",
        description=(
            "Counters, gauges and histograms in the text format of Prometheus, or in OpenMetrics for a client "
            "that accepts `application/openmetrics-text`."
        ),
        reply={"type": "string"},
        media_type="text/plain",
        other_media_types=("application/openmetrics-text",),
        example=examples.METRICS,
        roles=("operator", "viewer", "metrics"),
        is_counted=False,
        is_plain_read=True,
    )
    async def get_metrics(self, request: Request) -> Reply:
        """Encode the counters and histograms, with gauges of this moment, as the client accepts them."""
        body, content_type = await self._exposition.render(
            [*self._build_gauges(), await self._build_queue_gauge()], request.headers.get("accept", "")
        )
        return Reply(body=body, content_type=content_type)

    def _build_gauges(self) -> list[Gauge]:
        # The value is a count, because two agents may each have a server of the same name.
        counts = Counter((offer.server.name, offer.server.state) for offer in self._server_tools())
        names = dict.fromkeys(name for name, _ in counts)
        asked = [offer for offer in self._server_tools() if offer.failure is not None or offer.latest_tools is not None]
        down = {offer.server.name for offer in asked if offer.failure is not None}
        backends = self._configurations.current.backends
        return [
            Gauge(name="holodeck_in_flight", text="Requests at this moment.", values=[((), self._in_flight())]),
            Gauge(name="holodeck_sockets", text="Open WebSockets.", values=[((), self._sockets())]),
            Gauge(
                name="holodeck_mcp_server_state",
                text="MCP servers of this name in this state.",
                labels=("server", "state"),
                values=[
                    ((name, state.name.lower()), counts[name, state]) for name in names for state in ConnectionState
                ],
            ),
            Gauge(
                name="holodeck_mcp_server_up",
                text="1 if the MCP server listed its tools when it was last asked, 0 if it is unavailable.",
                labels=("server",),
                values=[((name,), name not in down) for name in dict.fromkeys(offer.server.name for offer in asked)],
            ),
            Gauge(
                name="holodeck_model_breaker_open",
                text="1 while a model that kept failing is not asked.",
                labels=("model",),
                values=[((name,), is_open(each.provider)) for name, each in backends.items()],
            ),
            Gauge(
                name="holodeck_tasks_failing",
                text="Tasks of the gateway, such as the take-over of responses, that keep failing.",
                values=[((), len(self._list_failing()))],
            ),
            Gauge(
                name="holodeck_background_running",
                text="Background responses that run here.",
                values=[((), self._background.running_count)],
            ),
        ]

    async def _build_queue_gauge(self) -> Gauge:
        return Gauge(
            name="holodeck_background_waiting",
            text="Background responses that wait for room on any gateway. NaN: the storage cannot say.",
            values=[((), await self._count_queued())],
        )

    @route(
        "GET",
        "/v1/models",
        id="listModels",
        tag="Models",
        summary="List the models",
        description="Models and agents, by the names that `model` can have.",
        reply="ModelList",
        example=examples.MODELS,
        is_counted=False,
    )
    async def list_models(self, request: Request) -> Reply:
        backends = select_backends(self._configurations.current.backends, request.caller.scope)
        data = [backend.to_resource(request.caller.scope) for backend in backends.values()]
        return json_reply({"object": "list", "data": data})

    @route(
        "GET",
        "/v1/models/{id}",
        id="getModel",
        tag="Models",
        summary="Get a model",
        description="The name may contain slashes.",
        reply="Model",
        example=examples.MODEL,
        errors=("lookup",),
        is_counted=False,
        may_have_slashes=True,
    )
    async def get_model(self, request: Request) -> Reply:
        backend = self._configurations.current.backends.get(request.path_params["id"])
        if backend is None or not backend.is_allowed_by(request.caller.scope):
            raise not_found_error("Model", request.path_params["id"])
        return json_reply(backend.to_resource(request.caller.scope))

    async def _count_queued(self) -> float:
        try:
            return await self._background.count_queued()
        except StorageError:
            return math.nan

    def _server_tools(self) -> list[ServerTools]:
        return self._configurations.current.server_tools
