"""A request from its arrival to its end, as metrics, logs and traces tell of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from holodeck.gateway.metrics import Metrics
from holodeck.lib import log, trace
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_REQUEST_ID_CHARS

_ID = re.compile(rf"[A-Za-z0-9._:/=+@~-]{{1,{MAX_REQUEST_ID_CHARS}}}")
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines; a trace of them says nothing."""
_FIRST_OWN_ERROR = 500


@dataclass
class Visit:
    """What is known of a request so far."""

    id: str
    """The client's own, or a proxy's, if it looks like an id; else one of ours."""
    status: int = 0
    """0: nothing was answered."""
    route: str = "unknown"


@contextmanager
def visiting(scope: MutableMapping[str, Any], headers: Mapping[str, str], metrics: Metrics) -> Iterator[Visit]:
    """Count, trace and log one HTTP request."""
    began = time.perf_counter()
    visit, method, path = Visit(id=request_id(headers)), scope["method"], scope["path"]
    with log.about(request=visit.id), _span(scope, headers, visit) as span:
        try:
            yield visit
        finally:
            seconds = time.perf_counter() - began
            metrics.request(visit.route, method, visit.status, seconds)
            log.info("gateway.request", method=method, path=path, status=visit.status, seconds=round(seconds, 4))
            if trace.is_on():
                _tell(span, visit, method)


def request_id(headers: Mapping[str, str]) -> str:
    """The id under which a request stands in logs, here and elsewhere."""
    given = headers.get("x-request-id", "")
    return given if _ID.fullmatch(given) else new_id("req")


def socket_span(headers: Mapping[str, str], path: str, request: str) -> AbstractContextManager[trace.Span]:
    """A WebSocket from its opening to its end."""
    if not trace.is_on():
        return trace.SILENT
    about = {"http.request.method": "GET", "http.route": path, "holodeck.request.id": request}
    return trace.span(f"GET {path}", about, kind="server", parent=headers)


def _span(scope: Mapping[str, Any], headers: Mapping[str, str], visit: Visit) -> AbstractContextManager[trace.Span]:
    if not trace.is_on() or scope["path"] in _PROBES:
        return trace.SILENT
    about = {
        "http.request.method": scope["method"],
        "url.scheme": scope.get("scheme", "http"),
        "url.path": scope["path"],
        "holodeck.request.id": visit.id,
    }
    return trace.span(scope["method"], about, kind="server", parent=headers)


def _tell(span: trace.Span, visit: Visit, method: str) -> None:
    if visit.route != "unknown":
        span.rename(f"{method} {visit.route}")
        span.set({"http.route": visit.route})
    span.set({"http.response.status_code": visit.status or None})
    if visit.status >= _FIRST_OWN_ERROR:
        span.fail(str(visit.status))
