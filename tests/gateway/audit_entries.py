"""The entries of a gateway's audit log, as its operator reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from holodeck.gateway.audit.entry import ChainPosition
from holodeck.gateway.audit.verify import Verification, verify_files
from holodeck.gateway.sealing import AUDIT_PURPOSE, SealKeys

AUDIT_FILE = "audit.jsonl"
SEAL_KEY = "the-seal-key-of-a-gateway-in-tests-0815"
"""For gateways without a database of their own, beside which a key would be made."""
# Fields that differ from one call to the next.
CHANGING_FIELDS = frozenset(
    {"seq", "time", "request_id", "response_id", "call_id", "duration_ms", "prev", "hash", "door"}
)


def read_audit(folder: Path, *events: str) -> list[dict[str, Any]]:
    """The entries of the audit log in a folder; of these events, or of all."""
    lines = (folder / AUDIT_FILE).read_bytes().splitlines()
    entries = [orjson.loads(line) for line in lines]
    return [entry for entry in entries if not events or entry["event"] in events]


def verify_audit(folder: Path, *names: str, stored_end: ChainPosition | None = None) -> Verification:
    """Verify the audit log in a folder with the keys that its gateway may have."""
    made = folder / "holodeck.db.key"
    secrets = [SEAL_KEY.encode(), *([made.read_bytes()] if made.exists() else [])]
    keys = SealKeys(secrets).derive_mac_keys(AUDIT_PURPOSE)
    return verify_files([folder / name for name in names or (AUDIT_FILE,)], keys=keys, stored_end=stored_end)


def without_changing_fields(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in CHANGING_FIELDS}
