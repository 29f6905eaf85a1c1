"""MCP declarations, the tools of the type `mcp` in a request: a server, its allowed tools, and which need approval."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any, Literal
from urllib.parse import urlsplit

from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_type, refuse_unsupported
from holodeck.lib.limits import MAX_INPUT_TEXT_CHARS, MAX_SHOWN_CHARS, MAX_TOOL_NAME_CHARS, MAX_TOOLS
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.tool_patterns import ToolPatterns, has_wildcard

# Limit of HTTP headers that a request may define for its server: many times what servers need.
MAX_REQUEST_HEADERS = 32
# Names with wildcards in one list of tools. They are compiled for the request, which takes up to a millisecond each.
MAX_TOOL_GLOBS = 100
# Characters of such a name: the longest that the protocol recommends for a tool, twice.
MAX_PATTERN_CHARS = 256
_NO_CONNECTORS = "Name a server that this gateway has with 'server_label', or give its 'server_url'."
_NO_SEARCH = "This gateway offers all tools at once."
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_RESERVED_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"}
    | {"host", "keep-alive", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade"}
)
_RESERVED_PREFIXES = ("mcp-", "proxy-")


@record
class ToolFilter:
    """Some of a server's tools: those whose name matches a pattern and whose read-only hint is as wanted. None: any."""

    patterns: ToolPatterns | None = None
    read_only: bool | None = None
    excluded: ToolPatterns | None = None
    """Tools that are none of them."""

    def matches(self, tool: MCPToolInfo) -> bool:
        if self.patterns is not None and not self.patterns.match(tool):
            return False
        if self.excluded is not None and self.excluded.match(tool):
            return False
        return self.read_only is None or self.read_only is (tool.annotations.get("readOnlyHint") is True)


@record
class ApprovalRule:
    """Which tools need approval. `default` is for a tool that no filter matches; `never` precedes `always`."""

    default: Literal["always", "never"] = "always"
    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def needs_approval(self, tool: MCPToolInfo) -> bool:
        if self.never is not None and self.never.matches(tool):
            return False
        if self.always is not None and self.always.matches(tool):
            return True
        return self.default == "always"


@record
class MCPDeclaration:
    """A server that a request declares. Without a URL it is one of the operator's servers."""

    server_label: str
    server_url: str | None = None
    server_description: str | None = None
    authorization: Secret | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    allowed: ToolFilter | None = None
    approval: ApprovalRule = field(default_factory=ApprovalRule)
    echo: Mapping[str, Any] = field(default_factory=dict)
    """The declaration as the response repeats it: without credentials, and without the path of the URL."""
    param: str = "tools"
    """The path of the declaration in the request."""
    url_field: str = "server_url"
    """The name of the field with the URL, which differs between APIs."""

    @property
    def has_credentials(self) -> bool:
        return self.authorization is not None or bool(self.headers)

    def is_allowed(self, tool: MCPToolInfo) -> bool:
        return self.allowed is None or self.allowed.matches(tool)

    def needs_approval(self, tool: MCPToolInfo) -> bool:
        """True when the client wants to approve each call of this tool."""
        return self.approval.needs_approval(tool)


def read_declaration(fields: JSONFields) -> MCPDeclaration:
    """Read a declaration. Raises `BadRequestError`, which names the field."""
    fields.pop("type")
    fields.refuse_present(_NO_CONNECTORS, "connector_id", "tunnel_id")
    if fields.get_flag("defer_loading"):
        refuse_unsupported(fields.path_of("defer_loading"), _NO_SEARCH)
    label = fields.require_text("server_label", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    url = read_server_url(fields, "server_url")
    token = read_token(fields, "authorization")
    headers = _read_headers(fields, has_token=token is not None)
    description = fields.get_text("server_description", max_length=MAX_INPUT_TEXT_CHARS)
    allowed = _read_tool_filter(fields, "allowed_tools", label)
    approval = _read_approval_rule(fields, label)
    if (callers := fields.get_strings("allowed_callers")) not in (None, ["direct"]):
        refuse_choice(fields.path_of("allowed_callers"), callers, ("direct",))
    fields.refuse_unread()
    return MCPDeclaration(
        server_label=label,
        server_url=url,
        server_description=description,
        authorization=None if token is None else Secret(token),
        headers=headers,
        allowed=allowed,
        approval=approval,
        echo=_redact_declaration(fields.value, url),
        param=fields.path,
    )


def read_server_url(fields: JSONFields, key: str) -> str | None:
    """Read the URL of a server. Raises `BadRequestError`, which names the field."""
    url = fields.get_text(key, max_length=MAX_INPUT_TEXT_CHARS)
    if url is None:
        return None
    where = fields.path_of(key)
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("https", "http") and bool(parts.hostname)
        has_password = parts.username is not None or parts.password is not None
    except ValueError:
        is_good, has_password = False, False
    if not is_good:
        refuse(f"Invalid '{where}': expected an http or https URL with a host.", where, "invalid_url")
    if has_password:
        refuse(f"Invalid '{where}': credentials belong into a field of their own.", where, "invalid_url")
    return url


def read_token(fields: JSONFields, key: str) -> str | None:
    """Read the access token for a server. Raises `BadRequestError`, which names the field."""
    token, where = fields.get_text(key), fields.path_of(key)
    if token is None:
        return None
    token = token.removeprefix("Bearer ").strip()
    if not token or not token.isascii() or not token.isprintable():
        refuse(f"Invalid '{where}': expected an access token.", where)
    return token


def _read_headers(fields: JSONFields, *, has_token: bool) -> dict[str, Secret]:
    where = fields.path_of("headers")
    headers: dict[str, Secret] = {}
    values = fields.get_mapping("headers") or {}
    if len(values) > MAX_REQUEST_HEADERS:
        refuse(f"Invalid '{where}': at most {MAX_REQUEST_HEADERS} headers.", where, "object_above_max_properties")
    for name, value in values.items():
        if not isinstance(value, str):
            refuse_type(f"{where}.{name}", "a string", value)
        if any(char in value for char in "\r\n\0"):
            refuse(f"Invalid '{where}.{name}': a header is one line.", f"{where}.{name}")
        if not _HEADER_NAME.fullmatch(name):
            refuse(f"Invalid '{where}': {name[:MAX_SHOWN_CHARS]!r} is not the name of a header.", where)
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_PREFIXES):
            refuse(f"Invalid '{where}.{name}': this header is written by the gateway.", f"{where}.{name}")
        if has_token and name.lower() == "authorization":
            refuse(f"Give only one of '{fields.path_of('authorization')}' and '{where}.{name}'.", f"{where}.{name}")
        headers[name] = Secret(value)
    return headers


def _read_tool_filter(fields: JSONFields, key: str, server: str) -> ToolFilter | None:
    if isinstance(fields.value.get(key), list):
        return ToolFilter(patterns=read_patterns(fields, key, server))
    if isinstance(fields.value.get(key), str):
        refuse_type(fields.path_of(key), "an array of names or an object", fields.value[key])
    inner = fields.get_object(key)
    if inner is None:
        return None
    patterns, read_only = read_patterns(inner, "tool_names", server), inner.get_flag("read_only")
    inner.refuse_unread()
    return ToolFilter(patterns=patterns, read_only=read_only)


def read_patterns(fields: JSONFields, key: str, server: str) -> ToolPatterns | None:
    """Read a list of names and patterns of the tools of a server. Raises `BadRequestError`, which names the field."""
    names = fields.get_strings(key, max_length=MAX_TOOLS, max_text_length=MAX_PATTERN_CHARS)
    return None if names is None else compile_patterns(names, server, fields.path_of(key))


def compile_patterns(names: Collection[str], server: str, where: str) -> ToolPatterns:
    """Compile names and patterns that a request has at `where`. Raises `BadRequestError` for too many patterns."""
    if sum(map(has_wildcard, names)) > MAX_TOOL_GLOBS:
        message = f"Invalid '{where}': at most {MAX_TOOL_GLOBS} of the names may have wildcards."
        refuse(message, where, "array_above_max_length")
    return ToolPatterns(names, server)


def _read_approval_rule(fields: JSONFields, server: str) -> ApprovalRule:
    value = fields.value.get("require_approval")
    if value is None or isinstance(value, str):
        chosen = fields.get_choice("require_approval", ("always", "never"))
        return ApprovalRule(default="never" if chosen == "never" else "always")
    inner = fields.get_object("require_approval")
    if inner is None:  # pragma: no cover - not null, as seen above
        return ApprovalRule()
    always, never = _read_tool_filter(inner, "always", server), _read_tool_filter(inner, "never", server)
    inner.refuse_unread()
    # If only tools that need approval are listed, the others need none.
    return ApprovalRule(default="never" if always and not never else "always", always=always, never=never)


def _redact_declaration(value: Mapping[str, Any], url: str | None) -> dict[str, Any]:
    echo = {key: value[key] for key in value if key not in ("authorization", "headers")}
    echo.setdefault("allowed_tools", None)
    echo.setdefault("require_approval", "always")
    if url is not None:
        parts = urlsplit(url)
        echo["server_url"] = f"{parts.scheme}://{parts.netloc}/<redacted>"
    return echo
