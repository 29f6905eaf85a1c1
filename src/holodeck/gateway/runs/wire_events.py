"""The wire events of one run, in memory: for readers that come later, and for storage.

An answer of a megabyte in small pieces is a stream of 14 MB, of which nearly all is repetition. So the older events
are compressed in packs; what readers are about to read is not.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

# Events of a pack: about 30 kB, which take a fraction of a millisecond.
PACK_EVENTS = 128
# Of zlib, the fastest: a pack shrinks to less than a tenth at any level.
_LEVEL = 1


class WireEvents:
    """An append-only list of events, of which the last ones can be taken back. An event contains no line break."""

    __slots__ = ("_packs", "_recent")

    def __init__(self, events: Iterable[bytes] = ()) -> None:
        self._packs: list[bytes] = []
        self._recent: list[bytes] = []
        self.extend(events)

    def __len__(self) -> int:
        return len(self._packs) * PACK_EVENTS + len(self._recent)

    def __iter__(self) -> Iterator[bytes]:
        return chain(chain.from_iterable(map(_unpack, self._packs)), self._recent)

    def extend(self, events: Iterable[bytes]) -> None:
        """Append events. A pack is made of the oldest ones once as many newer ones are there."""
        self._recent += events
        while len(self._recent) >= 2 * PACK_EVENTS:
            self._packs.append(zlib.compress(b"\n".join(self._recent[:PACK_EVENTS]), _LEVEL))
            del self._recent[:PACK_EVENTS]

    def read(self, position: int) -> list[bytes]:
        """Return the events from `position` on; where they are many, only the first of them."""
        pack, offset = divmod(position, PACK_EVENTS)
        if pack < len(self._packs):
            return _unpack(self._packs[pack])[offset:]
        return self._recent[position - len(self._packs) * PACK_EVENTS :]

    def remove_last(self, count: int) -> None:
        """Take back the last `count` events."""
        while count > len(self._recent) and self._packs:
            self._recent[:0] = _unpack(self._packs.pop())
        del self._recent[len(self._recent) - count :]

    def copy(self) -> WireEvents:
        copied = WireEvents()
        copied._packs, copied._recent = list(self._packs), list(self._recent)
        return copied

    def join(self) -> bytes:
        """Return all events, one per line."""
        recent = (b"\n".join(self._recent),) if self._recent else ()
        return b"\n".join((*map(zlib.decompress, self._packs), *recent))


def _unpack(pack: bytes) -> list[bytes]:
    return zlib.decompress(pack).split(b"\n")
