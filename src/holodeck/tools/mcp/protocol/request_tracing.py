"""A request to a server is a span, in the words of OpenTelemetry's MCP conventions; the server can go on with it.

`traceparent` and `tracestate` travel in `_meta`, in both generations of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from holodeck.lib import tracing
from holodeck.lib.errors import MCPError, MCPTimeoutError
from holodeck.models.tool import MCPTool, TransportType
from holodeck.tools.mcp.protocol import input_required
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.session import OnProgress, Session
from holodeck.tools.mcp.transports.base import Delivery

_NAME_ATTRIBUTES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}


async def request_traced(
    tool: MCPTool,
    session: Session,
    method: str,
    params: Mapping[str, Any],
    *,
    seconds: float,
    delivery: Delivery | None = None,
    on_progress: OnProgress | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Message:
    """Make a call until its result is complete."""
    if not tracing.is_enabled():
        return await input_required.request_until_complete(
            session, method, params, seconds=seconds, delivery=delivery, on_progress=on_progress, meta=meta
        )
    delivery = delivery or Delivery()
    target = str(params["name"]) if method in _NAME_ATTRIBUTES else ""
    with tracing.span(
        f"{method} {target}".strip(), _build_attributes(tool, session, method, target), kind="client"
    ) as span:
        try:
            result = await input_required.request_until_complete(
                session,
                method,
                params,
                seconds=seconds,
                delivery=delivery,
                on_progress=on_progress,
                meta={**(meta or {}), **span.carrier()},
            )
        except MCPError as error:
            code = error.details.get("code")
            span.set({"rpc.response.status_code": None if code is None else str(code)})
            span.fail(_error_kind(error, code))
            raise
        finally:
            asked = delivery.request_id
            span.set({"jsonrpc.request.id": None if asked is None else str(asked)})
        if result.get("isError") is True:
            span.fail("tool_error")
        return result


def _build_attributes(tool: MCPTool, session: Session, method: str, target: str) -> tracing.Attributes:
    is_call = method == "tools/call"
    about: dict[str, tracing.Value | None] = {
        "mcp.method.name": method,
        "mcp.protocol.version": session.terms.version if session.terms is not None else None,
        "gen_ai.operation.name": "execute_tool" if is_call else None,
        "holodeck.mcp.server": tool.name,
    }
    if method in _NAME_ATTRIBUTES:
        about[_NAME_ATTRIBUTES[method]] = target
    if tool.transport is TransportType.STDIO:
        return about | {"network.transport": "pipe"}
    is_socket = tool.transport is TransportType.WEBSOCKET
    address = urlsplit(tool.url or "")
    usual = 443 if address.scheme in {"https", "wss"} else 80
    return about | {
        "network.transport": "tcp",
        "network.protocol.name": "websocket" if is_socket else "http",
        "server.address": address.hostname,
        "server.port": address.port or usual,
    }


def _error_kind(error: MCPError, code: object) -> str:
    """The server's own code, or what kind of trouble it was."""
    if code is not None:
        return str(code)
    return "timeout" if isinstance(error, MCPTimeoutError) else type(error).__name__
