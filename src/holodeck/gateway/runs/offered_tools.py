"""The names of the tools that the model was offered in each turn of a run, as the trace of the run stores them.

Each different list is stored once, as JSON, and turns refer to it by its number. The names of the tools of a backend
are encoded once for all runs, as long as these offer the same tuple of tools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import orjson

from holodeck.models.model_io import ToolSpec

Specs = tuple[ToolSpec, ...]

# Bytes of all lists of one run. A server may have thousands of tools, and other ones after each call.
MAX_LISTS_BYTES = 262_144


class ToolNames:
    """Encodes the names of tools. Remembers those of the latest tuple of each backend."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[Specs, bytes]] = {}

    def encode(self, backend: str, specs: Specs) -> bytes:
        latest = self._latest.get(backend)
        if latest is not None and latest[0] is specs:
            return latest[1]
        encoded = encode_names(specs)
        self._latest[backend] = (specs, encoded)
        return encoded


def encode_names(specs: Iterable[ToolSpec]) -> bytes:
    """The names of tools, as a JSON array."""
    return orjson.dumps([spec.name for spec in specs])


class OfferedTools:
    """The lists of one run. `get_specs` returns the tools that are offered now."""

    def __init__(self, get_specs: Callable[[], Specs], encode: Callable[[Specs], bytes] = encode_names) -> None:
        self._get_specs = get_specs
        self._encode = encode
        self._specs: Specs | None = None
        self._number: int | None = None
        self._lists: list[bytes] = []

    def find_number(self) -> int | None:
        """The number of the list that is offered now, which is added if it is new. None: there are too many."""
        specs = self._get_specs()
        if specs is not self._specs:
            self._specs, self._number = specs, self._add(self._encode(specs))
        return self._number

    def to_json(self) -> list[orjson.Fragment]:
        """The lists by their numbers."""
        return [orjson.Fragment(each) for each in self._lists]

    def restore(self, stored: Iterable[Sequence[str]]) -> None:
        """Begin with the lists that an earlier process has stored."""
        self._lists = [orjson.dumps(each) for each in stored]

    def _add(self, encoded: bytes) -> int | None:
        if encoded in self._lists:
            return self._lists.index(encoded)
        if sum(map(len, self._lists)) + len(encoded) > MAX_LISTS_BYTES:
            return None
        self._lists.append(encoded)
        return len(self._lists) - 1
