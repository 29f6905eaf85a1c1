"""The form of every stored value of bytes, in both databases: a checksum in front, so that no changed byte is served.

A value is one byte for its form, the CRC-32 of the rest, and its bytes, as they are or compressed. A disk that changes
some bytes is noticed but for one case in four billion. It is no protection against an attacker: a
program that can write to the database can write a checksum as well.

Only streams are compressed, which are many times as long as their text. Other values are not: SQL measures them for
limits of memory, and their length in the database would say little about that.
"""

from __future__ import annotations

import zlib

from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import KIB

CHECK_BYTES = 5
"""Bytes that a value takes beside its own."""
COMPRESSED_FROM = 64 * KIB
"""Size from which a value is compressed where it may be. Less may be encoded and written on the event loop's thread."""
# The fastest: a stream of small pieces of text shrinks to less than a tenth at any level.
_LEVEL = 1

_PLAIN = 1
_COMPRESSED = 2


class DamagedValueError(StorageError):
    """A stored value is not as it was written. Its text names the record."""


def encode_value(data: bytes, *, may_compress: bool = False) -> bytes:
    """Return a value as it is stored. The same bytes always have the same form."""
    form = _PLAIN
    if may_compress and len(data) >= COMPRESSED_FROM:
        form, data = _COMPRESSED, zlib.compress(data, _LEVEL)
    return b"%c%b%b" % (form, zlib.crc32(data).to_bytes(4), data)


def decode_value(stored: object, record: str) -> bytes:
    """Return a value that was read. Raises `DamagedValueError`, and logs it, naming `record`."""
    if isinstance(stored, bytes) and len(stored) >= CHECK_BYTES:
        data = stored[CHECK_BYTES:]
        if zlib.crc32(data) == int.from_bytes(stored[1:CHECK_BYTES]):
            if stored[0] == _PLAIN:
                return data
            if stored[0] == _COMPRESSED:
                return zlib.decompress(data)
    log.error("storage.value_damaged", record=record)
    raise DamagedValueError(
        f"What is stored of '{record}' is damaged: its checksum is another. Restore a backup: see 'A damaged file' in "
        "docs/operate/backup-and-restore.md.",
        reason="a stored value is damaged",
    )


def encode_optional(data: bytes | None) -> bytes | None:
    """Return `encode_value` of a value that may be missing."""
    return None if data is None else encode_value(data)


def decode_optional(stored: object, record: str) -> bytes | None:
    """Return `decode_value` of a value that may be missing."""
    return None if stored is None else decode_value(stored, record)
