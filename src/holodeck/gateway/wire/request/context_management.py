"""The field `context_management` of a request: when its context is compacted."""

from __future__ import annotations

from holodeck.gateway.wire.request.json_fields import JSONFields
from holodeck.lib.record import record

# As in OpenAI's API.
MIN_COMPACT_THRESHOLD = 1_000
# There is one kind of entry, so a second one could only contradict it.
MAX_ENTRIES = 1


@record
class ContextManagement:
    """A request to compact the context by itself when it has many tokens."""

    compact_threshold: int | None = None
    """Tokens beyond which it is compacted. None: the gateway decides."""


def read_context_management(fields: JSONFields) -> ContextManagement | None:
    """Read the field. None when it is missing or empty. Raises `BadRequestError`."""
    found = None
    for entry in fields.iter_objects("context_management", max_length=MAX_ENTRIES):
        if entry.get_choice("type", ("compaction",)) is None:
            entry.refuse_missing("type")
        found = ContextManagement(
            compact_threshold=entry.get_integer("compact_threshold", minimum=MIN_COMPACT_THRESHOLD)
        )
        entry.refuse_unread()
    return found
