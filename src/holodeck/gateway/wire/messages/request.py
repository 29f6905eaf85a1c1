"""The body of `POST /v1/messages`, read into the same request as that of the Responses API.

Every parameter of the API is either supported or refused by its name; none is ignored silently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from holodeck.gateway.api.models.create_message import (
    CLEAR_THINKING,
    CreateMessage,
    EnabledThinking,
    MessagesFormat,
    NamedToolChoice,
    NoToolChoice,
    OutputConfig,
)
from holodeck.gateway.wire.messages.content_blocks import CACHE_FIELD, build_system, read_messages
from holodeck.gateway.wire.messages.tools import read_message_tools
from holodeck.gateway.wire.request.body import (
    ExtraParameters,
    ResponseRequest,
    allow_no_parameters,
    with_extra_parameters,
)
from holodeck.gateway.wire.request.json_fields import (
    EXTRA_ADVICE,
    JSONFields,
    refuse,
    refuse_choice,
    refuse_missing,
    refuse_unknown,
    refuse_unsupported,
)
from holodeck.gateway.wire.request.options import read_options
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.tools import RequestToolChoice
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib.record import record
from holodeck.models.generation import GenerationOptions

# The effort for a budget of thinking tokens that is less than each number; `high` for all others.
_EFFORT_BUDGETS = ((4_096, "low"), (16_384, "medium"))
_CHOICE_MODES: Mapping[str, Literal["auto", "required", "none"]] = {"auto": "auto", "any": "required", "none": "none"}
_NOTHING_CLEARED = "This gateway removes nothing from a conversation."

Thinking = Literal["shown", "omitted", "hidden"]


@record
class MessagesRequest:
    """A parsed request. `thinking`: whether its answer has the model's reasoning, blocks without text, or none."""

    response: ResponseRequest
    thinking: Thinking = "shown"
    is_in_thread: bool = False
    """True when a later request may continue from the answer, without the conversation before it."""


def read_messages_request(
    body: object, *, needs_max_tokens: bool = True, extra_parameters_of: ExtraParameters = allow_no_parameters
) -> MessagesRequest:
    """Read a body. Raises `BadRequestError`, which names the field. `needs_max_tokens`: it has to have `max_tokens`."""
    declared = read_body(CreateMessage, body)
    others = JSONFields(declared.model_extra or {})
    if declared.context_management is not None:
        _check_edits(declared.context_management.edits or ())
    if needs_max_tokens and not others.has("max_tokens"):
        refuse_missing("max_tokens")
    messages, system = read_messages(declared.messages), build_system(declared.system)
    if system is not None:
        messages.items.insert(0, system)
    thinking = _find_thinking(declared)
    request = ResponseRequest(
        model=declared.model,
        input=messages,
        tools=read_message_tools(declared.tools or (), declared.mcp_servers or ()),
        tool_choice=_find_tool_choice(declared),
        options=_read_generation_options(declared, others, thinking),
        store=False,
        stream=declared.stream or False,
    )
    request = with_extra_parameters(request, others, extra_parameters_of)
    return MessagesRequest(response=request, thinking=thinking, is_in_thread=declared.thread is not None)


def find_previous_message(body: object) -> str | None:
    """Return the id of the message that a body continues from. None: it begins a conversation, or is no valid body."""
    thread = body.get("thread") if isinstance(body, dict) else None
    previous_id = thread.get("previous_message_id") if isinstance(thread, dict) else None
    return previous_id if isinstance(previous_id, str) else None


def _check_edits(edits: Sequence[object]) -> None:
    """Refuse edits of the context. Claude Code asks to keep all thinking, which is what happens here."""
    for index, value in enumerate(edits):
        edit = JSONFields(value, f"context_management.edits[{index}]")
        kind = edit.require_text("type")
        if kind != CLEAR_THINKING:
            refuse_choice(edit.path_of("type"), kind, (CLEAR_THINKING,), advice=_NOTHING_CLEARED)
        if edit.pop("keep") not in ("all", {"type": "all"}):
            refuse_unsupported(edit.path_of("keep"), f"{_NOTHING_CLEARED} Send 'all'.")
        edit.refuse_unread()


def _find_thinking(body: CreateMessage) -> Thinking:
    thinking = body.thinking
    if thinking is not None and thinking.type == "disabled":
        return "hidden"
    return "omitted" if thinking is not None and thinking.display == "omitted" else "shown"


def _read_generation_options(body: CreateMessage, fields: JSONFields, thinking: Thinking) -> GenerationOptions:
    found, config, effort = read_options(fields, "messages"), body.output_config or OutputConfig(), None
    if isinstance(body.thinking, EnabledThinking):
        budget = body.thinking.budget_tokens
        if budget >= found.get("max_tokens", math.inf):
            refuse("'thinking.budget_tokens' must be less than 'max_tokens'.", "thinking.budget_tokens")
        effort = next((name for limit, name in _EFFORT_BUDGETS if budget < limit), "high")
    schema = _read_schema(config.format, "output_config.format")
    if not schema:
        schema = _read_schema(body.output_format, "output_format")
    elif body.output_format is not None:
        refuse_unknown("output_format", advice=EXTRA_ADVICE)
    choice = body.tool_choice
    return GenerationOptions(
        response_format=schema,
        parallel_tool_calls=choice is None
        or isinstance(choice, NoToolChoice)
        or choice.disable_parallel_tool_use is not True,
        effort=config.effort or effort,
        # Models of the Responses API tell nothing of their reasoning unless they are asked to.
        summary="auto" if body.thinking is not None and thinking == "shown" else None,
        user=None if body.metadata is None else body.metadata.user_id,
        cache_mark=None if body.cache_control is None else {CACHE_FIELD: body.cache_control},
        **found,
    )


def _read_schema(found: MessagesFormat | None, path: str) -> dict[str, Any] | None:
    """Return the schema of a format, within the limits for schemas."""
    if found is None:
        return None
    RequestSchemas().add(found.json_schema, f"{path}.schema")
    return found.json_schema


def _find_tool_choice(body: CreateMessage) -> RequestToolChoice:
    choice = body.tool_choice
    if choice is None:
        return RequestToolChoice()
    if isinstance(choice, NamedToolChoice):
        return RequestToolChoice(function=choice.name)
    return RequestToolChoice(mode=_CHOICE_MODES[choice.type])
