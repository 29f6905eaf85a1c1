"""Keeps one of a server's lists: fetched once for all who ask, and again when it changed or its time is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from holodeck.tools.mcp.discovery import FetchedList, Named
from holodeck.tools.mcp.protocol.session import Session
from holodeck.tools.mcp.protocol.versions import ProtocolEra

T = TypeVar("T", bound=Named)


class CachedList(Generic[T]):
    """The tools, or the prompts, of one server entry, across its connections."""

    def __init__(
        self,
        server: str,
        fetch: Callable[[Session], Awaitable[FetchedList[T]]],
        names_of: Callable[[T], tuple[str, ...]],
    ) -> None:
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
        """True while the server would tell us of a change."""

    def mark_changed(self) -> None:
        """The server says that the list is not what it was."""
        self._changes += 1

    def find(self, session: Session, name: str) -> T | None:
        """The entry, if it is on the list as this session knows it."""
        return self._by_name.get(name) if session is self._session else None

    def age(self, session: Session) -> float:
        """Seconds since the list was fetched in this session."""
        return time.monotonic() - self._fetch_started_at if session is self._session else float("inf")

    async def get_current(self, session: Session) -> FetchedList[T]:
        """The list as it is now."""
        if not self._is_fresh(session):
            await self.refresh(session)
        return self.listing

    async def refresh(self, session: Session) -> None:
        """Fetch the list; callers that come together share one fetch."""
        asked_at = time.monotonic()
        async with self._lock:
            if session is self._session and self._fetched_changes == self._changes and self._fetch_ended_at >= asked_at:
                return
            changes, began = self._changes, time.monotonic()
            listing = await self._fetch(session)
            listing.log_new_warnings(self._server, self.listing)
            self.listing = listing
            self._by_name = {}
            for item in listing.items:
                for spelling in self._names_of(item):
                    self._by_name.setdefault(spelling, item)
            for item in listing.items:
                self._by_name[item.name] = item  # the server's own name always means itself
            self._session, self._fetched_changes = session, changes
            self._fetch_started_at, self._fetch_ended_at = began, time.monotonic()

    def _is_fresh(self, session: Session) -> bool:
        if session is not self._session or self._fetched_changes != self._changes:
            return False
        if self.listing.ttl is not None:
            return time.monotonic() - self._fetch_started_at < self.listing.ttl
        return self.has_change_notices or session.terms is None or session.terms.era is ProtocolEra.LEGACY
