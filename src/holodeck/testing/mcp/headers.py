"""What the modern era mirrors from the body into HTTP headers, and whether a request did it rightly."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.protocol import META
from holodeck.testing.mcp.toolbox import list_tool_entries

_NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENCODED, _END = "=?base64?", "?="


def find_header_mismatch(headers: Mapping[str, str], message: Message) -> str | None:
    """Return what is wrong with the headers of a request, or None."""
    method, params = str(message.get("method")), message.get("params") or {}
    expected = {
        "MCP-Protocol-Version": (params.get("_meta") or {}).get(f"{META}protocolVersion"),
        "Mcp-Method": method,
        **_expected_headers(method, params),
    }
    for name, value in expected.items():
        if _decode_header(headers.get(name)) != value:
            return f"Header mismatch: {name} is {headers.get(name)!r}, the body says {value!r}"
    return None


def _expected_headers(method: str, params: Message) -> dict[str, str | None]:
    mirrored: dict[str, str | None] = {}
    if method in _NAME_PARAMS:
        mirrored["Mcp-Name"] = params.get(_NAME_PARAMS[method])
    if method == "tools/call":
        for name, header in _header_annotations(str(params.get("name"))).items():
            value = (params.get("arguments") or {}).get(name)
            mirrored[f"Mcp-Param-{header}"] = None if value is None else str(value)
    return mirrored


def _header_annotations(tool: str) -> dict[str, str]:
    schemas = [each["inputSchema"]["properties"] for each in list_tool_entries("modern") if each["name"] == tool]
    return {
        name: schema["x-mcp-header"]
        for properties in schemas
        for name, schema in properties.items()
        if "x-mcp-header" in schema
    }


def _decode_header(value: str | None) -> str | None:
    if value is None or not (value.startswith(_ENCODED) and value.endswith(_END)):
        return value
    try:
        return base64.b64decode(value[len(_ENCODED) : -len(_END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
