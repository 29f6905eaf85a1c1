"""Announces to clients that a list of tools, prompts or resources has changed.

Several changes within `CHANGE_PAUSE` are announced once. A listener is called on the event loop and must not block. It
is told of which servers the list has changed, and announces nothing to a client that may use none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from holodeck.tools.mcp.protocol.server_requests import ListArea

# Seconds that an announcement waits for further ones.
CHANGE_PAUSE = 0.1

Area = ListArea
Listener = Callable[[Area, Collection[str] | None], None]
"""Called with the list that has changed, and the names of the servers. None: any of them, or the agents."""


class ListChanges:
    """The lists that have changed, and the clients that want to know."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._changed: dict[Area, set[str | None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def announce(self, area: Area, server: str | None = None) -> None:
        """Tell every listener soon that this list of a server has changed. None: of any server, or the agents."""
        self._changed.setdefault(area, set()).add(server)
        if self._timer is None and self._listeners:
            self._timer = asyncio.get_running_loop().call_later(CHANGE_PAUSE, self._call_listeners)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call the listener for each change from now on. Returns what ends that."""
        key = object()
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def close(self) -> None:
        """Announce nothing any more."""
        self._listeners.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _call_listeners(self) -> None:
        changed, self._changed, self._timer = self._changed, {}, None
        for listener in list(self._listeners.values()):
            for area, servers in sorted(changed.items()):
                listener(area, None if None in servers else {name for name in servers if name is not None})
