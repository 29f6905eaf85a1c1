"""The body of `POST /v1/responses/compact`, and the resource that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.gateway.wire.compaction import fold
from holodeck.gateway.wire.fields import Fields
from holodeck.gateway.wire.input import read_input
from holodeck.gateway.wire.reading import Find, Input, ToolName, nothing_stored, plain_name
from holodeck.gateway.wire.request import TIERS
from holodeck.gateway.wire.resource import show_usage
from holodeck.gateway.wire.seal import Seal
from holodeck.gateway.wire.sealed_input import SealedInput
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_IDENTIFIER_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.models.items import Item, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactRequest:
    """What shall be folded."""

    model: str
    input: Input
    previous_response_id: str | None = None
    instructions: str | None = None


def read_compact(
    body: object,
    *,
    sealed: SealedInput | None = None,
    find: Find = nothing_stored,
    tool_name: ToolName = plain_name,
) -> CompactRequest:
    """Raises `BadRequestError`."""
    fields = Fields(body)
    given, previous = fields.take("input"), fields.text("previous_response_id")
    model = fields.required("model", may_be_empty=False)
    if given is None and previous is None:
        fields.missing("input")
    fields.text("prompt_cache_key", longest=MAX_IDENTIFIER_CHARS)  # there is no cache that it could name
    fields.refuse_given(
        "This gateway has no prompt cache of its own.", "prompt_cache_retention", "prompt_cache_options"
    )
    fields.refuse_given("This gateway does not have it.", "image")
    fields.choice("service_tier", TIERS)  # no model is asked
    instructions = fields.text("instructions", longest=MAX_INPUT_TEXT_CHARS)
    fields.done()
    return CompactRequest(
        model=model,
        input=Input() if given is None else read_input(given, find=find, tool_name=tool_name, sealed=sealed),
        previous_response_id=previous,
        instructions=instructions,
    )


def compacted(items: Sequence[Item], *, seal: Seal, created_at: float, usage: Usage) -> dict[str, Any]:
    """The whole conversation as one item: a client sends it back instead of everything that it stands for."""
    return {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": int(created_at),
        "output": [fold(items, seal)],
        "usage": show_usage(usage),
    }
