"""Parsing of untrusted JSON with a limit on its depth, and an estimate of the memory that it will take."""

from __future__ import annotations

from typing import Any

import orjson

# Levels of nesting of a body, a message or arguments. Real schemas nest 20 deep, perhaps 40.
MAX_JSON_DEPTH = 100
# Levels that orjson writes; it reads 1,024. Parsed values are written again a dozen levels down, in events and records.
_WRITABLE_DEPTH = 254
# Bytes counted for each object and array besides their text: each takes hundreds of bytes, even an empty one.
_OBJECT_BYTES, _ARRAY_BYTES = 80, 12
# Share of its length counted in addition for a text with a 4-byte character: Python then stores all of it as 4 bytes.
_WIDE_SHARE = 0.6
# The first byte of such a character in UTF-8; as an escape it begins with a high surrogate.
_WIDE_BYTE = b"\xf0"


class TooDeepError(ValueError):
    """The value is nested deeper than `MAX_JSON_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_JSON_DEPTH} levels")


def parse_json(text: bytes | str) -> Any:
    """Parse JSON text of a client, a model or a server.

    Raises `ValueError` for text that is not JSON, and its subclass `TooDeepError`: a value that can be read but not
    written again would fail much later, in the middle of a run.
    """
    value = orjson.loads(text)
    levels = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if levels > MAX_JSON_DEPTH:
        _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Have orjson write the value inside so many lists that exactly `MAX_JSON_DEPTH` levels remain for it.

    A walk in Python over a body of 32 MB would block the event loop for seconds.
    """
    for _ in range(_WRITABLE_DEPTH - MAX_JSON_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise TooDeepError from None


def parsed_weight(text: bytes) -> int:
    """Return the bytes to count for JSON text besides its length, so that parsed it takes about eight times the count.

    Measured with whole requests: plain text takes eight times its size, text with an emoji 12, content parts of one
    character 27, and empty objects 56. Costs a scan of the text.
    """
    # Written out: the generator of `any` costs several times the scans of a small body.
    wide = _WIDE_BYTE in text or b"\\ud" in text or b"\\uD" in text
    containers = text.count(b"{") * _OBJECT_BYTES + text.count(b"[") * _ARRAY_BYTES
    return containers + (int(len(text) * _WIDE_SHARE) if wide else 0)
