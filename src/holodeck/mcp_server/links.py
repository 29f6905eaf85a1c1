"""The resources that results of tools have linked to, by the caller that got the result.

A server need not list what its tools link to. So a caller may read what it was sent a link to, at the server that sent
it. Each caller has its own links, of which the latest are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

# Links of one caller: more than a model reads of the results of one conversation.
MAX_PER_CALLER = 100
# Callers with links: together with the others, a bound of a few MB.
MAX_CALLERS = 100
# Characters of an address. A longer one is not remembered.
MAX_URI_CHARS = 1_024


class ResourceLinks:
    """The latest links of the latest callers."""

    def __init__(self) -> None:
        self._by_caller: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()

    def add(self, caller_id: str, server: str, result: Mapping[str, Any]) -> None:
        """Remember the links in the result of a tool."""
        blocks = result.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict) and block.get("type") == "resource_link":
                self._add_link(caller_id, server, block.get("uri"))

    def find_server(self, caller_id: str, uri: str) -> str | None:
        """Return the server whose tool has linked to a resource in a result for this caller, or None."""
        links = self._by_caller.get(caller_id)
        return None if links is None else links.get(uri)

    def _add_link(self, caller_id: str, server: str, uri: object) -> None:
        if not isinstance(uri, str) or len(uri) > MAX_URI_CHARS:
            return
        links = self._by_caller.setdefault(caller_id, OrderedDict())
        links[uri] = server
        links.move_to_end(uri)
        self._by_caller.move_to_end(caller_id)
        if len(links) > MAX_PER_CALLER:
            links.popitem(last=False)
        if len(self._by_caller) > MAX_CALLERS:
            self._by_caller.popitem(last=False)
