"""Fetches the resources and resource templates of a server, within the limits that all lists have.

An entry is known by its URI, which is used as the server sent it. Everything else that a server says about a resource
is text for people and models, with invisible characters replaced by their codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from holodeck.lib.errors import MCPProtocolError
from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.discovery import (
    FetchedList,
    ListKind,
    UnusableEntryError,
    escape_entry,
    fetch_listing,
    require_text,
    text_or_none,
    withhold_drifted,
)
from holodeck.tools.mcp.lock.drift import ServerLock
from holodeck.tools.mcp.protocol.jsonrpc import METHOD_NOT_FOUND
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.versions import mapping

# Characters of a URI or of a URI template. No program reads a longer one, and it would be repeated in each request.
MAX_URI_CHARS = 8_192

RESOURCES = ListKind(method="resources/list", capability="resources", key="resources")
RESOURCE_TEMPLATES = ListKind(method="resources/templates/list", capability="resources", key="resourceTemplates")


@record
class MCPResourceInfo:
    """A resource as its server describes it."""

    uri: str
    name: str
    """For people; several resources may have the same. The URI if the server gives none."""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    """As the server declares it, which need not be true."""
    size: int | None = None
    """Bytes, as the server declares them."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry of the list, with everything that the server says. Texts in it are escaped, its URI as well."""


@record
class MCPResourceTemplateInfo:
    """A template of URIs as its server describes it. `uri_template` is one of RFC 6570."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry of the list; see `MCPResourceInfo.raw`."""


async def list_resources(
    session: Session, tool: MCPTool, lock: ServerLock | None = None
) -> FetchedList[MCPResourceInfo]:
    """Fetch the resources of the server, without those that differ from the lock. Raises MCPError.

    There are none if it does not declare any.
    """
    listing = await fetch_listing(session, tool, RESOURCES, _parse_resource, lambda info: info.uri)
    return withhold_drifted(listing, lock, "resource", lambda info: info.uri)


async def list_resource_templates(
    session: Session, tool: MCPTool, lock: ServerLock | None = None
) -> FetchedList[MCPResourceTemplateInfo]:
    """Fetch the resource templates of the server, without those that differ from the lock. Raises MCPError.

    There are none if it does not know the request.
    """
    try:
        listing = await fetch_listing(
            session, tool, RESOURCE_TEMPLATES, _parse_template, lambda info: info.uri_template
        )
        return withhold_drifted(listing, lock, "template", lambda info: info.uri_template)
    except MCPProtocolError as error:
        # Servers without templates declare the same capability, and need not know this list.
        if error.details.get("code") == METHOD_NOT_FOUND:
            return FetchedList()
        raise


def _parse_resource(entry: Mapping[str, Any]) -> MCPResourceInfo:
    uri, raw, size = _require_uri(entry, "uri"), escape_entry(entry), entry.get("size")
    return MCPResourceInfo(
        uri=uri,
        name=text_or_none(entry.get("name")) or escape_unprintable(uri),
        title=text_or_none(entry.get("title")),
        description=text_or_none(entry.get("description")),
        mime_type=text_or_none(entry.get("mimeType")),
        size=size if type(size) is int and size >= 0 else None,
        annotations=mapping(raw.get("annotations")),
        raw=raw,
    )


def _parse_template(entry: Mapping[str, Any]) -> MCPResourceTemplateInfo:
    template, raw = _require_uri(entry, "uriTemplate"), escape_entry(entry)
    return MCPResourceTemplateInfo(
        uri_template=template,
        name=text_or_none(entry.get("name")) or escape_unprintable(template),
        title=text_or_none(entry.get("title")),
        description=text_or_none(entry.get("description")),
        mime_type=text_or_none(entry.get("mimeType")),
        annotations=mapping(raw.get("annotations")),
        raw=raw,
    )


def _require_uri(entry: Mapping[str, Any], key: str) -> str:
    uri = require_text(entry, key)
    if len(uri) > MAX_URI_CHARS:
        raise UnusableEntryError(f"its {key} has more than {MAX_URI_CHARS} characters")
    return uri
