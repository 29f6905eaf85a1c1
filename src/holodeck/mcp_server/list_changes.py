"""Announces to clients that a list of tools, prompts or resources has changed.

Several changes within `CHANGE_PAUSE` are announced once. A listener is called on the event loop and must not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

# Seconds that an announcement waits for further ones.
CHANGE_PAUSE = 0.1

Area = Literal["tools", "prompts", "resources"]
Listener = Callable[[Area], None]


class ListChanges:
    """The lists that have changed, and the clients that want to know."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._changed: set[Area] = set()
        self._timer: asyncio.TimerHandle | None = None

    def announce(self, area: Area) -> None:
        """Tell every listener soon that this list has changed."""
        self._changed.add(area)
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
        changed, self._changed, self._timer = self._changed, set(), None
        for listener in list(self._listeners.values()):
            for area in sorted(changed):
                listener(area)
