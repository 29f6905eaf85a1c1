"""MCP declarations, the tools of the type `mcp` in a request: a server, its allowed tools, and which need approval."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from holodeck.gateway.api.models.mcp_tool import (
    ApprovalFilters,
    MCPTool,
    NamedTools,
    check_patterns,
)
from holodeck.gateway.wire.request.validation import check_value, read_body
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.tool_patterns import ToolPatterns


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
    """The tools that need approval. `default` is for a tool that no filter matches; `never` precedes `always`."""

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
        """Return whether the client wants to approve each call of this tool."""
        return self.approval.needs_approval(tool)


def read_declaration(value: object, where: str) -> MCPDeclaration:
    """Read the declaration at `where`. Raises `BadRequestError`, which names the field."""
    tool = read_body(MCPTool, value, where)
    label = tool.server_label
    return MCPDeclaration(
        server_label=label,
        server_url=tool.server_url,
        server_description=tool.server_description,
        authorization=None if tool.authorization is None else Secret(tool.authorization),
        headers={name: Secret(text) for name, text in (tool.headers or {}).items()},
        allowed=_build_filter(tool.allowed_tools, label),
        approval=_build_approval_rule(tool.require_approval, label),
        echo=_redact_declaration(cast(Mapping[str, Any], value), tool.server_url),
        param=where,
    )


def compile_patterns(names: Collection[str], server: str, where: str) -> ToolPatterns:
    """Compile names and patterns that a request has at `where`. Raises `BadRequestError` for too many patterns."""
    return ToolPatterns(check_value(check_patterns, names, where), server)


def _build_filter(value: list[str] | NamedTools | None, server: str) -> ToolFilter | None:
    if value is None:
        return None
    names, read_only = (value.tool_names, value.read_only) if isinstance(value, NamedTools) else (value, None)
    return ToolFilter(patterns=None if names is None else ToolPatterns(names, server), read_only=read_only)


def _build_approval_rule(value: str | ApprovalFilters | None, server: str) -> ApprovalRule:
    if not isinstance(value, ApprovalFilters):
        return ApprovalRule(default="never" if value == "never" else "always")
    always, never = _build_filter(value.always, server), _build_filter(value.never, server)
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
