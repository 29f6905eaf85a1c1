"""The entries of a gateway's audit log, as its operator reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

AUDIT_FILE = "audit.jsonl"
# Fields that differ from one call to the next.
CHANGING_FIELDS = frozenset(
    {"seq", "time", "request_id", "response_id", "call_id", "duration_ms", "prev", "hash", "door"}
)


def read_audit(folder: Path, *events: str) -> list[dict[str, Any]]:
    """The entries of the audit log in a folder; of these events, or of all."""
    lines = (folder / AUDIT_FILE).read_bytes().splitlines()
    entries = [orjson.loads(line) for line in lines]
    return [entry for entry in entries if not events or entry["event"] in events]


def without_changing_fields(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in CHANGING_FIELDS}
