"""The sealed items of one request, opened before its input is read.

`SealedInput` belongs to one request. `open` first adds up the plain sizes that the items say they have, compares them
with what the request may have, and acquires them from the byte budget of the gateway; only then are they decrypted,
inflated and decoded, off the event loop unless they are small. `get` then answers from memory. An item that comes N
times counts N times and is opened once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from holodeck.gateway.sealing import REASONING_PURPOSE, BrokenSealError, Seal, is_sealed, plain_size
from holodeck.gateway.wire.compaction_item import COMPACTION_PURPOSE, decode_compaction
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.lib.off_loop import run_off_loop

_DECODERS: dict[str, Callable[[bytes], Any]] = {REASONING_PURPOSE: orjson.loads, COMPACTION_PURPOSE: decode_compaction}
"""By purpose, which is also the type of the items."""
_MAX_INLINE_BYTES = 64 * 1024  # decoded in a few milliseconds; a thread would take longer than a small one itself

Sealed = tuple[str, str]
"""A purpose and a sealed text."""


class SealedInput:
    """What the sealed items of one request say."""

    def __init__(self, seal: Seal, *, max_bytes: int, acquire: Callable[[int], None]) -> None:
        """`max_bytes`: plain bytes of all of them. `acquire`: takes bytes from the budget, or raises."""
        self._sizes: dict[str, int] = {}
        self._seal = seal
        self._max_bytes = max_bytes
        self._acquire = acquire
        self._contents: dict[Sealed, Any] = {}

    @property
    def size(self) -> int:
        """Plain bytes of everything that was opened."""
        return sum(self._sizes.values())

    async def open(self, entries: Iterable[object], *, param: str, other_bytes: int = 0) -> None:
        """Open what is sealed in these entries. What was opened for the same `param` before does not count any more.

        `param`: where in the request they stand. `other_bytes`: other bytes of its context. Raises `BadRequestError`
        (`context_too_long`), or what `acquire` raises, before anything is inflated. What does not open is left out,
        and refused by the reader of the input, which knows its path.
        """
        found = [sealed for entry in entries if (sealed := _find_sealed(entry)) is not None]
        size = sum(plain_size(text) or 0 for _, text in found)
        acquired = self._sizes.get(param, 0)
        self._sizes[param] = size
        if self.size + other_bytes > self._max_bytes:
            message = (
                f"The context is too long: with what its sealed items hold it is more than {self._max_bytes} bytes. "
                "Leave out earlier ones."
            )
            refuse(message, param, "context_too_long")
        if size > acquired:
            self._acquire(size - acquired)
        fresh = [sealed for sealed in dict.fromkeys(found) if sealed not in self._contents]
        if size + sum(len(text) for _, text in fresh) <= _MAX_INLINE_BYTES:
            self._contents |= self._decode(fresh)
        else:
            self._contents |= await run_off_loop(lambda: self._decode(fresh))

    def get(self, purpose: str, text: str) -> Any:
        """What a sealed text holds, decoded. None: it did not open for this caller."""
        return self._contents.get((purpose, text))

    def _decode(self, sealed: Iterable[Sealed]) -> dict[Sealed, Any]:
        contents = {}
        for purpose, text in sealed:
            try:
                content = self._seal.open(purpose, text)
            except BrokenSealError:
                continue
            contents[purpose, text] = _DECODERS[purpose](content)
        return contents


def _find_sealed(entry: object) -> Sealed | None:
    """The sealed text of an item, if it has one."""
    if not isinstance(entry, dict):
        return None
    purpose, text = entry.get("type"), entry.get("encrypted_content")
    if not isinstance(purpose, str) or purpose not in _DECODERS or not isinstance(text, str) or not is_sealed(text):
        return None
    return purpose, text
