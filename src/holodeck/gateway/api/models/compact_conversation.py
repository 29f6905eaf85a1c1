"""The body of a request to compact a conversation, without the options that it accepts without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from holodeck.gateway.api.field_rows import NOT_SUPPORTED, done_row, no_effect_row, refused_row
from holodeck.gateway.api.model import APIModel, LongText, declare_field
from holodeck.gateway.api.models.create_response import (
    MAX_ENTRIES,
    MIN_COMPACT_THRESHOLD,
    CompactionEntry,
    InputValue,
)
from holodeck.models.generation import CACHE_HINTS, TIER

COMPACT_PATH = "/v1/responses/compact"
WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(CACHE_HINTS, "The summary has no prompt cache."),
    TIER: "There is one tier.",
}
"""Options that a body may have without effect, with the reasons."""


class SizeEntry(CompactionEntry):
    """The one entry that `context_management` can have, about the size of the result."""

    compact_threshold: Annotated[int, Field(ge=MIN_COMPACT_THRESHOLD)] | None = Field(
        default=None, description="The result has about so many tokens, at most."
    )


class CompactConversation(APIModel):
    """The body. Its members that are not declared here are options, or unknown."""

    model: str | None = declare_field(
        done_row("model", "demo", "A name of `/v1/models`."),
        "A name of `/v1/models`. May be left out if there is only one.",
    )
    input: InputValue = declare_field(
        done_row("input", "Hello", "A text, or items of the types above."), "A text, or the items of a conversation."
    )
    instructions: LongText | None = declare_field(
        no_effect_row("instructions", "Be brief.", "The model that writes the summary has its own."),
        "Replaces the instructions of the agent.",
    )
    previous_response_id: str | None = declare_field(
        done_row("previous_response_id", "resp_example", "What came before is part of what is compacted."),
        "The response that this one continues.",
    )
    context_management: Annotated[list[SizeEntry], Field(max_length=MAX_ENTRIES)] | None = declare_field(
        done_row("context_management", [{"type": "compaction"}], "Its threshold is the size of the result, at most.")
    )
    image: None = declare_field(refused_row("image", {"size": "auto"}, NOT_SUPPORTED))
