"""The record of refused requests: a line of the log that says why, and a count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.gateway.http.error_codes import ERROR_CODES
from holodeck.gateway.http.errors import GATEWAY_OVERLOADED
from holodeck.gateway.metrics.counters import OTHER_LABEL, Metrics
from holodeck.lib import log

# Characters of a parameter's path in the log. Keys of a body are in it, which a client may make as long as it wants.
MAX_PARAM_CHARS = 100

_FIRST_SERVER_ERROR = 500
_AUTH_STATUSES = frozenset({401, 403})
_CLIENT_GONE = "client_gone"
# A gateway that stops refuses requests as it should.
_SHUTTING_DOWN = "shutting_down"
_KNOWN_CODES = frozenset(each.code or each.kind for each in ERROR_CODES)


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
