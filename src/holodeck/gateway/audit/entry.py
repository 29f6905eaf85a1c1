"""One line of an audit log: its fields, its canonical bytes and its hash.

A line is a JSON object. `seq` is first, `prev` and `hash` are last. `hash` is the HMAC-SHA256, in hexadecimal, of the
text of `prev` followed by the canonical bytes of all other fields: JSON in UTF-8 with sorted keys and without spaces.
`prev` is the hash of the line before, or `FIRST_PREV` in the first line of a chain. So no line can be changed, removed,
moved or inserted without a change of every later hash, and nothing without the key can compute one.

Keys come as a sequence: lines are written with the first one, and one of any of them is genuine, because the operator
can replace the key.

Values are texts, integers and booleans: arguments and results are texts that hold JSON. Numbers with a fraction would
have several canonical forms.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from holodeck.lib.record import record

FIRST_PREV = "0" * 64
"""The `prev` of the first line of a chain."""

Door = Literal["responses", "chat_completions", "messages", "mcp", "other"]
"""The API by which a request came."""
Decision = Literal["not_needed", "asked", "approved", "refused"]
Outcome = Literal["ok", "tool_error", "failed", "unknown", "refused", "withheld", "out_of_scope"]
"""How a call ended.

`tool_error`: the tool reported an error. `failed`: the call did not reach the tool, or its answer could not be used.
`unknown`: the tool may have run. `refused`: a rule or a person did not let it run. `withheld`: the tool differs from
the definition that was offered or locked. `out_of_scope`: the caller may not use the tool.
"""
START, STOP, ROTATED, RECOVERED = "start", "stop", "rotated", "recovered"
KEY_CHANGED, END_MISSING = "key_changed", "end_missing"
TOOL_CALL, TOOL_RESULT, TAKEN_OVER = "tool_call", "tool_result", "taken_over"
APPROVAL_REQUESTED, APPROVAL_DECIDED, AUTH_REFUSED = "approval_requested", "approval_decided", "auth_refused"
ELICITATION_ANSWERED = "elicitation_answered"
OPERATOR_REQUEST, LOGIN_FINISHED = "operator_request", "login_finished"
LOGGED_IN, LOGGED_OUT = "logged_in", "logged_out"
RELOADED, RELOAD_REFUSED = "reloaded", "reload_refused"

_HASH = re.compile(r"[0-9a-f]{64}")

Fields = Mapping[str, object]
"""The fields of a line in their order, without `seq`, `prev` and `hash`."""


@record
class ChainPosition:
    """The end of a chain: the number and the hash of its last line."""

    seq: int = 0
    hash: str = FIRST_PREV


def encode_line(fields: Fields, after: ChainPosition, key: bytes) -> tuple[bytes, ChainPosition]:
    """Return the line that follows `after`, with its newline, and the end of the chain with it."""
    numbered = {"seq": after.seq + 1, **fields}
    digest = hash_fields(numbered, after.hash, key)
    line = encode_json({**numbered, "prev": after.hash, "hash": digest}) + b"\n"
    return line, ChainPosition(seq=after.seq + 1, hash=digest)


def decode_line(line: bytes, keys: Sequence[bytes]) -> dict[str, Any] | None:
    """Return the fields of a line that is unchanged since it was written, without its newline.

    None for any other text.
    """
    fields = parse_line(line)
    if fields is None:
        return None
    rest = {key: value for key, value in fields.items() if key not in ("prev", "hash")}
    is_genuine = any(hmac.compare_digest(hash_fields(rest, fields["prev"], key), fields["hash"]) for key in keys)
    return fields if is_genuine else None


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the fields of a text that has the form of a line, genuine or not. None for any other text.

    The bytes must be those that `encode_line` writes: a line with a key twice would be read in two ways.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or list(fields)[-2:] != ["prev", "hash"] or not isinstance(fields.get("seq"), int):
        return None
    has_hashes = all(isinstance(fields[name], str) and _HASH.fullmatch(fields[name]) for name in ("prev", "hash"))
    return fields if has_hashes and encode_json(fields) == line else None


def position_of(fields: Mapping[str, Any]) -> ChainPosition:
    """Return the end of the chain at a decoded line."""
    return ChainPosition(seq=fields["seq"], hash=fields["hash"])


def hash_fields(fields: Fields, prev: str, key: bytes) -> str:
    """Return the hash of a line with these fields after the line with the hash `prev`."""
    return hmac.digest(key, prev.encode() + encode_canonical_json(fields), "sha256").hex()


def hash_arguments(arguments: object) -> str:
    """Return the SHA-256 of the canonical JSON of arguments, in hexadecimal."""
    return hashlib.sha256(encode_canonical_json(arguments)).hexdigest()


def encode_json(value: object) -> bytes:
    # "replace": half a surrogate pair, which a model can write as an escape, has no form in UTF-8.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def encode_canonical_json(value: object) -> bytes:
    """Encode JSON in UTF-8 with sorted keys and without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8", "replace")


def format_now() -> str:
    """Return the time as lines have it: RFC 3339 in UTC with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
