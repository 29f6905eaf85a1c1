"""Lists what a server offers: every page, every good entry; a bad one is dropped by name and the rest is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from holodeck.lib import log
from holodeck.lib.json_schema import SchemaBudget, SchemaError, check_schema_size
from holodeck.lib.limits import MAX_LIST_PAGES, MAX_LISTED, MAX_LISTED_SCHEMA_BYTES, MAX_LISTED_SCHEMA_NODES
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.era import Era, mapping
from holodeck.tools.mcp.jsonrpc import Message
from holodeck.tools.mcp.names import model_names, normalize_tool_name
from holodeck.tools.mcp.routing import BadAnnotationError, annotated
from holodeck.tools.mcp.session import Session
from holodeck.tools.mcp.tool_patterns import is_allowed, unmatched_patterns


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
class Listing(Generic[T]):
    """What one server offered at one moment."""

    items: tuple[T, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    """The entries that were left out, each with the reason."""
    unmatched: tuple[str, ...] = ()
    """A sentence for each pattern of the file that matches nothing on the list."""
    warnings: tuple[ListWarning, ...] = ()
    """All that is wrong with the list, the above included."""
    ttl: float | None = None
    """Seconds for which the server says that this stays true, if it says."""

    def log_news(self, server: str, before: Listing[T]) -> None:
        """Log the warnings that the list before did not have: a list is fetched again whenever it may have changed."""
        for warning in self.warnings:
            if warning not in before.warnings:
                log.warning(warning.event, server=server, **dict(warning.fields))


class UnfitError(ValueError):
    """An entry of a list that cannot be offered."""


async def list_tools(session: Session, tool: MCPTool) -> Listing[MCPToolInfo]:
    """All tools that the server has and the operator allows."""
    is_modern = session.terms is not None and session.terms.era is Era.MODERN
    budget = SchemaBudget(max_bytes=MAX_LISTED_SCHEMA_BYTES, max_nodes=MAX_LISTED_SCHEMA_NODES)
    listing = await _listed(session, tool, "tools", lambda entry: _tool(entry, is_modern, budget))
    names = model_names(info.name for info in listing.items)
    items = tuple(
        info if names[info.name] == info.model_name else replace(info, model_name=names[info.name])
        for info in listing.items
    )
    left_out = [MCPToolInfo(name=name, model_name=normalize_tool_name(name)) for name in listing.dropped]
    unmatched = tuple(unmatched_patterns(tool, (*items, *left_out)))
    warnings = (_warning("mcp.unmatched_pattern", notice=sentence) for sentence in unmatched)
    return replace(
        listing,
        items=tuple(info for info in items if is_allowed(tool, info)),
        unmatched=unmatched,
        warnings=(*listing.warnings, *warnings),
    )


async def list_prompts(session: Session, tool: MCPTool) -> Listing[MCPPromptInfo]:
    """All prompts that the server has."""
    return await _listed(session, tool, "prompts", _prompt)


async def _listed(session: Session, tool: MCPTool, area: str, read: Callable[[Mapping[str, Any]], T]) -> Listing[T]:
    if session.terms is not None and not session.terms.can(area):
        return Listing()
    found: dict[str, T] = {}
    dropped: dict[str, str] = {}
    ttls: list[float] = []
    warnings: list[ListWarning] = []
    try:
        async with asyncio.timeout(max(tool.startup_timeout, tool.request_timeout)):
            async for page in _pages(session, f"{area}/list", tool.request_timeout, warnings):
                ttls.append(_ttl(page.get("ttlMs")))
                for entry in _entries(session, page, area):
                    _add(entry, read, found, dropped)
                if len(found) > MAX_LISTED:
                    warnings.append(_warning("mcp.list_cut", list=area, kept=len(found)))
                    break
    except TimeoutError as error:
        raise session.faults.timeout(f"{area}/list", "the list did not end in time") from error
    warnings += [_warning("mcp.dropped", list=area, name=name, reason=reason) for name, reason in dropped.items()]
    given = [ttl for ttl in ttls if ttl >= 0]
    ttl = min(given) if given else None
    return Listing(items=tuple(found.values()), dropped=dropped, warnings=tuple(warnings), ttl=ttl)


def _warning(event: str, **fields: object) -> ListWarning:
    return ListWarning(event=event, fields=tuple(fields.items()))


async def _pages(session: Session, method: str, seconds: float, warnings: list[ListWarning]) -> AsyncIterator[Message]:
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
            warnings.append(_warning("mcp.cursor_repeated", method=method))
            return
        seen.add(following)
        cursor = following
    warnings.append(_warning("mcp.too_many_pages", method=method, pages=MAX_LIST_PAGES))


def _entries(session: Session, page: Mapping[str, Any], area: str) -> list[Any]:
    entries = page.get(area)
    if not isinstance(entries, list):
        raise session.faults.protocol(f"{area}/list", f"the answer has no list of {area}")
    return entries


def _add(entry: object, read: Callable[[Mapping[str, Any]], T], found: dict[str, T], dropped: dict[str, str]) -> None:
    described = mapping(entry)
    try:
        item = read(described)
    except (UnfitError, BadAnnotationError) as error:
        dropped[str(described.get("name"))[:200]] = str(error)
        return
    if item.name in found:
        dropped[item.name] = "the name is on the list twice; the first is kept"
    else:
        found[item.name] = item


def _tool(entry: Mapping[str, Any], is_modern: bool, budget: SchemaBudget) -> MCPToolInfo:
    name = _name(entry)
    schema = entry.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise UnfitError("its inputSchema is missing or does not describe an object")
    if mapping(entry.get("execution")).get("taskSupport") == "required":
        raise UnfitError("it runs only as a task, which this client does not offer")
    output = entry.get("outputSchema")
    try:
        budget.add(schema)
    except SchemaError as error:
        raise UnfitError(f"its inputSchema cannot be used: {error}") from None
    try:
        check_schema_size(output)
    except SchemaError as error:
        raise UnfitError(f"its outputSchema cannot be used: {error}") from None
    return MCPToolInfo(
        name=name,
        model_name=normalize_tool_name(name),
        title=_text(entry.get("title")),
        description=_text(entry.get("description")),
        input_schema=schema,
        output_schema=output if isinstance(output, dict) else None,
        annotations=mapping(entry.get("annotations")),
        argument_headers=annotated(schema) if is_modern else {},
    )


def _prompt(entry: Mapping[str, Any]) -> MCPPromptInfo:
    arguments = entry.get("arguments")
    return MCPPromptInfo(
        name=_name(entry),
        title=_text(entry.get("title")),
        description=_text(entry.get("description")),
        arguments=tuple(mapping(item) for item in arguments) if isinstance(arguments, list) else (),
    )


def _name(entry: Mapping[str, Any]) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise UnfitError("it has no name")
    return name


def _ttl(value: object) -> float:
    """Seconds; negative when the server gave none."""
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else -1.0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
