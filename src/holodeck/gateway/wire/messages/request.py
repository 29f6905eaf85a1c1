"""The body of `POST /v1/messages`, read into the same request as that of the Responses API.

Every parameter of the API is either supported or refused by its name; none is ignored silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from holodeck.gateway.wire.messages.content_blocks import CACHE_FIELD, read_messages, read_system
from holodeck.gateway.wire.messages.field_table import MESSAGES_FIELDS, NOTHING_CLEARED, ONE_SPEED
from holodeck.gateway.wire.messages.tools import read_message_tools
from holodeck.gateway.wire.request.body import (
    ExtraParameters,
    ResponseRequest,
    allow_no_parameters,
    with_extra_parameters,
)
from holodeck.gateway.wire.request.field_rows import refusal_reasons
from holodeck.gateway.wire.request.json_fields import (
    JSONFields,
    refuse,
    refuse_choice,
    refuse_unsupported,
)
from holodeck.gateway.wire.request.options import GenerationOptions
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.gateway.wire.request.schemas import RequestSchemas
from holodeck.gateway.wire.request.tools import RequestToolChoice
from holodeck.lib.limits import MAX_INPUT_TEXT_CHARS
from holodeck.lib.record import record

# Limit of stop sequences in one request: other APIs accept 4 to 16.
MAX_STOP_SEQUENCES = 16
# Limits of the Messages API.
MAX_TEMPERATURE = 1.0
MIN_THINKING_TOKENS = 1_024
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING_TYPES = ("enabled", "disabled", "adaptive", "between_tools")
DISPLAYS = ("summarized", "omitted")
CHOICE_TYPES = ("auto", "any", "tool", "none")
SERVICE_TIERS = ("auto", "standard_only")
# The effort for a budget of thinking tokens that is less than each number; `high` for all others.
_EFFORT_BUDGETS = ((4_096, "low"), (16_384, "medium"))
_CHOICE_MODES: Mapping[str, Literal["auto", "required", "none"]] = {"auto": "auto", "any": "required", "none": "none"}
CLEAR_THINKING = "clear_thinking_20251015"
# Fields of the table that are refused by their own readers, where the operator does not allow them.
_READ_FIELDS = ("mcp_servers", "top_k")
_UNSUPPORTED_FIELDS = refusal_reasons(row for row in MESSAGES_FIELDS if row.path not in _READ_FIELDS)

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
    fields = JSONFields(body)
    for key, reason in _UNSUPPORTED_FIELDS.items():
        fields.refuse_present(reason, key)
    if fields.get_choice("speed", ("standard", "fast")) == "fast":
        refuse_unsupported("speed", ONE_SPEED)
    _read_context_management(fields)
    # Accepted without effect: the usage names the tier that was used, as in the API.
    fields.get_choice("service_tier", SERVICE_TIERS)
    max_tokens = fields.get_integer("max_tokens", minimum=1)
    if max_tokens is None and needs_max_tokens:
        fields.refuse_missing("max_tokens")
    thinking, effort = _read_thinking(fields, max_tokens)
    is_in_thread = _read_thread(fields)
    choice, is_parallel = _read_tool_choice(fields)
    request = ResponseRequest(
        model=fields.get_text("model"),
        input=_read_input(fields),
        tools=read_message_tools(fields),
        tool_choice=choice,
        options=_read_generation_options(fields, max_tokens, effort, thinking),
        parallel_tool_calls=is_parallel,
        user=_read_user(fields),
        store=False,
        stream=fields.get_flag("stream") or False,
    )
    request = with_extra_parameters(request, fields, extra_parameters_of)
    return MessagesRequest(response=request, thinking=thinking, is_in_thread=is_in_thread)


def find_previous_message(body: object) -> str | None:
    """The id of the message that a body continues from. None: it begins a conversation, or is no valid body."""
    thread = body.get("thread") if isinstance(body, dict) else None
    previous_id = thread.get("previous_message_id") if isinstance(thread, dict) else None
    return previous_id if isinstance(previous_id, str) else None


def _read_thread(fields: JSONFields) -> bool:
    """Read `thread`: whether the conversation is held for later requests."""
    inner = fields.get_object("thread")
    if inner is None:
        return False
    kind = inner.get_choice("type", ("create", "continue")) or inner.refuse_missing("type")
    if kind == "continue":
        inner.require_text("previous_message_id", may_be_empty=False)
    inner.refuse_unread()
    return True


def _read_input(fields: JSONFields) -> Input:
    system = read_system(fields)
    into = read_messages(fields)
    if system is not None:
        into.items.insert(0, system)
    return into


def _read_context_management(fields: JSONFields) -> None:
    """Read `context_management`. Claude Code asks to keep all thinking, which is what happens here."""
    inner = fields.get_object("context_management")
    if inner is None:
        return
    for edit in inner.iter_objects("edits"):
        kind = edit.require_text("type")
        if kind != CLEAR_THINKING:
            refuse_choice(edit.path_of("type"), kind, (CLEAR_THINKING,), advice=NOTHING_CLEARED)
        if edit.pop("keep") not in ("all", {"type": "all"}):
            refuse_unsupported(edit.path_of("keep"), f"{NOTHING_CLEARED} Send 'all'.")
        edit.refuse_unread()
    inner.refuse_unread()


def _read_thinking(fields: JSONFields, max_tokens: int | None) -> tuple[Thinking, str | None]:
    """Read `thinking`: whether reasoning is shown, and the effort for its budget."""
    inner = fields.get_object("thinking")
    if inner is None:
        return "shown", None
    kind = inner.get_choice("type", THINKING_TYPES) or inner.refuse_missing("type")
    display = inner.get_choice("display", DISPLAYS)
    effort = None
    if kind == "enabled":
        budget = inner.get_integer("budget_tokens", minimum=MIN_THINKING_TOKENS)
        if budget is None:
            inner.refuse_missing("budget_tokens")
        if max_tokens is not None and budget >= max_tokens:
            refuse("'thinking.budget_tokens' must be less than 'max_tokens'.", "thinking.budget_tokens")
        effort = next((name for limit, name in _EFFORT_BUDGETS if budget < limit), "high")
    inner.refuse_unread()
    if kind == "disabled":
        return "hidden", None
    return "omitted" if display == "omitted" else "shown", effort


def _read_generation_options(
    fields: JSONFields, max_tokens: int | None, effort: str | None, thinking: Thinking
) -> GenerationOptions:
    config = fields.get_object("output_config") or JSONFields({}, "output_config")
    chosen = config.get_choice("effort", EFFORTS)
    schema = _read_output_schema(config, "format") or _read_output_schema(fields, "output_format")
    config.refuse_unread()
    return GenerationOptions(
        schema=schema,
        effort=chosen or effort,
        # Models of the Responses API tell nothing of their reasoning unless they are asked to.
        summary="auto" if fields.has("thinking") and thinking == "shown" else None,
        temperature=fields.get_decimal("temperature", minimum=0, maximum=MAX_TEMPERATURE),
        top_p=fields.get_decimal("top_p", minimum=0, maximum=1),
        max_output_tokens=max_tokens,
        stop=_read_stop_sequences(fields),
        cache_mark=fields.get_cache_mark(CACHE_FIELD),
    )


def _read_output_schema(fields: JSONFields, key: str) -> dict[str, Any] | None:
    inner = fields.get_object(key)
    if inner is None:
        return None
    if inner.get_choice("type", ("json_schema",)) is None:
        inner.refuse_missing("type")
    schema = RequestSchemas().read(inner, "schema")
    if schema is None:
        inner.refuse_missing("schema")
    inner.refuse_unread()
    return schema


def _read_stop_sequences(fields: JSONFields) -> tuple[str, ...]:
    words = fields.get_strings("stop_sequences") or []
    if len(words) > MAX_STOP_SEQUENCES:
        message = (
            f"Invalid 'stop_sequences': array too long. Expected at most {MAX_STOP_SEQUENCES} elements, "
            f"but got {len(words)}."
        )
        refuse(message, "stop_sequences", "array_above_max_length")
    if "" in words:
        refuse("Invalid 'stop_sequences': empty string.", "stop_sequences", "empty_string")
    return tuple(words)


def _read_user(fields: JSONFields) -> str | None:
    metadata = fields.get_object("metadata")
    if metadata is None:
        return None
    user = metadata.get_text("user_id", max_length=MAX_INPUT_TEXT_CHARS)
    metadata.refuse_unread()
    return user


def _read_tool_choice(fields: JSONFields) -> tuple[RequestToolChoice, bool]:
    """Read `tool_choice`, and whether the model may call several tools in one turn."""
    inner = fields.get_object("tool_choice")
    if inner is None:
        return RequestToolChoice(), True
    kind = inner.get_choice("type", CHOICE_TYPES) or inner.refuse_missing("type")
    is_parallel = kind == "none" or inner.get_flag("disable_parallel_tool_use") is not True
    name = inner.require_text("name", may_be_empty=False) if kind == "tool" else None
    inner.refuse_unread()
    if name is not None:
        return RequestToolChoice(function=name), is_parallel
    return RequestToolChoice(mode=_CHOICE_MODES[kind]), is_parallel
