"""The names of the tools that the model was offered in each turn of a run, as the trace of the run stores them.

A list is stored once for all turns in a row that had it, as JSON, and turns refer to it by its number. The names of a
tuple of tools are encoded once, as long as the runs that follow offer the same tuple.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate

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
    """The lists of one run. Their names are encoded when the trace is."""

    def __init__(self, toolbox: Toolbox, allowed: Collection[str] | None, names: ToolNames) -> None:
        """`allowed`: the names that the tool choice of the request leaves. None: all."""
        self._toolbox = toolbox
        self._allowed = allowed
        self._names = names
        self._stored: list[bytes] = []
        """The lists of an earlier process, encoded."""
        self._lists: list[Specs] = []

    def find_number(self) -> int:
        """The number of the list that is offered now, which is added if it differs from the one before."""
        specs, lists = self._toolbox.offered, self._lists
        if not lists or lists[-1] is not specs:
            lists.append(specs)
        return len(self._stored) + len(lists) - 1

    def to_json(self) -> list[orjson.Fragment | None]:
        """The lists by their numbers. None in place of those that make them longer than `MAX_LISTS_BYTES`."""
        encoded = [*self._stored, *map(self._encode, self._lists)]
        sizes = accumulate(map(len, encoded))
        listed = zip(encoded, sizes, strict=True)
        return [orjson.Fragment(each) if size <= MAX_LISTS_BYTES else None for each, size in listed]

    def restore(self, stored: Iterable[Sequence[str] | None]) -> None:
        """Begin with the lists that an earlier process has stored."""
        self._stored = [orjson.dumps(each) for each in stored]

    def _encode(self, specs: Specs) -> bytes:
        if not self._allowed:
            return self._names.encode(specs)
        return orjson.dumps([spec.name for spec in specs if spec.name in self._allowed])
