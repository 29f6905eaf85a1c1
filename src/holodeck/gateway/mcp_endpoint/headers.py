"""Checks of the HTTP headers of MCP requests.

A modern request repeats its version, its method and its target in headers, so that a proxy can route it without reading
its body. Headers that say something else than the body are refused: the proxy would have let another request pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holodeck.mcp_server.errors import INVALID_REQUEST, RPCError
from holodeck.tools.mcp.protocol.jsonrpc import HEADER_MISMATCH
from holodeck.tools.mcp.protocol.versions import LEGACY_VERSIONS, META_VERSION, MODERN_VERSIONS, mapping
from holodeck.tools.mcp.transports.http_headers import (
    ArgumentPath,
    BadAnnotationError,
    build_argument_headers,
    build_routing_headers,
    decode_header_value,
    find_argument_headers,
)

VERSION_HEADER = "mcp-protocol-version"
SESSION_HEADER = "mcp-session-id"
# Schemas whose headers are remembered: more than the tools in use at one time.
MAX_SEARCHED_SCHEMAS = 512
_EVENTS = "text/event-stream"
_JSON = "application/json"


def accepts_events(headers: Mapping[str, str]) -> bool:
    """Return whether a reply may be an event stream."""
    return _accepts(headers, _EVENTS)


def accepts_json(headers: Mapping[str, str]) -> bool:
    """Return whether a reply may be one JSON object."""
    return _accepts(headers, _JSON)


def is_modern_version(headers: Mapping[str, str]) -> bool:
    """Return whether the header names a version that is not one with sessions."""
    version = headers.get(VERSION_HEADER)
    return version is not None and version not in LEGACY_VERSIONS


def check_legacy_version(headers: Mapping[str, str]) -> None:
    """Raise RPCError for a version that is not known here."""
    version = headers.get(VERSION_HEADER)
    if version is not None and version not in LEGACY_VERSIONS:
        known = ", ".join((*LEGACY_VERSIONS, *MODERN_VERSIONS))
        raise RPCError(INVALID_REQUEST, f"Unsupported protocol version: {version}. There are: {known}")


def check_modern_headers(headers: Mapping[str, str], method: str, params: Mapping[str, Any]) -> None:
    """Raise RPCError where the headers of a modern request are missing or differ from its body."""
    version = mapping(params.get("_meta")).get(META_VERSION)
    _check_equal("MCP-Protocol-Version", headers.get(VERSION_HEADER), version)
    for name, expected in build_routing_headers(method, params).items():
        _check_equal(name, _read(headers, name), decode_header_value(expected))


class ArgumentHeaders:
    """Compares the headers that repeat arguments of calls with these arguments."""

    def __init__(self) -> None:
        # Keyed by identity; the value refers to the schema, so that its id is not reused.
        self._annotations: dict[int, tuple[Mapping[str, Any], Mapping[ArgumentPath, str]]] = {}

    def check(self, headers: Mapping[str, str], schema: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Raise RPCError where a header differs. The schema must not be modified afterwards."""
        annotations = self._find_annotations(schema)
        if not annotations:
            return
        expected = build_argument_headers(annotations, mapping(params.get("arguments")))
        for token in annotations.values():
            name = f"Mcp-Param-{token}"
            wanted = expected.get(name)
            _check_equal(name, _read(headers, name), None if wanted is None else decode_header_value(wanted))

    def _find_annotations(self, schema: Mapping[str, Any]) -> Mapping[ArgumentPath, str]:
        """Return the headers of a schema, which is searched once; none if its annotations are invalid."""
        known = self._annotations.get(id(schema))
        if known is not None:
            return known[1]
        try:
            found = find_argument_headers(schema)
        except BadAnnotationError:
            found = {}
        if len(self._annotations) >= MAX_SEARCHED_SCHEMAS:
            self._annotations.clear()
        self._annotations[id(schema)] = (schema, found)
        return found


def _read(headers: Mapping[str, str], name: str) -> str | None:
    """Return the decoded value of a header, without the white space that may stand around it; None if it is absent."""
    sent = headers.get(name.lower())
    return None if sent is None else decode_header_value(sent.strip(" \t"))


def _check_equal(name: str, sent: object, expected: object) -> None:
    if sent != expected:
        problem = "is missing" if sent is None else "does not match the body"
        raise RPCError(HEADER_MISMATCH, f"Header mismatch: {name} {problem}")


def _accepts(headers: Mapping[str, str], kind: str) -> bool:
    accepted = headers.get("accept")
    if accepted is None:
        return kind == _JSON
    ranges = {part.partition(";")[0].strip().lower() for part in accepted.split(",")}
    return bool(ranges & {kind, kind.partition("/")[0] + "/*", "*/*"})
