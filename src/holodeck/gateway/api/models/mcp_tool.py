"""Declared MCP servers, the tools of the type `mcp` in a request. Fields are in reading order.

No error of this model has the value of a credential.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from holodeck.gateway.api.model import (
    NAMED,
    NO_VALUE,
    ClosedModel,
    LongText,
    accept_only,
    declare_field,
    invalid,
    limit_length,
)
from holodeck.gateway.api.models.parts import WEB_URL
from holodeck.gateway.api.models.tools import (
    ACTION_MODELS,
    NO_SEARCH,
    CustomTool,
    DirectCallers,
    FunctionTool,
    NamespaceTool,
    OnlyFalse,
    ShortText,
    ToolSearchTool,
    declare_type,
    refused_tool_field,
)
from holodeck.lib.limits import MAX_INPUT_TEXT_CHARS, MAX_SHOWN_CHARS, MAX_TOOLS
from holodeck.tools.mcp.tool_patterns import has_wildcard

# Limit of HTTP headers that a request may define for its server: many times what servers need.
MAX_REQUEST_HEADERS = 32
# Names with wildcards in one list of tools. They are compiled for the request, which takes up to a millisecond each.
MAX_TOOL_GLOBS = 100
# Characters of such a name: the longest that the protocol recommends for a tool, twice.
MAX_PATTERN_CHARS = 256
_NO_CONNECTORS = "Name a server that this gateway has with 'server_label', or give its 'server_url'."
_SERVER = {"type": "mcp", "server_label": "files"}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_RESERVED_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"}
    | {"host", "keep-alive", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade"}
)
_RESERVED_PREFIXES = ("mcp-", "proxy-")


def check_server_url(url: str) -> str:
    """Return the URL of a server. Raises `PydanticCustomError`."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("https", "http") and bool(parts.hostname)
        has_password = parts.username is not None or parts.password is not None
    except ValueError:
        is_good, has_password = False, False
    if not is_good:
        raise invalid("expected an http or https URL with a host.", "invalid_url")
    if has_password:
        raise invalid("credentials belong into a field of their own.", "invalid_url")
    return url


def check_token(token: str) -> str:
    """Return an access token without its scheme. Raises `PydanticCustomError`."""
    token = token.removeprefix("Bearer ").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise invalid("expected an access token.")
    return token


def check_patterns(names: Collection[str]) -> Collection[str]:
    """Return names and patterns of tools. Raises `PydanticCustomError` for too many patterns."""
    if sum(map(has_wildcard, names)) > MAX_TOOL_GLOBS:
        raise invalid(f"at most {MAX_TOOL_GLOBS} of the names may have wildcards.", "array_above_max_length")
    return names


def _check_headers(headers: dict[str, Any], info: ValidationInfo) -> dict[str, str]:
    if len(headers) > MAX_REQUEST_HEADERS:
        raise invalid(f"at most {MAX_REQUEST_HEADERS} headers.", "object_above_max_properties")
    has_token = info.data.get("authorization") is not None
    for name, value in headers.items():
        at = f".{name}"
        if not isinstance(value, str):
            raise PydanticCustomError("wrong_type", "", {"expected": "a string", "at": at, "value": value})
        if any(char in value for char in "\r\n\0"):
            raise invalid("a header is one line.", at=at)
        if not _HEADER_NAME.fullmatch(name):
            raise invalid(f"{name[:MAX_SHOWN_CHARS]!r} is not the name of a header.")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_PREFIXES):
            raise invalid("this header is written by the gateway.", at=at)
        if has_token and name.lower() == "authorization":
            raise PydanticCustomError("exclusive", "", {"other": "authorization", "at": at})
    return headers


def _refuse_text(value: Any) -> Any:
    if isinstance(value, str):
        expected = "an array of names or an object"
        raise PydanticCustomError("wrong_type", "", {"expected": expected, "value": value})
    return value


def _form_of_filter(value: Any) -> str:
    return "~names" if isinstance(value, list) else "~object"


def _form_of_approval(value: Any) -> str:
    return "~text" if isinstance(value, str) else "~object"


ToolNames = Annotated[
    list[Annotated[str, Field(max_length=MAX_PATTERN_CHARS, description="A name, or a pattern with `*`.")]],
    limit_length(MAX_TOOLS),
    AfterValidator(check_patterns),
    Field(max_length=MAX_TOOLS, description=f"At most {MAX_TOOL_GLOBS} of them are patterns."),
]


class NamedTools(ClosedModel):
    """Tools of a server by their names, or by their read-only hint."""

    tool_names: ToolNames | None = None
    read_only: bool | None = None


ToolFilter = Annotated[
    Annotated[ToolNames, Tag("~names")] | Annotated[NamedTools, Tag("~object")],
    Discriminator(_form_of_filter),
    BeforeValidator(_refuse_text),
    WithJsonSchema({NAMED: "ToolFilter"}),
]


class ApprovalFilters(ClosedModel):
    """Tools whose calls need approval, and tools whose calls need none."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class MCPTool(ClosedModel):
    """An MCP server, whose tools the gateway runs."""

    type: Literal["mcp"] = declare_type("done", _SERVER, "The gateway runs the tools of the MCP server.")
    connector_id: Annotated[Any, accept_only(None, _NO_CONNECTORS), NO_VALUE] = declare_field(
        refused_tool_field(_SERVER, "connector_id", "connector_gmail", _NO_CONNECTORS)
    )
    tunnel_id: Annotated[Any, accept_only(None, _NO_CONNECTORS), NO_VALUE] = declare_field(
        refused_tool_field(_SERVER, "tunnel_id", "tunnel_1", _NO_CONNECTORS)
    )
    defer_loading: Annotated[bool, accept_only(False, NO_SEARCH), OnlyFalse] | None = None
    server_label: ShortText = Field(
        description="The name of a server of the gateway, or a name for the one at `server_url`."
    )
    server_url: (
        Annotated[
            str,
            Field(
                max_length=MAX_INPUT_TEXT_CHARS,
                json_schema_extra={"pattern": WEB_URL},
                examples=["https://example.com/mcp"],
            ),
            AfterValidator(check_server_url),
        ]
        | None
    ) = Field(
        default=None, repr=False, description="A server that the gateway does not have. The operator must allow it."
    )
    authorization: Annotated[str, AfterValidator(check_token)] | None = Field(
        default=None, repr=False, description="An access token for the server. Never stored."
    )
    headers: (
        Annotated[
            dict[str, Any],
            AfterValidator(_check_headers),
            WithJsonSchema(
                {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "maxProperties": MAX_REQUEST_HEADERS,
                }
            ),
        ]
        | None
    ) = Field(default=None, repr=False, description="HTTP headers for the server. Never stored.")
    server_description: LongText | None = None
    allowed_tools: ToolFilter | None = Field(default=None, description="Left out: all tools.")
    require_approval: (
        Annotated[
            Annotated[Literal["always", "never"], Tag("~text")] | Annotated[ApprovalFilters, Tag("~object")],
            Discriminator(_form_of_approval),
        ]
        | None
    ) = Field(default=None, description="Which calls you approve. Left out: `always`.")
    allowed_callers: DirectCallers | None = None


TOOL_MODELS: Mapping[str, type[ClosedModel]] = {
    "function": FunctionTool,
    "custom": CustomTool,
    "namespace": NamespaceTool,
    **ACTION_MODELS,
    "tool_search": ToolSearchTool,
    "mcp": MCPTool,
}
"""The declared tools by their type."""
