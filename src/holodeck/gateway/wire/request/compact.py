"""The body of a request to compact a conversation, and the `response.compaction` resource that answers it."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.api.models.compact_conversation import WITHOUT_EFFECT, CompactConversation
from holodeck.gateway.sealing import Seal
from holodeck.gateway.wire.compaction_item import CompactionContent, build_compaction_item, list_kept_questions
from holodeck.gateway.wire.request.content_parts import part_to_wire
from holodeck.gateway.wire.request.input import read_input
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse_missing
from holodeck.gateway.wire.request.options import read_options
from holodeck.gateway.wire.request.parsed_input import (
    FindItem,
    Input,
    SealedInput,
    ToolNameOf,
    find_nothing,
    plain_tool_name,
)
from holodeck.gateway.wire.request.validation import read_body
from holodeck.gateway.wire.response.resource import usage_to_json
from holodeck.lib.ids import new_id
from holodeck.lib.record import record
from holodeck.models.items import Message, Usage


@record
class CompactRequest:
    """A parsed request to compact a conversation."""

    model: str | None
    input: Input
    previous_response_id: str | None = None
    instructions: str | None = None
    max_tokens: int | None = None
    """Tokens of the compacted conversation, if that is less than the gateway's own target."""


def read_compact_request(
    body: object,
    *,
    sealed: SealedInput | None = None,
    find_item: FindItem = find_nothing,
    tool_name_of: ToolNameOf = plain_tool_name,
) -> CompactRequest:
    """Read a body. Raises `BadRequestError`, which names the field. The other parameters: see `Input`."""
    declared = read_body(CompactConversation, body)
    if declared.input is None and declared.previous_response_id is None:
        refuse_missing("input")
    others = JSONFields(declared.model_extra or {})
    read_options(others, "responses", WITHOUT_EFFECT)
    others.refuse_unread()
    entries = declared.context_management
    return CompactRequest(
        model=declared.model,
        input=Input()
        if declared.input is None
        else read_input(declared.input, find_item=find_item, tool_name_of=tool_name_of, sealed=sealed),
        previous_response_id=declared.previous_response_id,
        instructions=declared.instructions,
        max_tokens=entries[0].compact_threshold if entries else None,
    )


def build_compaction(content: CompactionContent, *, seal: Seal, created_at: float, usage: Usage) -> dict[str, Any]:
    """Build the resource with the conversation, which a client sends back instead of all items before.

    The messages of users that it keeps are readable; one sealed item after them has all of it, with these messages at
    their places. Takes seconds for many items: run it off the event loop.
    """
    return {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": int(created_at),
        "output": [*map(_user_message_to_wire, list_kept_questions(content)), build_compaction_item(content, seal)],
        "usage": usage_to_json(usage),
    }


def _user_message_to_wire(message: Message) -> dict[str, Any]:
    content = [part_to_wire(part) for part in message.content]
    return {"id": new_id("msg"), "type": "message", "role": "user", "status": "completed", "content": content}
