"""JSON from outside: bounded in depth, and weighed before it is parsed."""

from __future__ import annotations

from typing import Any

import orjson

# Of a body, a message, arguments; schemas that are in use nest 20 deep, perhaps 40.
MAX_JSON_DEPTH = 100


_WRITABLE_DEPTH = 254
"""Levels that orjson writes; it reads 1,024. What comes is written again a dozen levels down, in events and records."""


_OBJECT_BYTES, _ARRAY_BYTES = 80, 12
"""What an object and an array weigh beside their text: each takes hundreds of bytes, however little is in it."""
_WIDE_SHARE = 0.6
"""Of a text in which a character needs four bytes: then all of them take four."""
_WIDE_MARKS = (b"\xf0", b"\\ud", b"\\uD")  # the first byte of such a character, and its first half as an escape


class TooDeepError(ValueError):
    """The value is nested deeper than `MAX_JSON_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_JSON_DEPTH} levels")


def parse_json(text: bytes | str) -> Any:
    """The value of JSON text that a client, a model or a server has written.

    Raises `ValueError` for text that is no JSON, and its `TooDeepError`: a value that can be read but not written
    again would end a request much later, in the middle of something else.
    """
    value = orjson.loads(text)
    levels = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if levels > MAX_JSON_DEPTH:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Let orjson find out: it writes the value so far down that just `MAX_JSON_DEPTH` levels are left for it.

    A walk over a body of 32 MB would hold the event loop for seconds.
    """
    for _ in range(_WRITABLE_DEPTH - MAX_JSON_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise TooDeepError from None


def parsed_weight(text: bytes) -> int:
    """Bytes to count for JSON text beside its length, so that what it is parsed to takes eight times what was counted.

    Measured with whole requests: text alone takes eight times its size, one with an emoji in it 12, content parts of
    one character 27, and empty objects 56. Costs a scan of the text.
    """
    wide = any(mark in text for mark in _WIDE_MARKS)
    containers = text.count(b"{") * _OBJECT_BYTES + text.count(b"[") * _ARRAY_BYTES
    return containers + (int(len(text) * _WIDE_SHARE) if wide else 0)
