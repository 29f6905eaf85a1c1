"""The lists of one server: its tools, prompts, resources and resource templates, cached and refreshed on changes.

`CachedList` holds the latest list and fetches it again when it may have changed. `ListChangeWatcher` receives the
change notifications of the server, in either era of the protocol, and schedules one fetch for several of them. Its
tasks belong to the connection and end with it. `ServerLists` has all of them, and finds what is called.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import MCPConnectionError, MCPError, MCPToolNotFoundError
from holodeck.lib.escape import one_line
from holodeck.lib.limits import MAX_SHOWN_CHARS, MAX_STREAM_RETRY, STREAM_RETRY
from holodeck.lib.net.uri_template import match_template
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.connection.connection import Connection
from holodeck.tools.mcp.discovery import FetchedList, MCPPromptInfo, MCPToolInfo, list_prompts, list_tools, text_or_none
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.lock.drift import ServerLock, ToolDrift
from holodeck.tools.mcp.names import normalize_tool_name
from holodeck.tools.mcp.protocol.jsonrpc import METHOD_NOT_FOUND, Message
from holodeck.tools.mcp.protocol.legacy_notices import lower_log_level
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.versions import ProtocolEra, mapping
from holodeck.tools.mcp.resource_discovery import (
    MCPResourceInfo,
    MCPResourceTemplateInfo,
    list_resource_templates,
    list_resources,
)
from holodeck.tools.mcp.tool_patterns import is_allowed
from holodeck.tools.mcp.transports.base import Delivery

# Seconds before the list is fetched again for a call of a tool that is not listed.
LIST_RECHECK = 5.0

# Seconds between a change notification and the fetch: notifications in this time share one fetch.
LIST_CHANGE_PAUSE = 0.1

_AREAS_BY_NOTIFICATION = {f"notifications/{area}/list_changed": area for area in ("tools", "prompts", "resources")}
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

T = TypeVar("T")


class CachedList(Generic[T]):
    """One list of one server, such as its tools, across its connections. Concurrent callers share one fetch."""

    def __init__(
        self,
        server: str,
        fetch: Callable[[Session], Awaitable[FetchedList[T]]],
        names_of: Callable[[T], tuple[str, ...]],
    ) -> None:
        """`names_of`: the names by which an entry is found, the server's own one first."""
        self._server = server
        self._fetch = fetch
        self._names_of = names_of
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._changes = 0
        self._fetched_changes = -1
        self._fetch_started_at = 0.0
        self._fetch_ended_at = 0.0
        self._by_name: dict[str, T] = {}
        self.listing: FetchedList[T] = FetchedList()
        self.has_change_notices = False
        """True while the server sends a notification when the list changes."""

    def mark_changed(self) -> None:
        """Invalidate the list: the server has announced a change."""
        self._changes += 1

    def find(self, session: Session, name: str) -> T | None:
        """Return the entry by any of its names. None if it is not listed, or if the list is of another session."""
        return self._by_name.get(name) if session is self._session else None

    def age(self, session: Session) -> float:
        """Return the seconds since the list was fetched in this session; infinite if it never was."""
        return time.monotonic() - self._fetch_started_at if session is self._session else float("inf")

    async def get_current(self, session: Session) -> FetchedList[T]:
        """Return the list, fetched again unless it is fresh. Raises MCPError."""
        if not self.is_fresh(session):
            await self.refresh(session)
        return self.listing

    async def refresh(self, session: Session) -> None:
        """Fetch the list. Raises MCPError."""
        called_at = time.monotonic()
        async with self._lock:
            is_latest = session is self._session and self._fetched_changes == self._changes
            # A concurrent caller has fetched it while this one waited for the lock.
            if is_latest and self._fetch_ended_at >= called_at:
                return
            changes, began = self._changes, time.monotonic()
            listing = await self._fetch(session)
            listing.log_new_warnings(self._server, self.listing)
            self.listing = listing
            names = [self._names_of(item) for item in listing.items]
            # The server's own name of a tool takes precedence over other spellings of another tool.
            by_name = self._by_name = {spellings[0]: item for item, spellings in zip(listing.items, names, strict=True)}
            for item, (own, *others) in zip(listing.items, names, strict=True):
                for spelling in others:
                    if spelling != own:
                        by_name.setdefault(spelling, item)
            self._session, self._fetched_changes = session, changes
            self._fetch_started_at, self._fetch_ended_at = began, time.monotonic()

    def is_fresh(self, session: Session) -> bool:
        """Return whether the list needs no fetch: it is of this session, and a change would have been announced."""
        if session is not self._session or self._fetched_changes != self._changes:
            return False
        if self.listing.ttl is not None:
            return time.monotonic() - self._fetch_started_at < self.listing.ttl
        return self.has_change_notices or session.terms is None or session.terms.era is ProtocolEra.LEGACY


class ListChangeWatcher:
    """Refreshes the cached lists of one server when it announces a change."""

    def __init__(
        self,
        lists: Mapping[str, Sequence[CachedList[Any]]],
        listeners: Mapping[str, Callable[[], None] | None],
        *,
        server: str,
    ) -> None:
        """Refresh `lists` and call `listeners`, both by area of the protocol, such as `tools`."""
        self._lists = lists
        self._listeners = listeners
        self._server = server
        self._refreshing: set[str] = set()

    def watch(self, connection: Connection) -> None:
        """Start watching on a new connection. A modern server needs a subscription, a legacy one sends unasked."""
        terms = connection.session.terms
        if terms is None:
            return
        announced = {area for area in self._lists if terms.has_list_changed(area)}
        for area in self._lists:
            self._set_change_notices(area, terms.era is ProtocolEra.LEGACY and area in announced)
        if terms.era is ProtocolEra.MODERN and announced:
            connection.spawn_task(self._subscribe(connection, announced))
        elif terms.era is ProtocolEra.LEGACY and terms.has_capability("logging"):
            connection.spawn_task(lower_log_level(connection.session))

    def apply_notification(self, connection: Connection, message: Message) -> None:
        """Apply a notification of the server. Those that are not about lists are ignored."""
        method = message.get("method")
        if method == _ACKNOWLEDGED:
            accepted = mapping(mapping(message.get("params")).get("notifications"))
            for area in self._lists:
                self._set_change_notices(area, accepted.get(f"{area}ListChanged") is True)
        elif isinstance(method, str) and method in _AREAS_BY_NOTIFICATION:
            self._schedule_refresh(connection, _AREAS_BY_NOTIFICATION[method])

    def _set_change_notices(self, area: str, has_notices: bool) -> None:
        for cached in self._lists[area]:
            cached.has_change_notices = has_notices

    def _schedule_refresh(self, connection: Connection, area: str) -> None:
        for cached in self._lists[area]:
            cached.mark_changed()
        if area not in self._refreshing:
            self._refreshing.add(area)
            connection.spawn_task(self._refresh(connection, area)).add_done_callback(
                lambda _: self._refreshing.discard(area)
            )

    async def _refresh(self, connection: Connection, area: str) -> None:
        await asyncio.sleep(LIST_CHANGE_PAUSE)
        # A notification from here on announces a change that this fetch may not see.
        self._refreshing.discard(area)
        for cached in self._lists[area]:
            # A list that has not been used in this session is fetched when it is needed.
            if cached.age(connection.session) < float("inf"):
                await cached.refresh(connection.session)
        log.debug("mcp.list_refreshed", server=self._server, list=area)
        listener = self._listeners.get(area)
        if listener is not None:
            listener()

    async def _subscribe(self, connection: Connection, areas: set[str]) -> None:
        """Hold a request open on which a modern server sends its notifications, and send it again when it ends."""
        wanted = {f"{area}ListChanged": True for area in sorted(areas)}
        failures = 0
        while True:
            try:
                await connection.session.request(
                    "subscriptions/listen",
                    {"notifications": wanted},
                    seconds=None,
                    delivery=Delivery(is_open_ended=True),
                )
                failures = 0
            except MCPConnectionError as error:
                if connection.session.transport.failure.done():
                    return
                failures += 1
                log.debug("mcp.listen_lost", server=self._server, error=error, failures=failures)
            except MCPError as error:
                if error.details.get("code") == METHOD_NOT_FOUND:
                    return
                failures += 1
                log.debug("mcp.listen_refused", server=self._server, error=error, failures=failures)
            for area in areas:
                self._set_change_notices(area, False)
            # `failures + 1`: a stream that ended without an error is reopened after the first pause.
            await asyncio.sleep(backoff_pause(failures + 1, first=STREAM_RETRY, longest=MAX_STREAM_RETRY))
            # Changes while there was no subscription are not announced.
            for area in areas:
                self._schedule_refresh(connection, area)


class ServerLists:
    """The cached lists of one server, and the watcher that refreshes them."""

    def __init__(
        self, tool: MCPTool, callbacks: Callbacks, errors: ErrorFactory, lock: ServerLock | None = None
    ) -> None:
        """`lock`: the accepted entries of all lists; others are withheld. None: all are accepted."""
        self._config = tool
        self._errors = errors
        self._lock = lock
        self.tools: CachedList[MCPToolInfo] = CachedList(
            tool.name,
            lambda session: list_tools(session, tool, lock, self.tools.listing.items),
            lambda info: (info.name, info.model_name),
        )
        self.prompts: CachedList[MCPPromptInfo] = CachedList(
            tool.name,
            lambda session: list_prompts(session, tool, lock),
            lambda info: (info.name, normalize_tool_name(info.name)),
        )
        self.resources: CachedList[MCPResourceInfo] = CachedList(
            tool.name, lambda session: list_resources(session, tool, lock), lambda info: (info.uri,)
        )
        self.templates: CachedList[MCPResourceTemplateInfo] = CachedList(
            tool.name, lambda session: list_resource_templates(session, tool, lock), lambda info: (info.uri_template,)
        )
        self.watcher = ListChangeWatcher(
            {"tools": [self.tools], "prompts": [self.prompts], "resources": [self.resources, self.templates]},
            callbacks.list_listeners(tool.name),
            server=tool.name,
        )
        self.instructions: str | None = None
        """The instructions of the server, with invisible characters escaped; None if they differ from the lock."""
        self._instructions_drift: ToolDrift | None = None

    def watch(self, connection: Connection) -> None:
        """Follow the changes of the lists on a new connection, and read the instructions that came with it."""
        text = None if connection.session.terms is None else text_or_none(connection.session.terms.instructions)
        drift = None if self._lock is None else self._lock.find_instructions_drift(text)
        if drift is not None and drift != self._instructions_drift:
            log.warning("mcp.withheld", server=self._config.name, reason=drift.reason)
        self.instructions, self._instructions_drift = None if drift is not None else text, drift
        self.watcher.watch(connection)

    @property
    def withheld_texts(self) -> list[ToolDrift]:
        """The prompts, resources, templates and instructions that are not passed on, as they differ from the lock."""
        lists = (self.prompts, self.resources, self.templates)
        drift = [each for cached in lists for each in cached.listing.withheld]
        return drift if self._instructions_drift is None else [*drift, self._instructions_drift]

    async def require_tool(self, session: Session, name: str) -> MCPToolInfo:
        """Return a tool by the server's or the model's name of it, listed again if it is not known.

        Raises MCPToolNotFoundError, also for a tool that is not allowed.
        """
        known = self.tools.find(session, name)
        if known is not None:
            return known
        unlisted = MCPToolInfo(name=name, model_name=normalize_tool_name(name))
        if is_allowed(self._config, unlisted):
            if not self._config.load_tools:
                return unlisted
            if self.tools.age(session) > LIST_RECHECK:
                await self.tools.refresh(session)
            info = self.tools.find(session, name)
            if info is not None:
                return info
            reason = self.tools.listing.rejected.get(name)
            text = f"it has no tool '{name}'" + (f" that can be used: {reason}." if reason else ".")
        else:
            text = f"the tool '{name}' is not allowed ('allowed_tools', 'denied_tools')."
        raise self._errors.build(MCPToolNotFoundError, "call", text, tool=name)

    async def require_prompt(self, session: Session, name: str) -> str:
        """Return the server's own name of a prompt. Raises MCPProtocolError for one that is not as the lock has it."""
        if self._config.load_prompts or self._lock is not None:
            await self.prompts.get_current(session)
        known = self.prompts.find(session, name)
        if known is None and self._lock is not None and not self._lock.may_change("prompt"):
            text = f"the prompt '{name}' is not as holodeck.lock has it, or the server does not have it."
            raise self._errors.protocol("prompts/get", text, is_public=True)
        return known.name if known is not None else name

    async def check_resource(self, session: Session, uri: str) -> None:
        """Raise MCPProtocolError for a resource that the server lists, or has a template for, otherwise than the lock.

        One that no list has can be read: a tool may link to it.
        """
        if self._lock is None:
            return
        resources, templates = await self.resources.get_current(session), await self.templates.get_current(session)
        if self.resources.find(session, uri) is not None:
            return
        plain = _normalize(uri)
        is_withheld = any(_normalize(each.tool) == plain for each in resources.withheld)
        if not is_withheld and not any(match_template(each.uri_template, uri) is not None for each in templates.items):
            is_withheld = any(match_template(_normalize(each.tool), plain) is not None for each in templates.withheld)
        if is_withheld:
            text = f"the resource '{one_line(uri, MAX_SHOWN_CHARS)}' is not as holodeck.lock has it."
            raise self._errors.protocol("resources/read", text, is_public=True)


def _normalize(uri: str) -> str:
    """Return the spelling of a URI by which two that a server may take for the same are equal."""
    return unquote(uri).casefold()
