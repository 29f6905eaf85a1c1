"""The names of the tools that the model was offered in each turn of a run, as the trace of the run stores them.

Each different list is stored once, as JSON, and turns refer to it by its number. The names of a tuple of tools are
encoded once, as long as the runs that follow offer the same tuple.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import orjson

from holodeck.models.model_io import ToolSpec
from holodeck.tools.toolbox import Toolbox

Specs = tuple[ToolSpec, ...]

# Bytes of all lists of one run, which are stored with its response. Names of some thousand tools.
MAX_LISTS_BYTES = 32_768
# Tuples whose names are remembered: each backend offers its own, and each scope of callers another one.
MAX_REMEMBERED = 100


class ToolNames:
    """Encodes the names of tools, for all runs of a gateway."""

    def __init__(self) -> None:
        self._encoded: dict[int, tuple[Specs, bytes]] = {}
        """By the identity of the tuple, which is remembered with it so that no other one can have the same."""

    def encode(self, specs: Specs) -> bytes:
        """The names, as a JSON array."""
        known = self._encoded.get(id(specs))
        if known is not None:
            return known[1]
        if len(self._encoded) >= MAX_REMEMBERED:
            self._encoded.clear()
        encoded = orjson.dumps([spec.name for spec in specs])
        self._encoded[id(specs)] = (specs, encoded)
        return encoded


class OfferedTools:
    """The lists of one run."""

    def __init__(self, toolbox: Toolbox, allowed: Collection[str] | None, names: ToolNames) -> None:
        """`allowed`: the names that the tool choice of the request leaves. None: all."""
        self._toolbox = toolbox
        self._allowed = allowed
        self._names = names
        self._specs: Specs | None = None
        self._number: int | None = None
        self._lists: list[bytes] = []
        self._size = 0
        """Bytes of the lists, and of those that were too many."""

    def find_number(self) -> int | None:
        """The number of the list that is offered now, which is added if it is new. None: there are too many."""
        specs = self._toolbox.offered
        if specs is not self._specs:
            self._specs, self._number = specs, self._add(self._encode(specs))
        return self._number

    def to_json(self) -> list[orjson.Fragment]:
        """The lists by their numbers."""
        return [orjson.Fragment(each) for each in self._lists]

    def restore(self, stored: Iterable[Sequence[str]]) -> None:
        """Begin with the lists that an earlier process has stored."""
        self._lists = [orjson.dumps(each) for each in stored]
        self._size = sum(map(len, self._lists))

    def _encode(self, specs: Specs) -> bytes:
        if not self._allowed:
            return self._names.encode(specs)
        return orjson.dumps([spec.name for spec in specs if spec.name in self._allowed])

    def _add(self, encoded: bytes) -> int | None:
        if encoded in self._lists:
            return self._lists.index(encoded)
        self._size += len(encoded)
        if self._size > MAX_LISTS_BYTES:
            return None
        self._lists.append(encoded)
        return len(self._lists) - 1
