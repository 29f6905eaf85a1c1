"""A request from its arrival to its end, as metrics, logs and traces tell of it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from holodeck.gateway.metrics import Metrics
from holodeck.lib import log, trace
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_REQUEST_ID_CHARS

_ID = re.compile(rf"[A-Za-z0-9._:/=+@~-]{{1,{MAX_REQUEST_ID_CHARS}}}")
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines; a trace of them says nothing, nor does a line while all is well."""
_OK = 200
_FIRST_OWN_ERROR = 500


class Visit:
    """One HTTP request: `with Visit(...)` counts, traces and logs it, and it is told what happens in between."""

    __slots__ = ("_about", "_around", "_began", "_metrics", "_scope", "_span", "held", "id", "route", "status")

    def __init__(self, scope: MutableMapping[str, Any], headers: Mapping[str, str], metrics: Metrics) -> None:
        self.id = request_id(headers)
        """The client's own, or a proxy's, if it looks like an id; else one of ours."""
        self.status = 0
        """0: nothing was answered."""
        self.route = "unknown"
        self.held = 0
        """Bytes of its body that were read."""
        self._began = time.perf_counter()
        self._scope = scope
        self._metrics = metrics
        self._about = log.about(request=self.id)
        self._around = _span(scope, headers, self)
        self._span: trace.Span

    def __enter__(self) -> Self:
        self._about.__enter__()
        self._span = self._around.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        method, seconds = self._scope["method"], time.perf_counter() - self._began
        self._metrics.request(self.route, method, self.status, seconds)
        path, status = self._scope["path"], self.status
        tell = log.debug if path in _PROBES and status == _OK else log.info
        tell("gateway.request", method=method, path=path, status=status, seconds=round(seconds, 4))
        try:
            if trace.is_on():
                _tell(self._span, self, method)
            self._around.__exit__(kind, error, traceback)
        finally:
            self._about.__exit__(kind, error, traceback)


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
