"""Lists what a server offers: every page, every good entry; a bad one is dropped by name and the rest is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Generic, Protocol, TypeVar

from holodeck.lib import log
from holodeck.lib.limits import MAX_LIST_PAGES, MAX_LISTED
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.era import Era, mapping
from holodeck.tools.mcp.jsonrpc import Message
from holodeck.tools.mcp.names import model_names, normalize_tool_name
from holodeck.tools.mcp.routing import BadAnnotationError, annotated
from holodeck.tools.mcp.session import Session


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
class Listing(Generic[T]):
    """What one server offered at one moment."""

    items: tuple[T, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    """The entries that were left out, each with the reason."""
    ttl: float | None = None
    """Seconds for which the server says that this stays true, if it says."""


class UnfitError(ValueError):
    """An entry of a list that cannot be offered."""


async def list_tools(session: Session, tool: MCPTool) -> Listing[MCPToolInfo]:
    """All tools that the server has and the operator allows."""
    is_modern = session.terms is not None and session.terms.era is Era.MODERN
    listing = await _listed(session, tool, "tools", lambda entry: _tool(entry, is_modern))
    names = model_names(info.name for info in listing.items)
    items = tuple(
        info if names[info.name] == info.model_name else _renamed(info, names[info.name])
        for info in listing.items
        if is_allowed(tool, info.name)
    )
    return Listing(items=items, dropped=listing.dropped, ttl=listing.ttl)


async def list_prompts(session: Session, tool: MCPTool) -> Listing[MCPPromptInfo]:
    """All prompts that the server has."""
    return await _listed(session, tool, "prompts", _prompt)


def is_allowed(tool: MCPTool, name: str) -> bool:
    """Whether the operator lets the agent use this tool: by name or glob, in the server's or the model's spelling."""
    spellings = {name, normalize_tool_name(name)}

    def matches(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(spelling, pattern) for spelling in spellings for pattern in patterns)

    return not matches(tool.denied_tools) and (tool.allowed_tools is None or matches(tool.allowed_tools))


async def _listed(session: Session, tool: MCPTool, area: str, read: Callable[[Mapping[str, Any]], T]) -> Listing[T]:
    if session.terms is not None and not session.terms.can(area):
        return Listing()
    found: dict[str, T] = {}
    dropped: dict[str, str] = {}
    ttls: list[float] = []
    try:
        async with asyncio.timeout(max(tool.startup_timeout, tool.request_timeout)):
            async for page in _pages(session, f"{area}/list", tool.request_timeout):
                ttls.append(_ttl(page.get("ttlMs")))
                for entry in _entries(session, page, area):
                    _add(entry, read, found, dropped)
                if len(found) > MAX_LISTED:
                    log.warning("mcp.list_cut", server=session.faults.server, list=area, kept=len(found))
                    break
    except TimeoutError as error:
        raise session.faults.timeout(f"{area}/list", "the list did not end in time") from error
    for name, reason in dropped.items():
        log.warning("mcp.dropped", server=session.faults.server, list=area, name=name, reason=reason)
    given = [ttl for ttl in ttls if ttl >= 0]
    return Listing(items=tuple(found.values()), dropped=dropped, ttl=min(given) if given else None)


async def _pages(session: Session, method: str, seconds: float) -> AsyncIterator[Message]:
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
            log.warning("mcp.cursor_repeated", server=session.faults.server, method=method)
            return
        seen.add(following)
        cursor = following
    log.warning("mcp.too_many_pages", server=session.faults.server, method=method, pages=MAX_LIST_PAGES)


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


def _tool(entry: Mapping[str, Any], is_modern: bool) -> MCPToolInfo:
    name = _name(entry)
    schema = entry.get("inputSchema")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise UnfitError("its inputSchema is missing or does not describe an object")
    if mapping(entry.get("execution")).get("taskSupport") == "required":
        raise UnfitError("it runs only as a task, which this client does not offer")
    output = entry.get("outputSchema")
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


def _renamed(info: MCPToolInfo, model_name: str) -> MCPToolInfo:
    return MCPToolInfo(**{**vars(info), "model_name": model_name})


def _ttl(value: object) -> float:
    """Seconds; negative when the server gave none."""
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else -1.0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
