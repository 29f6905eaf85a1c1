"""Ids that belong together: one call is `fc_x` to the engine, `mcp_x` and `mcpr_x` on the wire."""

from __future__ import annotations

import re

from holodeck.models.items import FunctionCall

# Of an id that a model gives to one call only; shorter ones are numbers.
MIN_UNIQUE_ID_CHARS = 9


def _id_stem(item_id: str) -> str:
    return item_id.partition("_")[2] or item_id


def stem_of(call: FunctionCall) -> str:
    """What is the same in all ids of a call, whichever form it came back in."""
    return _id_stem(call.id or call.call_id)


def mcp_call_id(call: FunctionCall) -> str:
    return f"mcp_{stem_of(call)}"


def approval_id(call: FunctionCall) -> str:
    """The id of the request for approval of exactly this call."""
    return f"mcpr_{stem_of(call)}"


def mcp_id_of(wire_id: str) -> str:
    """The id of a call at a server, from that of the request for its approval."""
    return f"mcp_{_id_stem(wire_id)}"


def custom_id_of(item_id: str) -> str:
    """The id of a call of a tool that takes text, from the engine's."""
    return f"ctc_{_id_stem(item_id)}"


def search_id_of(item_id: str) -> str:
    """The id of a search for tools, from the engine's."""
    return f"tsc_{_id_stem(item_id)}"


def item_id_of(wire_id: str) -> str:
    """The engine's id of a call that the wire shows under another."""
    return f"fc_{_id_stem(wire_id)}"


def is_unique(call_id: str) -> bool:
    """Whether an id that a model gave is one call's alone; there are models that number them, or name a function."""
    return len(re.split("[^0-9A-Za-z]", call_id)[-1]) >= MIN_UNIQUE_ID_CHARS


def call_id_of(wire_id: str) -> str:
    """A call id for a call that came back without one."""
    return f"call_{_id_stem(wire_id)}"
