"""Lists what a server offers: every page, every good entry; a bad one is dropped by name and the rest is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from holodeck.lib import log
from holodeck.lib.json.schema import SchemaBudget, SchemaError, check_schema_size
from holodeck.lib.limits import MIB
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.names import model_names, normalize_tool_name
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.versions import ProtocolEra, mapping
from holodeck.tools.mcp.tool_patterns import is_allowed, unmatched_patterns
from holodeck.tools.mcp.transports.http_headers import BadAnnotationError, find_argument_headers

# A server that still has a next page then is counting, not listing.
MAX_LIST_PAGES = 1_000
# Tools or prompts of one server.
MAX_LISTED = 20_000
# Of all tools of one server: 20,000 with 1.6 KiB each.
MAX_LISTED_SCHEMA_BYTES = 32 * MIB
MAX_LISTED_SCHEMA_NODES = 500_000


@dataclass(frozen=True, kw_only=True)
class MCPToolInfo:
    """A tool as its server describes it."""

    name: str
    """The server's own name for it."""
    model_name: str
    """The name under which a model may know it."""
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    argument_headers: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Which arguments a modern HTTP request repeats in its headers."""


@dataclass(frozen=True, kw_only=True)
class MCPPromptInfo:
    """A prompt as its server describes it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: Sequence[Mapping[str, Any]] = ()


class Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


@dataclass(frozen=True, kw_only=True)
class ListWarning:
    """Something about a list that an operator should know, as a line of the log has it."""

    event: str
    fields: tuple[tuple[str, object], ...]


@dataclass(frozen=True, kw_only=True)
class FetchedList(Generic[T]):
    """What one server offered at one moment."""

    items: tuple[T, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    """The entries that were left out, each with the reason."""
    unmatched: tuple[str, ...] = ()
    """A sentence for each pattern of the file that matches nothing on the list."""
    warnings: tuple[ListWarning, ...] = ()
    """All that is wrong with the list, the above included."""
    ttl: float | None = None
    """Seconds for which the server says that this stays true, if it says."""

    def log_new_warnings(self, server: str, previous: FetchedList[T]) -> None:
        """Log the warnings that the list before did not have: a list is fetched again whenever it may have changed."""
        for warning in self.warnings:
            if warning not in previous.warnings:
                log.warning(warning.event, server=server, **dict(warning.fields))


class UnusableEntryError(ValueError):
    """An entry of a list that cannot be offered."""


async def list_tools(session: Session, tool: MCPTool) -> FetchedList[MCPToolInfo]:
    """All tools that the server has and the operator allows."""
    is_modern = session.terms is not None and session.terms.era is ProtocolEra.MODERN
    budget = SchemaBudget(max_bytes=MAX_LISTED_SCHEMA_BYTES, max_nodes=MAX_LISTED_SCHEMA_NODES)
    listing = await _fetch_listing(session, tool, "tools", lambda entry: _parse_tool(entry, is_modern, budget))
    names = model_names(info.name for info in listing.items)
    items = tuple(
        info if names[info.name] == info.model_name else replace(info, model_name=names[info.name])
        for info in listing.items
    )
    left_out = [MCPToolInfo(name=name, model_name=normalize_tool_name(name)) for name in listing.rejected]
    unmatched = tuple(unmatched_patterns(tool, (*items, *left_out)))
    warnings = (_build_warning("mcp.unmatched_pattern", notice=sentence) for sentence in unmatched)
    return replace(
        listing,
        items=tuple(info for info in items if is_allowed(tool, info)),
        unmatched=unmatched,
        warnings=(*listing.warnings, *warnings),
    )


async def list_prompts(session: Session, tool: MCPTool) -> FetchedList[MCPPromptInfo]:
    """All prompts that the server has."""
    return await _fetch_listing(session, tool, "prompts", _parse_prompt)


async def _fetch_listing(
    session: Session, tool: MCPTool, area: str, read: Callable[[Mapping[str, Any]], T]
) -> FetchedList[T]:
    if session.terms is not None and not session.terms.has_capability(area):
        return FetchedList()
    found: dict[str, T] = {}
    dropped: dict[str, str] = {}
    ttls: list[float] = []
    warnings: list[ListWarning] = []
    try:
        async with asyncio.timeout(max(tool.startup_timeout, tool.request_timeout)):
            async for page in _fetch_pages(session, f"{area}/list", tool.request_timeout, warnings):
                ttls.append(_parse_ttl(page.get("ttlMs")))
                for entry in _require_entries(session, page, area):
                    _add_entry(entry, read, found, dropped)
                if len(found) > MAX_LISTED:
                    warnings.append(_build_warning("mcp.list_cut", list=area, kept=len(found)))
                    break
    except TimeoutError as error:
        raise session.errors.timeout(f"{area}/list", "the list did not end in time") from error
    warnings += [_build_warning("mcp.dropped", list=area, name=name, reason=reason) for name, reason in dropped.items()]
    given = [ttl for ttl in ttls if ttl >= 0]
    ttl = min(given) if given else None
    return FetchedList(items=tuple(found.values()), rejected=dropped, warnings=tuple(warnings), ttl=ttl)


def _build_warning(event: str, **fields: object) -> ListWarning:
    return ListWarning(event=event, fields=tuple(fields.items()))


async def _fetch_pages(
    session: Session, method: str, seconds: float, warnings: list[ListWarning]
) -> AsyncIterator[Message]:
    """Page after page; a cursor that comes again, or too many pages, is the end."""
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_LIST_PAGES):
        page = await session.request(method, {"cursor": cursor} if cursor else None, seconds=seconds)
        yield page
        following = page.get("nextCursor")
        if not isinstance(following, str) or not following:
            return
        if following in seen:
            warnings.append(_build_warning("mcp.cursor_repeated", method=method))
            return
        seen.add(following)
        cursor = following
    warnings.append(_build_warning("mcp.too_many_pages", method=method, pages=MAX_LIST_PAGES))


def _require_entries(session: Session, page: Mapping[str, Any], area: str) -> list[Any]:
    entries = page.get(area)
    if not isinstance(entries, list):
        raise session.errors.protocol(f"{area}/list", f"the answer has no list of {area}")
    return entries


def _add_entry(
    entry: object, read: Callable[[Mapping[str, Any]], T], found: dict[str, T], rejected: dict[str, str]
) -> None:
    described = mapping(entry)
    try:
        item = read(described)
    except (UnusableEntryError, BadAnnotationError) as error:
        rejected[str(described.get("name"))[:200]] = str(error)
        return
    if item.name in found:
        rejected[item.name] = "the name is on the list twice; the first is kept"
    else:
        found[item.name] = item


def _parse_tool(entry: Mapping[str, Any], is_modern: bool, budget: SchemaBudget) -> MCPToolInfo:
    name = _require_name(entry)
    schema = entry.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise UnusableEntryError("its inputSchema is missing or does not describe an object")
    if mapping(entry.get("execution")).get("taskSupport") == "required":
        raise UnusableEntryError("it runs only as a task, which this client does not offer")
    output = entry.get("outputSchema")
    try:
        budget.add(schema)
    except SchemaError as error:
        raise UnusableEntryError(f"its inputSchema cannot be used: {error}") from None
    try:
        check_schema_size(output)
    except SchemaError as error:
        raise UnusableEntryError(f"its outputSchema cannot be used: {error}") from None
    return MCPToolInfo(
        name=name,
        model_name=normalize_tool_name(name),
        title=_text_or_none(entry.get("title")),
        description=_text_or_none(entry.get("description")),
        input_schema=schema,
        output_schema=output if isinstance(output, dict) else None,
        annotations=mapping(entry.get("annotations")),
        argument_headers=find_argument_headers(schema) if is_modern else {},
    )


def _parse_prompt(entry: Mapping[str, Any]) -> MCPPromptInfo:
    arguments = entry.get("arguments")
    return MCPPromptInfo(
        name=_require_name(entry),
        title=_text_or_none(entry.get("title")),
        description=_text_or_none(entry.get("description")),
        arguments=tuple(mapping(item) for item in arguments) if isinstance(arguments, list) else (),
    )


def _require_name(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise UnusableEntryError("it has no name")
    return name


def _parse_ttl(value: object) -> float:
    """Seconds; negative when the server gave none."""
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else -1.0


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
