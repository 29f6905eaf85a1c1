"""Encodes and decodes JSON-RPC messages, and finds the id of a message that cannot be decoded."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from holodeck.lib.json.parse import JSONLimitError, parse_deep_json
from holodeck.lib.limits import KIB

# Bytes of a malformed message that are parsed by the slow, tolerant parser to find its id.
MAX_SNIFFED_BYTES = 64 * KIB
# Messages of one batch, as protocol version 2025-03-26 allows: peers that batch at all send a few together.
MAX_BATCH_MESSAGES = 1_000

Message = dict[str, Any]
RequestId = int | str

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

_BOM = b"\xef\xbb\xbf"
_ID = rb'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")'
_ID_FIRST = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_ID_LINE = re.compile(rb"^(\s+)" + _ID + rb"\s*,?\s*$")


def encode(message: Message) -> bytes:
    """Encode a message as one line of UTF-8, without the line break."""
    try:
        return orjson.dumps(message)
    # Such as an integer over 64 bits.
    except (TypeError, orjson.JSONEncodeError):
        return encode_ascii(message)


def encode_ascii(message: Message) -> bytes:
    """Encode a message in ASCII, which is the same in every encoding that a server may be configured with."""
    return json.dumps(expand_fragments(message), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode(
        "ascii"
    )


def expand_fragments(value: Any) -> Any:
    """Replace `orjson.Fragment` by its value: only orjson can encode it."""
    if isinstance(value, dict):
        return {key: expand_fragments(item) for key, item in value.items()}
    if isinstance(value, orjson.Fragment):
        return orjson.loads(orjson.dumps(value))
    return value


def decode(raw: bytes | bytearray) -> Any:
    """Decode a message or a batch: JSON in UTF-8, with or without a byte order mark.

    Raises `ValueError`, and its subclass `JSONLimitError` for one with too many values or messages.
    """
    # Not `removeprefix`, which copies the array of a large answer.
    message = parse_deep_json(raw.removeprefix(_BOM))
    if type(message) is list and len(message) > MAX_BATCH_MESSAGES:
        raise JSONLimitError(f"a batch of more than {MAX_BATCH_MESSAGES} messages")
    return message


def build_cancellation(request_id: RequestId, reason: str) -> Message:
    """Build the notification that the answer to a request is no longer needed."""
    params = {"requestId": request_id, "reason": reason}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def build_error_response(request_id: RequestId | None, code: int, message: str, data: Any = None) -> Message:
    """Build the answer to a request that is refused. `data` None: the error has none."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def sniff_id(head: bytes, tail: bytes = b"") -> RequestId | None:
    """Return the id of an answer that cannot be decoded, or None unless it is certain that the id is the answer's own.

    `tail`: the end of a message of which only `head` and `tail` are known.
    """
    if not tail and len(head) <= MAX_SNIFFED_BYTES:
        found = _sniff_thoroughly(head)
        if found is not None:
            return found
    match = _ID_FIRST.search(head) or _ID_LAST.search(tail or head[-MAX_SNIFFED_BYTES:])
    return _parse_request_id(match.group(1)) if match else None


class PrettyPrintedAnswer:
    """Recognises an answer that is spread over several lines, from its first lines."""

    def __init__(self) -> None:
        self._is_open = False
        self._indent = b""

    def find_id(self, line: bytes) -> RequestId | None:
        """Feed the next line. Returns the id if this line has it."""
        if line.rstrip() == b"{":
            self._is_open, self._indent = True, b""
            return None
        if not self._is_open:
            return None
        indent = line[: len(line) - len(line.lstrip())]
        if not indent:
            self._is_open = False
            return None
        self._indent = self._indent or indent
        match = _ID_LINE.match(line)
        if match is None or match.group(1) != self._indent:
            return None
        self._is_open = False
        return _parse_request_id(match.group(2))


def _sniff_thoroughly(raw: bytes) -> RequestId | None:
    """Parse with the standard library, which accepts lone surrogates; invalid bytes are replaced."""
    try:
        message = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    found = message.get("id") if isinstance(message, dict) and "method" not in message else None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def _parse_request_id(raw: bytes) -> RequestId | None:
    try:
        found = json.loads(raw.decode("utf-8", "replace"))
    except ValueError:
        return None
    return found if isinstance(found, int | str) else None
