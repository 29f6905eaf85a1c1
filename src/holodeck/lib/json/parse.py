"""Parsing of untrusted JSON with limits on its values and its depth, and an estimate of the memory that it will take.

The one door for JSON of clients, models, MCP servers, identity providers and files. `orjson.loads` and `json.loads`
are left to what this program wrote itself; a test lists the modules that use them.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import orjson

from holodeck.lib.limits import KIB

# Values of one text: more than the schemas of all tools of a server may have (500,000), three times what 10,000 items
# of a conversation have, and twice the 300,000 tokens of the largest embeddings request. As objects they take some
# 90 MB and 30 ms; later passes in Python are the greater cost. Not in proportion to the length: however long a text is,
# the event loop waits for all of it.
MAX_JSON_VALUES = 600_000
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
# Quotes between which blobs are searched, and the bytes of one that is worth it.
_SEARCHED_QUOTES, _BLOB_BYTES = 200, 64 * KIB

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TEXT_STRING, _BYTES_STRING = re.compile(_STRING, re.DOTALL), re.compile(_STRING.encode(), re.DOTALL)


class JSONLimitError(ValueError):
    """The text may be JSON, but is over a limit. Its message is what follows "The text is ..."."""


class TooDeepError(JSONLimitError):
    """The value is nested deeper than `MAX_JSON_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {MAX_JSON_DEPTH} levels")


class TooManyValuesError(JSONLimitError):
    """The text has more than `MAX_JSON_VALUES` values."""

    def __init__(self) -> None:
        super().__init__(f"made of more than {MAX_JSON_VALUES} values")


def parse_json(text: bytes | bytearray | str) -> Any:
    """Parse JSON text of a client, a model or a server.

    Raises `ValueError` for text that is not JSON, and its subclass `JSONLimitError`. A value that is nested too deep
    could be read, but not written again: it would fail much later, in the middle of a run.
    """
    value = parse_deep_json(text)
    levels = text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if levels > MAX_JSON_DEPTH:
        _check_depth(value)
    return value


def parse_deep_json(text: bytes | bytearray | str) -> Any:
    """Parse JSON as `parse_json` does, up to the 1,024 levels that the parser reads.

    For a message with parts that are judged one by one, so that one tool with a deep schema does not cost all others.
    """
    if len(text) > MAX_JSON_VALUES:
        check_value_count(text)
    return orjson.loads(text)


def parse_exact_json(text: str) -> Any:
    """Parse JSON with its decimals as they are written: the other functions read different large numbers as the same.

    Raises `ValueError` and `RecursionError`.
    """
    check_value_count(text)
    return json.loads(text, parse_float=Decimal)


def check_value_count(text: bytes | bytearray | str) -> None:
    """Raise `TooManyValuesError`, for a parser that builds objects next. Costs two scans of a long text at most."""
    # Every value has a byte of its own, so that a shorter text cannot have as many.
    if len(text) > MAX_JSON_VALUES and not _is_mostly_blob(text) and _count_marks(text) >= MAX_JSON_VALUES:
        # Exact: marks inside of strings, such as the commas of a text, begin no value.
        bare = _TEXT_STRING.sub("", text) if isinstance(text, str) else _BYTES_STRING.sub(b"", text)
        if _count_marks(bare) >= MAX_JSON_VALUES:
            raise TooManyValuesError


def _is_mostly_blob(text: bytes | bytearray | str) -> bool:
    """Return whether long runs without a mark, such as base64, leave too few bytes for as many values.

    Finding one byte is ten times as fast as counting. Looks between the first quotes only: one blob is the usual case.
    """
    quote: Any = '"' if isinstance(text, str) else b'"'
    marks: Any = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    rest, start = len(text), 0
    for _ in range(_SEARCHED_QUOTES):
        end = text.find(quote, start)
        if end < 0:
            break
        if end - start > _BLOB_BYTES and all(text.find(mark, start, end) < 0 for mark in marks):
            rest -= end - start
            if rest <= MAX_JSON_VALUES:
                return True
        start = end + 1
    return False


def _count_marks(text: bytes | bytearray | str) -> int:
    """Count what can begin a value, besides the first one. An empty object or array counts as two: it takes as much."""
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{")
    return text.count(b",") + text.count(b"[") + text.count(b"{")


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
