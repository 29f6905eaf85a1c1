"""The form of every stored value of bytes, in both databases: a checksum in front, so that no changed byte is served.

A value is one byte for its form, the CRC-32 of the rest, and its bytes: as they are, compressed, or without what they
share with another value of the same record, its base, which is a dictionary for zlib. A disk that changes
some bytes is noticed but for one case in four billion. It is no protection against an attacker: a
program that can write to the database can write a checksum as well.

Streams are compressed, which are many times as long as their text, and what is returned of a response has its items as
its base. Other values are not compressed: SQL measures them for limits of memory, and their length in the database
would say little about that.
"""

from __future__ import annotations

import zlib
from contextlib import suppress

from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import KIB

CHECK_BYTES = 5
"""Bytes that a value takes beside its own."""
INLINE_BYTES = 64 * KIB
"""Size up to which a record may be encoded and written on the event loop's thread."""
# Size from which a value is compressed where it may be: writing the bytes to two files costs more than that.
_COMPRESSED_FROM = 1 * KIB
# Sizes between which a value is stored without what its base has. A shorter one gains too little. zlib sees 32 KiB
# back, and a longer one that shares nothing with its base would take too long.
_MIN_BASED = 256
_MAX_BASED = 16 * KIB
# Size of a value with its base up to which zlib gets a small window: to clear the memory of the largest one costs more
# than all the rest.
_SMALL_WINDOW = 8 * KIB
# The fastest: a stream of small pieces of text shrinks to less than a tenth at any level.
_LEVEL = 1

# One changed bit makes none of them another one: the checksum does not cover the form.
_PLAIN = 1
_COMPRESSED = 2
_BASED = 4


class DamagedValueError(StorageError):
    """A stored value is not as it was written. Its text names the record."""


def encode_value(data: bytes, *, may_compress: bool = False, base: bytes = b"") -> bytes:
    """Return a value as it is stored. The same bytes, with the same base, always have the same form.

    `base`: bytes that `decode_value` gets again.
    """
    form = _PLAIN
    if may_compress and len(data) >= _COMPRESSED_FROM:
        form, data = _COMPRESSED, zlib.compress(data, _LEVEL)
    elif base and _MIN_BASED <= len(data) <= _MAX_BASED:
        is_small = len(base) + len(data) <= _SMALL_WINDOW
        bits, memory = (13, 5) if is_small else (zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL)
        encoder = zlib.compressobj(_LEVEL, zlib.DEFLATED, bits, memory, zdict=base)
        form, data = _BASED, encoder.compress(data) + encoder.flush()
    return b"%c%b%b" % (form, zlib.crc32(data).to_bytes(4), data)


def decode_value(stored: object, record: str, *, base: bytes = b"") -> bytes:
    """Return a value that was read. Raises `DamagedValueError`, and logs it, naming `record`."""
    if isinstance(stored, bytes) and len(stored) >= CHECK_BYTES:
        data = stored[CHECK_BYTES:]
        if zlib.crc32(data) == int.from_bytes(stored[1:CHECK_BYTES]):
            if stored[0] == _PLAIN:
                return data
            if stored[0] == _COMPRESSED:
                return zlib.decompress(data)
            if stored[0] == _BASED:
                # `zlib.error`: its base is another one.
                with suppress(zlib.error):
                    return zlib.decompressobj(zdict=base).decompress(data)
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
