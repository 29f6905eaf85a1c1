"""Fetches the lists of a server, its tools and prompts: all pages, within limits on their number, size and time.

Invisible characters in what a server says about a tool are replaced by their codes, so that they reach no model.
An unusable entry is rejected by name with a reason, and does not affect the others. Everything that is wrong with a
list is returned as a warning, so that the caller logs it once and not for each fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

import orjson

from holodeck.lib import log
from holodeck.lib.escape import escape_json, escape_unprintable, is_plain_json
from holodeck.lib.json.schema import SchemaBudget, SchemaError, check_parsed_schema_size, dump_shallow
from holodeck.lib.limits import MIB
from holodeck.lib.record import record
from holodeck.models.tool import MCPTool
from holodeck.tools.executor import READ_RESOURCE
from holodeck.tools.mcp.lock.drift import EntryT, Noun, ServerLock, ToolDrift
from holodeck.tools.mcp.names import model_names, normalize_tool_name
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.tasks import TaskSupport, parse_task_support
from holodeck.tools.mcp.protocol.versions import ProtocolEra, mapping
from holodeck.tools.mcp.tool_patterns import is_allowed, unmatched_patterns
from holodeck.tools.mcp.transports.http_headers import ANNOTATION, BadAnnotationError, find_argument_headers

# Pages of one list. A server that still names a next page never ends its list.
MAX_LIST_PAGES = 1_000
# Entries of one list of a server, with those that cannot be used: what exceeds it is cut off.
MAX_LISTED = 20_000
# Bytes of all input schemas of one server: 20,000 tools with 1.6 KiB each.
MAX_LISTED_SCHEMA_BYTES = 32 * MIB
# JSON nodes of all input schemas of one server, which bound the time to process them.
MAX_LISTED_SCHEMA_NODES = 500_000

# Entries of a list that are judged together, if they are plain: their text shows that none is over a limit.
_BATCH_ENTRIES = 64

_ANNOTATION = ANNOTATION.encode()
# One for all tools: a list has thousands.
_EMPTY: Mapping[Any, Any] = {}


@record
class MCPToolInfo:
    """A tool as its server describes it."""

    name: str
    """The server's own name of the tool."""
    model_name: str
    """The name in the form that models accept."""
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    argument_headers: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """By path of an argument, the header in which a modern HTTP request repeats it."""
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry of the list, with everything that the server says. Texts in it are escaped, its name as well."""
    task_support: TaskSupport = TaskSupport.FORBIDDEN
    """Whether a legacy server runs the tool as a task. A modern one decides that for each call."""


READ_RESOURCE_TOOL = MCPToolInfo(
    name=READ_RESOURCE, model_name=READ_RESOURCE, annotations={"readOnlyHint": True, "idempotentHint": True}
)
"""Reading a resource, as the patterns of a definition and the metadata of results see it."""


@record
class MCPPromptInfo:
    """A prompt as its server describes it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: Sequence[Mapping[str, Any]] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The entry of the list; see `MCPToolInfo.raw`."""


T = TypeVar("T")


@record
class ListWarning:
    """A problem of a list for the operator, as a log event with its fields."""

    event: str
    fields: tuple[tuple[str, object], ...]


@record
class FetchedList(Generic[T]):
    """The list of one server at the time of the fetch."""

    items: tuple[T, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    """By name, why an entry was rejected."""
    unmatched: tuple[str, ...] = ()
    """A sentence for each pattern of the definition that matches no entry of the list."""
    withheld: tuple[ToolDrift, ...] = ()
    """The entries that are not offered, because they differ from the lock of the server."""
    warnings: tuple[ListWarning, ...] = ()
    """All problems of the list, including rejected entries and unmatched patterns."""
    ttl: float | None = None
    """Seconds for which the list is valid, if the server declares them."""

    def log_new_warnings(self, server: str, previous: FetchedList[T]) -> None:
        """Log the warnings that the previous list did not have: lists are fetched again and again."""
        for warning in self.warnings:
            if warning not in previous.warnings:
                log.warning(warning.event, server=server, **dict(warning.fields))


@record
class ListKind:
    """A list of the protocol: its request, the capability that announces it, and its key in an answer."""

    method: str
    capability: str
    key: str


TOOLS = ListKind(method="tools/list", capability="tools", key="tools")
PROMPTS = ListKind(method="prompts/list", capability="prompts", key="prompts")


class UnusableEntryError(ValueError):
    """An entry of a list that cannot be offered."""


async def list_tools(
    session: Session, tool: MCPTool, lock: ServerLock | None = None, previous: Sequence[MCPToolInfo] = ()
) -> FetchedList[MCPToolInfo]:
    """Fetch the tools of the server that the definition allows, without those that differ from the lock.

    `previous`: the tools of the list before. One whose entry is the same is not built again. Raises MCPError.
    """
    is_modern = session.terms is not None and session.terms.era is ProtocolEra.MODERN
    reader = _ToolReader(previous, is_modern=is_modern)
    listing = await fetch_listing(session, tool, TOOLS, reader.read, _name_of, reader.read_batch)
    items: Sequence[MCPToolInfo] = listing.items
    # A tool of the list before may have a name that it does not need any more.
    if previous or len({info.model_name for info in items}) < len(items):
        names = model_names([info.name for info in items])
        items = [
            info if info.model_name == names[info.name] else replace(info, model_name=names[info.name])
            for info in items
        ]
    # A pattern for a rejected tool is not wrong.
    rejected = [MCPToolInfo(name=name, model_name=normalize_tool_name(name)) for name in listing.rejected]
    unmatched = tuple(unmatched_patterns(tool, (*items, *rejected)))
    warnings = (_build_warning("mcp.unmatched_pattern", notice=sentence) for sentence in unmatched)
    is_narrowed = tool.allowed_tools is not None or bool(tool.denied_tools)
    listing = replace(
        listing,
        items=tuple([info for info in items if is_allowed(tool, info)] if is_narrowed else items),
        unmatched=unmatched,
        warnings=(*listing.warnings, *warnings),
    )
    return withhold_drifted(listing, lock, "tool", _name_of)


def withhold_drifted(
    listing: FetchedList[EntryT], lock: ServerLock | None, noun: Noun, key_of: Callable[[EntryT], str]
) -> FetchedList[EntryT]:
    """Return the list without the entries that differ from the lock. `noun`: what its entries are."""
    if lock is None:
        return listing
    accepted, withheld = lock.split_entries(noun, listing.items, key_of)
    if not withheld:
        return listing
    warnings = (_build_warning("mcp.withheld", **{noun: drift.tool}, reason=drift.reason) for drift in withheld)
    return replace(
        listing,
        items=accepted,
        rejected={**listing.rejected, **{drift.tool: drift.summary for drift in withheld}},
        withheld=withheld,
        warnings=(*listing.warnings, *warnings),
    )


async def list_prompts(session: Session, tool: MCPTool, lock: ServerLock | None = None) -> FetchedList[MCPPromptInfo]:
    """Fetch the prompts of the server, without those that differ from the lock. Raises MCPError."""
    listing = await fetch_listing(session, tool, PROMPTS, _parse_prompt, _name_of)
    return withhold_drifted(listing, lock, "prompt", _name_of)


async def fetch_listing(
    session: Session,
    tool: MCPTool,
    kind: ListKind,
    read: Callable[[Mapping[str, Any]], T],
    key_of: Callable[[T], str],
    read_batch: Callable[[list[Any]], dict[str, T] | None] | None = None,
) -> FetchedList[T]:
    """Fetch all pages of a list; empty if the server does not declare its capability. Raises MCPError.

    `read` parses an entry and raises `UnusableEntryError`; `key_of` returns what is unique in the list. `read_batch`
    parses some entries at once, by what is unique; None if one of them must be judged by itself.
    """
    if session.terms is not None and not session.terms.has_capability(kind.capability):
        return FetchedList()
    found: dict[str, T] = {}
    rejected: dict[str, str] = {}
    ttls: list[float] = []
    warnings: list[ListWarning] = []
    try:
        async with asyncio.timeout(max(tool.startup_timeout, tool.request_timeout)):
            async for page in _fetch_pages(session, kind.method, tool.request_timeout, warnings):
                ttls.append(_parse_ttl(page.get("ttlMs")))
                entries = _require_entries(session, page, kind)
                free = MAX_LISTED - len(found) - len(rejected)
                for start in range(0, min(len(entries), free), _BATCH_ENTRIES):
                    batch = entries[start : min(start + _BATCH_ENTRIES, free)]
                    items = None if read_batch is None else read_batch(batch)
                    if items is not None and found.keys().isdisjoint(items):
                        found.update(items)
                        continue
                    for entry in batch:
                        _add_entry(entry, read, key_of, found, rejected)
                if len(entries) > free:
                    warnings.append(_build_warning("mcp.list_cut", list=kind.key, kept=len(found)))
                    break
    except TimeoutError as error:
        raise session.errors.timeout(kind.method, "the list did not end in time") from error
    for name, reason in rejected.items():
        warnings.append(_build_warning("mcp.dropped", list=kind.key, name=name, reason=reason))
    ttl = min((each for each in ttls if each >= 0), default=None)
    return FetchedList(items=tuple(found.values()), rejected=rejected, warnings=tuple(warnings), ttl=ttl)


def _build_warning(event: str, **fields: object) -> ListWarning:
    return ListWarning(event=event, fields=tuple(fields.items()))


async def _fetch_pages(
    session: Session, method: str, seconds: float, warnings: list[ListWarning]
) -> AsyncIterator[Message]:
    """Yield the pages of a list. A repeated cursor and `MAX_LIST_PAGES` end it with a warning."""
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


def _require_entries(session: Session, page: Mapping[str, Any], kind: ListKind) -> list[Any]:
    entries = page.get(kind.key)
    if not isinstance(entries, list):
        raise session.errors.protocol(kind.method, f"the answer has no list of {kind.key}")
    return entries


def _add_entry(
    entry: object,
    read: Callable[[Mapping[str, Any]], T],
    key_of: Callable[[T], str],
    found: dict[str, T],
    rejected: dict[str, str],
) -> None:
    described: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    try:
        item = read(described)
    except (UnusableEntryError, BadAnnotationError) as error:
        rejected[str(described.get("name"))[:200]] = str(error)
        return
    key = key_of(item)
    if key in found:
        rejected[key] = "the name is on the list twice; only the first entry is used"
    else:
        found[key] = item


class _ToolReader:
    """Reads the entries of one list of tools, within the limits of a server on all of its schemas."""

    def __init__(self, previous: Sequence[MCPToolInfo], *, is_modern: bool) -> None:
        """`previous`: the tools of the list before. One whose entry is the same is returned again."""
        self._known = {info.name: info for info in previous}
        self._is_modern = is_modern
        self._budget = SchemaBudget(max_bytes=MAX_LISTED_SCHEMA_BYTES, max_nodes=MAX_LISTED_SCHEMA_NODES)

    def read_batch(self, entries: list[Any]) -> dict[str, MCPToolInfo] | None:
        """Return some tools by name, judged together by their text; None if one must be judged by itself.

        That is an entry with invisible characters, references, annotated arguments or a name that another one has, one
        that cannot be used, and a large or deep one.
        """
        text = dump_shallow(entries)
        if text is None or _ANNOTATION in text or not is_plain_json(text):
            return None
        for entry in entries:
            if type(entry) is not dict or not _is_usable_tool(entry):
                return None
        known = [self._known[entry["name"]] for entry in entries if entry["name"] in self._known]
        # Compared as text: to Python, 1, 1.0 and True are equal.
        if len(known) == len(entries) and orjson.dumps([info.raw for info in known]) == text:
            tools = {info.name: info for info in known}
        else:
            tools = {
                entry["name"]: (self._find_same(entry, orjson.dumps(entry)) if known else None)
                or _build_plain_tool(entry)
                for entry in entries
            }
        schemas = [info.input_schema for info in tools.values()]
        return tools if len(tools) == len(entries) and self._budget.try_add_all(schemas, text) else None

    def read(self, entry: Mapping[str, Any]) -> MCPToolInfo:
        """Return the tool of an entry. Raises `UnusableEntryError` and `BadAnnotationError`."""
        name = require_text(entry, "name")
        if not _is_usable_tool(entry):
            raise UnusableEntryError("its inputSchema is missing or does not describe an object")
        schema, output = entry["inputSchema"], entry.get("outputSchema")
        try:
            self._budget.add(schema)
        except SchemaError as error:
            raise UnusableEntryError(f"its inputSchema cannot be used: {error}") from None
        try:
            if output is not None:
                check_parsed_schema_size(output)
        except SchemaError as error:
            raise UnusableEntryError(f"its outputSchema cannot be used: {error}") from None
        try:
            text = orjson.dumps(entry)
        except TypeError:
            raise UnusableEntryError("it is nested too deeply") from None
        is_plain, is_annotated = is_plain_json(text), _ANNOTATION in text
        # The headers of an annotated one depend on the era as well.
        if is_plain and not is_annotated and (before := self._find_same(entry, text)) is not None:
            return before
        tool = _build_plain_tool(entry if is_plain else escape_entry(entry))
        headers = find_argument_headers(schema) if self._is_modern and is_annotated else {}
        if is_plain and not headers:
            return tool
        # The server's own name is not escaped: it is sent back.
        return replace(tool, name=name, model_name=normalize_tool_name(name), argument_headers=headers)

    def _find_same(self, entry: Mapping[str, Any], text: bytes) -> MCPToolInfo | None:
        """Return the tool of the list before that has the same entry, whose text is `text`."""
        before = self._known.get(entry["name"])
        return before if before is not None and orjson.dumps(before.raw) == text else None


def _is_usable_tool(entry: Mapping[str, Any]) -> bool:
    name, schema = entry.get("name"), entry.get("inputSchema")
    return isinstance(name, str) and name != "" and isinstance(schema, dict) and schema.get("type") == "object"


def _build_plain_tool(raw: Mapping[str, Any]) -> MCPToolInfo:
    """Return the tool of an entry in which nothing is to be escaped. Its fields are parts of the same object."""
    title, description, output = raw.get("title"), raw.get("description"), raw.get("outputSchema")
    return MCPToolInfo(
        name=raw["name"],
        model_name=normalize_tool_name(raw["name"]),
        title=title if isinstance(title, str) else None,
        description=description if isinstance(description, str) else None,
        input_schema=raw["inputSchema"],
        output_schema=output if isinstance(output, dict) else None,
        annotations=mapping(raw["annotations"]) if "annotations" in raw else _EMPTY,
        argument_headers=_EMPTY,
        raw=raw,
        task_support=parse_task_support(mapping(raw["execution"]).get("taskSupport"))
        if "execution" in raw
        else TaskSupport.FORBIDDEN,
    )


def _parse_prompt(entry: Mapping[str, Any]) -> MCPPromptInfo:
    raw = escape_entry(entry)
    arguments = raw.get("arguments")
    return MCPPromptInfo(
        name=require_text(entry, "name"),
        title=text_or_none(entry.get("title")),
        description=text_or_none(entry.get("description")),
        arguments=tuple(mapping(item) for item in arguments) if isinstance(arguments, list) else (),
        raw=raw,
    )


def _name_of(item: MCPToolInfo | MCPPromptInfo) -> str:
    return item.name


def escape_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with all texts escaped, the same object if none needs it. Raises `UnusableEntryError`.

    Line breaks of Windows become plain ones.
    """
    texts = {key: text for key in ("title", "description") if isinstance(text := entry.get(key), str) and "\r" in text}
    plain = {key: text.replace("\r\n", "\n") for key, text in texts.items()}
    try:
        escaped: dict[str, Any] = escape_json({**entry, **plain} if plain else entry)
    except TypeError:
        raise UnusableEntryError("it is nested too deeply") from None
    return escaped


def require_text(entry: Mapping[str, Any], key: str) -> str:
    """Return the text of a key. Raises `UnusableEntryError` if it is missing or empty."""
    text = entry.get(key)
    if not isinstance(text, str) or not text:
        raise UnusableEntryError(f"it has no {key}")
    return text


def _parse_ttl(value: object) -> float:
    """Return seconds; negative when the server declares none."""
    return value / 1000 if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else -1.0


def text_or_none(value: object) -> str | None:
    """Return a text of the server with invisible characters escaped; None for anything else."""
    return escape_unprintable(value.replace("\r\n", "\n")) if isinstance(value, str) else None
