"""Ids of one call in its different forms: `fc_x` in the engine, `mcp_x`, `mcpr_x`, `ctc_x` and others on the wire.

The stem `x` is the same in all of them, so that each id can be derived from any other.
"""

from __future__ import annotations

import re
from hashlib import sha256

from holodeck.models.items import FunctionCall

# As many digits as a new id has.
_DERIVED_DIGITS = 40
# Shortest random part of a call id that a model uses only once. Shorter ones are counters or names.
MIN_UNIQUE_ID_CHARS = 9


def stem_of(call: FunctionCall) -> str:
    """Return the stem of a call's ids, which is the same in every form that a client may send back."""
    return id_stem(call.id or call.call_id)


def mcp_call_id(call: FunctionCall) -> str:
    return f"mcp_{stem_of(call)}"


def approval_id(call: FunctionCall) -> str:
    """Return the id of the approval request of this call."""
    return f"mcpr_{stem_of(call)}"


def mcp_id_of(wire_id: str) -> str:
    """Return the id of an `mcp_call` item, from the id of its approval request."""
    return f"mcp_{id_stem(wire_id)}"


def custom_id_of(item_id: str) -> str:
    """Return the id of a `custom_tool_call` item, from the engine's id."""
    return f"ctc_{id_stem(item_id)}"


def search_id_of(item_id: str) -> str:
    """Return the id of a `tool_search_call` item, from the engine's id."""
    return f"tsc_{id_stem(item_id)}"


def action_id_of(item_id: str, prefix: str) -> str:
    """Return the id of the item of an action tool, from the engine's id."""
    return f"{prefix}_{id_stem(item_id)}"


def item_id_of(wire_id: str) -> str:
    """Return the engine's id of a call, from its id on the wire."""
    return f"fc_{id_stem(wire_id)}"


def derive_id(prefix: str, *sources: str) -> str:
    """Return the id of an item without one in the engine. A process that writes it again gives it the same one."""
    return f"{prefix}_{sha256(' '.join(sources).encode(errors='replace')).hexdigest()[:_DERIVED_DIGITS]}"


def is_unique(call_id: str) -> bool:
    """Return False for a call id that a model may use again: some number calls, or use the function's name."""
    return len(re.split("[^0-9A-Za-z]", call_id)[-1]) >= MIN_UNIQUE_ID_CHARS


def call_id_of(wire_id: str) -> str:
    """Return the call id for an item that has none, from its id on the wire."""
    return f"call_{id_stem(wire_id)}"


def id_stem(item_id: str) -> str:
    """Return the stem of an id in any form."""
    return item_id.partition("_")[2] or item_id
