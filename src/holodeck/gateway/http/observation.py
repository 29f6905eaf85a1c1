"""The observation of requests: the id, metrics, log line and trace span of each, and the record of refused ones."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

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


class RequestScope:
    """One HTTP request: `with RequestScope(...)` counts, traces and logs it at its end.

    The application sets `route`, `caller_id`, `status` and `body_bytes` in between.
    """

    __slots__ = (
        "_log_context",
        "_metrics",
        "_scope",
        "_span",
        "_span_context",
        "_started_at",
        "body_bytes",
        "caller_id",
        "id",
        "route",
        "status",
    )

    def __init__(self, scope: MutableMapping[str, Any], headers: Mapping[str, str], metrics: Metrics) -> None:
        self.id = request_id_of(headers)
        self.status = 0
        """The HTTP status of the reply. 0: no reply was started."""
        self.route = UNKNOWN_ROUTE
        self.caller_id = ""
        self.body_bytes = 0
        """Bytes of the body that were read; the byte budget has them until the request ends."""
        self._started_at = time.perf_counter()
        self._scope = scope
        self._metrics = metrics
        self._log_context = log.scope(request=self.id)
        self._span_context = _open_request_span(scope, headers, self)
        self._span: tracing.Span

    def __enter__(self) -> Self:
        self._log_context.__enter__()
        self._span = self._span_context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        method, seconds = self._scope["method"], time.perf_counter() - self._started_at
        self._metrics.count_request(self.route, method, self.status, seconds, self.caller_id)
        path, status = self._scope["path"], self.status
        write_log = log.debug if path in PROBE_PATHS and status == _OK else log.info
        write_log("gateway.request", method=method, path=path, status=status, seconds=round(seconds, 4))
        try:
            if tracing.tracers:
                _describe_span(self._span, self, method)
            self._span_context.__exit__(kind, error, traceback)
        finally:
            self._log_context.__exit__(kind, error, traceback)


def request_id_of(headers: Mapping[str, str]) -> str:
    """Return the id for logs and traces: the `x-request-id` of a client or proxy if it looks like one, or a new one."""
    sent = headers.get("x-request-id", "")
    return sent if _REQUEST_ID.fullmatch(sent) else new_id("req")


def open_socket_span(headers: Mapping[str, str], path: str, request_id: str) -> AbstractContextManager[tracing.Span]:
    """Open the trace span of a WebSocket, from its handshake to its end."""
    if not tracing.tracers:
        return tracing.NOOP_SPAN
    attributes = {"http.request.method": "GET", "http.route": path, "holodeck.request.id": request_id}
    return tracing.span(f"GET {path}", attributes, kind="server", parent=headers)


def _open_request_span(
    scope: Mapping[str, Any], headers: Mapping[str, str], request_scope: RequestScope
) -> AbstractContextManager[tracing.Span]:
    if not tracing.tracers or scope["path"] in PROBE_PATHS:
        return tracing.NOOP_SPAN
    attributes = {
        "http.request.method": scope["method"],
        "url.scheme": scope.get("scheme", "http"),
        "url.path": scope["path"],
        "holodeck.request.id": request_scope.id,
    }
    return tracing.span(scope["method"], attributes, kind="server", parent=headers)


def _describe_span(span: tracing.Span, request_scope: RequestScope, method: str) -> None:
    if request_scope.route != UNKNOWN_ROUTE:
        span.rename(f"{method} {request_scope.route}")
        span.set({"http.route": request_scope.route})
    span.set({"http.response.status_code": request_scope.status or None})
    if request_scope.status >= _FIRST_SERVER_ERROR:
        span.fail(str(request_scope.status))


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
