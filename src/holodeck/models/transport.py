"""The transports to MCP servers, with what each requires of a definition.

A transport has two registry rows: its `TransportSpec` here, for configuration files, and its row in
`tools/mcp/transports/registry.py`, which loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holodeck.lib.record import record
from holodeck.models.url import HTTP_SCHEMES


class TransportType(StrEnum):
    """Transport to an MCP server."""

    STDIO = "stdio"
    SSE = "sse"
    WEBSOCKET = "websocket"
    HTTP = "http"


@record
class TransportSpec:
    """The rules of what a definition must or may say about the servers of one transport."""

    fields: tuple[str, ...]
    """Keys that this transport has and some other transport has not. One with `command` starts a process; every other
    one needs a `url`."""
    url_schemes: tuple[str, ...] = HTTP_SCHEMES
    """Accepted schemes of `url`, the recommended one first."""
    other_names: tuple[str, ...] = ()
    """Names that users may write by mistake; the error suggests the right one."""

    @property
    def starts_process(self) -> bool:
        return "command" in self.fields


_PROCESS = ("command", "args", "env", "encoding", "cwd", "sandbox", "allow_unsafe_args", "protocol")
_REMOTE = ("url", "headers", "auth", "caller_authorization", "timeout")

TRANSPORT_SPECS: Mapping[str, TransportSpec] = {
    TransportType.STDIO: TransportSpec(fields=_PROCESS),
    TransportType.SSE: TransportSpec(fields=(*_REMOTE, "sse_read_timeout", "allow_insecure_hosts")),
    TransportType.WEBSOCKET: TransportSpec(
        fields=(*_REMOTE, "protocol"), url_schemes=("wss", "ws"), other_names=("ws",)
    ),
    TransportType.HTTP: TransportSpec(
        fields=(*_REMOTE, "protocol", "sse_read_timeout", "terminate_on_close", "allow_insecure_hosts"),
        other_names=("streamable-http", "streamable_http", "https"),
    ),
}
FIELD_TRANSPORTS: Mapping[str, tuple[str, ...]] = {
    field: tuple(name for name, spec in TRANSPORT_SPECS.items() if field in spec.fields)
    for field in dict.fromkeys(field for spec in TRANSPORT_SPECS.values() for field in spec.fields)
}
"""By key, the transports that have it. Keys of every transport are not in it."""
