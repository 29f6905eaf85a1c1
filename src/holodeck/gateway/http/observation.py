"""The observation of requests: the id, metrics, log line and trace span of each, and the record of refused ones."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holodeck.gateway.http.error_codes import ERROR_CODES
from holodeck.gateway.http.errors import GATEWAY_OVERLOADED
from holodeck.gateway.metrics.counters import OTHER_LABEL, Metrics
from holodeck.lib import log, tracing
from holodeck.lib.ids import new_id

# Characters of a request id that a client or a proxy sends. A longer value is no id, and would fill the log.
MAX_REQUEST_ID_CHARS = 128
# Characters of a parameter's path in the log. Keys of a body are in it, which a client may make as long as it wants.
MAX_PARAM_CHARS = 100

UNKNOWN_ROUTE = "unknown"
"""The route of a request whose path is none of the gateway's."""

_REQUEST_ID = re.compile(rf"[A-Za-z0-9._:/=+@~-]{{1,{MAX_REQUEST_ID_CHARS}}}")
READY_PATH = "/readyz"
"""The route for load balancers; it is refused while the gateway drains."""
# Machines request these every few seconds: they are not traced, logged at debug level while they succeed, and answered
# under any load.
PROBE_PATHS = frozenset({"/healthz", READY_PATH, "/metrics"})
_OK = 200
_FIRST_SERVER_ERROR = 500
_AUTH_STATUSES = frozenset({401, 403})
_CLIENT_GONE = "client_gone"
# A gateway that stops refuses requests as it should.
_SHUTTING_DOWN = "shutting_down"
_KNOWN_CODES = frozenset(each.code or each.kind for each in ERROR_CODES)


class ObservedRequest(Protocol):
    """An HTTP request that is being served, or that has ended."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def caller_id(self) -> str: ...
    @property
    def status(self) -> int: ...
    @property
    def started_at(self) -> float: ...


def observe_end(request: ObservedRequest, metrics: Metrics) -> None:
    """Count and log a request that has ended."""
    method, path, status = request.method, request.path, request.status
    seconds = time.perf_counter() - request.started_at
    metrics.count_request(request.route, method, status, seconds, request.caller_id)
    write_log = log.debug if path in PROBE_PATHS and status == _OK else log.info
    write_log("gateway.request", method=method, path=path, status=status, seconds=round(seconds, 4))


def request_id_of(headers: Mapping[str, str]) -> str:
    """Return the id for logs and traces: the `x-request-id` of a client or proxy if it looks like one, or a new one."""
    sent = headers.get("x-request-id")
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else new_id("req")


def open_socket_span(headers: Mapping[str, str], path: str, request_id: str) -> AbstractContextManager[tracing.Span]:
    """Open the trace span of a WebSocket, from its handshake to its end."""
    if not tracing.tracers:
        return tracing.NOOP_SPAN
    attributes = {"http.request.method": "GET", "http.route": path, "holodeck.request.id": request_id}
    return tracing.span(f"GET {path}", attributes, kind="server", parent=headers)


def open_request_span(
    request: ObservedRequest, headers: Mapping[str, str], scheme: str
) -> AbstractContextManager[tracing.Span]:
    """Open the trace span of a request. That of a probe records nothing."""
    if request.path in PROBE_PATHS:
        return tracing.NOOP_SPAN
    attributes = {
        "http.request.method": request.method,
        "url.scheme": scheme,
        "url.path": request.path,
        "holodeck.request.id": request.id,
    }
    return tracing.span(request.method, attributes, kind="server", parent=headers)


def describe_span(span: tracing.Span, request: ObservedRequest) -> None:
    """Set what is known of a request at its end."""
    if request.route != UNKNOWN_ROUTE:
        span.rename(f"{request.method} {request.route}")
        span.set({"http.route": request.route})
    span.set({"http.response.status_code": request.status or None})
    if request.status >= _FIRST_SERVER_ERROR:
        span.fail(str(request.status))


class Refusals:
    """Logs and counts the refused requests of one gateway."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def count_overload(self) -> None:
        """Count a request that was refused for overload. `Admission` writes one line for many of them."""
        self._metrics.count_refusal(GATEWAY_OVERLOADED)

    def report(
        self, status: int, error: Mapping[str, Any], *, route: str, caller_id: str = "", address: str = "", **ids: str
    ) -> None:
        """Record a refusal. `error`: the wire error. `address`: of the client, logged with refused credentials.

        `ids`: further fields of the log line. A client that has left is not refused.
        """
        code = error.get("code") or error["type"]
        if code == _CLIENT_GONE:
            return
        if code == GATEWAY_OVERLOADED:
            self.count_overload()
            return
        self._metrics.count_refusal(code if code in _KNOWN_CODES else OTHER_LABEL, caller_id)
        fields: dict[str, object] = {"code": code, "status": status, "route": route, **ids}
        if error.get("param"):
            fields["param"] = str(error["param"])[:MAX_PARAM_CHARS]
        if caller_id:
            fields["caller"] = caller_id
        if status in _AUTH_STATUSES:
            fields["address"] = address
        _choose_level(status, code)("request.refused", **fields)


def _choose_level(status: int, code: str) -> log.WriteEvent:
    if status >= _FIRST_SERVER_ERROR and code != _SHUTTING_DOWN:
        return log.error
    return log.warning if status in _AUTH_STATUSES or status >= _FIRST_SERVER_ERROR else log.info
