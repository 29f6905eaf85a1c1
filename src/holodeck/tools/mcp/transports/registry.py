"""The transports, by their name in a definition: one row each, with every property that other modules ask for.

A transport is one `TransportKind` here, its class in a module of this folder, and one `TransportSpec` in
`models/transport.py` with the rules of its configuration. The module is imported when the first transport of its kind
is built: websockets takes long to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from holodeck.lib import tracing
from holodeck.lib.record import record
from holodeck.models.tool import InMemoryTool, MCPTool, TransportType
from holodeck.tools.mcp.transports.base import OnMessage, Transport, TransportSetup

BuildTransport = Callable[[TransportSetup, OnMessage], Transport]


@record
class TransportKind:
    """The properties of one kind of transport."""

    load: Callable[[], BuildTransport]
    """Imports the module of the transport and returns its class."""
    protocol_name: str | None
    """`network.protocol.name` of spans; None without a network."""
    has_connection: bool = True
    """True when all messages share one connection, which can hang and which the server can end.

    False when each request stands alone: a request without an answer then says nothing about the others.
    """
    has_modern_era: bool = True
    """False when the transport is older than the modern era, so that its servers are not probed for it."""

    def build_span_attributes(self, tool: MCPTool) -> dict[str, tracing.Value | None]:
        """Return the attributes of OpenTelemetry for the way to the server."""
        if tool.starts_process:
            return {"network.transport": "pipe"}
        if tool.url is None:
            return {}
        address = urlsplit(tool.url)
        default_port = 443 if address.scheme in {"https", "wss"} else 80
        return {
            "network.transport": "tcp",
            "network.protocol.name": self.protocol_name,
            "server.address": address.hostname,
            "server.port": address.port or default_port,
        }


def get_kind(tool: MCPTool) -> TransportKind:
    """Return the kind of the transport that the definition names, or that of a server of this program."""
    return IN_MEMORY if isinstance(tool, InMemoryTool) else TRANSPORTS[tool.transport]


def _load_stdio() -> BuildTransport:
    from holodeck.tools.mcp.transports.stdio import StdioTransport

    return StdioTransport


def _load_streamable_http() -> BuildTransport:
    from holodeck.tools.mcp.transports.streamable_http import StreamableHTTPTransport

    return StreamableHTTPTransport


def _load_sse() -> BuildTransport:
    from holodeck.tools.mcp.transports.sse import SSETransport

    return SSETransport


def _load_websocket() -> BuildTransport:
    from holodeck.tools.mcp.transports.websocket import WebSocketTransport

    return WebSocketTransport


def _load_in_memory() -> BuildTransport:
    from holodeck.tools.mcp.transports.in_memory import InMemoryTransport

    return InMemoryTransport


TRANSPORTS: Mapping[TransportType, TransportKind] = {
    TransportType.STDIO: TransportKind(load=_load_stdio, protocol_name=None),
    TransportType.HTTP: TransportKind(load=_load_streamable_http, protocol_name="http", has_connection=False),
    TransportType.SSE: TransportKind(load=_load_sse, protocol_name="http", has_modern_era=False),
    TransportType.WEBSOCKET: TransportKind(load=_load_websocket, protocol_name="websocket"),
}
IN_MEMORY = TransportKind(load=_load_in_memory, protocol_name=None)
"""The transport to servers that are objects of this program. It has no name: no file can define one."""
