"""The body of `POST /v1/responses`, and the same request as a WebSocket message.

Every parameter of the API is either supported or refused by its name; none is ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from typing import Any

from holodeck.gateway.wire.request.context_management import ContextManagement, read_context_management
from holodeck.gateway.wire.request.field_rows import refusal_reasons
from holodeck.gateway.wire.request.field_table import RESPONSE_FIELDS
from holodeck.gateway.wire.request.input import read_input
from holodeck.gateway.wire.request.json_fields import EXTRA_ADVICE, JSONFields, refuse, refuse_unsupported
from holodeck.gateway.wire.request.options import (
    GenerationOptions,
    read_generation_options,
    read_include,
    read_metadata,
)
from holodeck.gateway.wire.request.parsed_input import FindItem, Input, ToolNameOf, find_nothing, plain_tool_name
from holodeck.gateway.wire.request.sealed_input import SealedInput
from holodeck.gateway.wire.request.tools import RequestToolChoice, RequestTools, read_tool_choice, read_tools
from holodeck.lib.limits import MAX_IDENTIFIER_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, Item
from holodeck.models.model_io import NO_EXTRA_BODY, ModelRequest, ToolChoice

_UNSUPPORTED_FIELDS = refusal_reasons(RESPONSE_FIELDS)
_SOCKET_FIELDS = ("type", "generate", "stream", "stream_options", "background", "stream_id")
# The same pattern as in OpenAI's packages.
ExtraParameters = Callable[[str | None], Collection[str]]
"""Returns the names of the extra parameters that a request for this model may have."""
STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")


def allow_no_parameters(model: str | None) -> Collection[str]:
    """Allow no extra parameters, for any model."""
    return ()


@record
class ResponseRequest:
    """A parsed request for a response, from HTTP, a WebSocket message or a chat completion."""

    model: str | None
    input: Input
    tools: RequestTools = field(default_factory=RequestTools)
    tool_choice: RequestToolChoice = field(default_factory=RequestToolChoice)
    options: GenerationOptions = field(default_factory=GenerationOptions)
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = None
    truncation: str = "disabled"
    elicitation: str = "decline"
    """`ask`: the client answers the questions of MCP servers."""
    context_management: ContextManagement | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    include: frozenset[str] = frozenset()
    store: bool = True
    stream: bool = False
    background: bool = False
    is_obfuscated: bool = False
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    extra_parameters: Mapping[str, Any] = field(default_factory=lambda: NO_EXTRA_BODY)
    """Parameters that this gateway does not know, and that its operator allows for the model."""
    needs_model: bool = True
    """False for a request that only prepares the next one: no turn is run."""

    @property
    def has_mcp_declarations(self) -> bool:
        """True when the request declares MCP servers. Its client then knows OpenAI's MCP items."""
        return bool(self.tools.declarations)

    @property
    def has_secrets(self) -> bool:
        """True when the request has credentials, which are never stored. The URL of a server may contain one."""
        return any(each.has_credentials or each.server_url is not None for each in self.tools.declarations)

    def is_client_function(self, name: str) -> bool:
        """True for a function that the client runs, unless the tool choice excludes it."""
        allowed = () if self.tool_choice.mode == "none" else self.tool_choice.allowed
        return any(spec.name == name for spec in self.tools.functions) and (allowed is None or name in allowed)

    def is_client_call(self, call: FunctionCall) -> bool:
        """True for a call that the client runs: of one of its functions, and with an action if its tool has one."""
        return self.is_client_function(call.name) and self.tools.is_valid_action(call)

    def build_model_request(
        self, context: tuple[Item, ...], choice: ToolChoice, *, instructions: str | None = None
    ) -> ModelRequest:
        """Build the request of the first turn, from the context and this input.

        `instructions`: those of the agent, which the instructions of this request replace.
        """
        return self.options.build_model_request(
            items=(*context, *self.input.items),
            instructions=instructions if self.instructions is None else self.instructions,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls,
            prompt_cache_key=self.prompt_cache_key,
            safety_identifier=self.safety_identifier,
            user=self.user,
            extra_body=self.extra_parameters,
        )


def read_request(
    body: object,
    *,
    find_item: FindItem = find_nothing,
    tool_name_of: ToolNameOf = plain_tool_name,
    sealed: SealedInput | None = None,
    extra_parameters_of: ExtraParameters = allow_no_parameters,
) -> ResponseRequest:
    """Read a body. Raises `BadRequestError`, which names the field.

    `find_item`, `tool_name_of`, `sealed`: see `Input`.
    """
    fields = JSONFields(body)
    if not fields.has_none_of(_UNSUPPORTED_FIELDS):
        for key, reason in _UNSUPPORTED_FIELDS.items():
            fields.refuse_present(reason, key)
    value = fields.pop("input")
    previous, conversation = _read_predecessor(fields)
    if previous is None and conversation is None:
        if value is None:
            fields.refuse_missing("input")
        if value == []:
            refuse("Invalid 'input': empty array. There is nothing that a model could answer.", "input", "empty_array")
    store, background = fields.get_flag("store"), fields.get_flag("background") or False
    if background and store is False:
        refuse("A background response is always stored: 'store' must not be false.", "store", "invalid_value")
    stream = fields.get_flag("stream") or False
    # Codex describes itself here, for the operator of the models.
    fields.get_mapping("client_metadata")
    include = read_include(fields)
    request = ResponseRequest(
        model=fields.get_text("model"),
        input=Input()
        if value is None
        else read_input(value, find_item=find_item, tool_name_of=tool_name_of, sealed=sealed),
        tools=read_tools(fields),
        tool_choice=read_tool_choice(fields.pop("tool_choice")),
        options=read_generation_options(fields, include),
        instructions=_read_instructions(fields),
        previous_response_id=previous,
        conversation_id=conversation,
        parallel_tool_calls=fields.get_flag("parallel_tool_calls") is not False,
        max_tool_calls=fields.get_integer("max_tool_calls", minimum=1),
        truncation=fields.get_choice("truncation", ("auto", "disabled")) or "disabled",
        elicitation=_read_elicitation(fields, is_stored=store is not False),
        context_management=read_context_management(fields),
        metadata=read_metadata(fields),
        include=include,
        store=store is not False,
        stream=stream,
        background=background,
        is_obfuscated=_read_obfuscation(fields, stream=stream),
        safety_identifier=fields.get_text("safety_identifier", max_length=MAX_IDENTIFIER_CHARS),
        prompt_cache_key=fields.get_text("prompt_cache_key", max_length=MAX_IDENTIFIER_CHARS),
        user=fields.get_text("user", max_length=MAX_INPUT_TEXT_CHARS),
    )
    return with_extra_parameters(request, fields, extra_parameters_of)


def with_extra_parameters(
    request: ResponseRequest, fields: JSONFields, extra_parameters_of: ExtraParameters
) -> ResponseRequest:
    """The request with its unread fields that the operator allows. Refuses all others, unless they are null."""
    unread = fields.list_unread()
    if not unread:
        return request
    allowed = extra_parameters_of(request.model)
    extra = {key: fields.pop(key) for key in unread if key in allowed}
    fields.refuse_unread(advice=EXTRA_ADVICE)
    return replace(request, extra_parameters=extra)


def read_socket_message(
    body: object,
    *,
    find_item: FindItem = find_nothing,
    tool_name_of: ToolNameOf = plain_tool_name,
    sealed: SealedInput | None = None,
    extra_parameters_of: ExtraParameters = allow_no_parameters,
) -> ResponseRequest:
    """Read a WebSocket message of the type `response.create`: a body without the parameters that only HTTP has.

    Raises `BadRequestError`, which names the field.
    """
    fields = JSONFields(body)
    if fields.get_choice("type", ("response.create",)) is None:
        fields.refuse_missing("type")
    # True is accepted: clients that build a body for HTTP do not remove it.
    if fields.get_flag("stream") is False:
        refuse_unsupported("stream", "A WebSocket always streams.")
    if fields.get_flag("background") or fields.has("stream_options"):
        key = "stream_options" if fields.has("stream_options") else "background"
        refuse_unsupported(key, "A WebSocket has no use for it.")
    stream_id = fields.get_text("stream_id")
    if stream_id is not None and not STREAM_ID.fullmatch(stream_id):
        expected = "Expected 1 to 256 letters, digits, underscores, hyphens or periods."
        refuse(f"Invalid 'stream_id': {expected}", "stream_id", "invalid_value")
    needs_model = fields.get_flag("generate") is not False
    body = {key: value for key, value in fields.value.items() if key not in _SOCKET_FIELDS}
    request = read_request(
        body,
        find_item=find_item,
        tool_name_of=tool_name_of,
        sealed=sealed,
        extra_parameters_of=extra_parameters_of,
    )
    return replace(request, needs_model=needs_model)


def stream_id_of(body: object) -> str | None:
    """The valid `stream_id` of a WebSocket message, which every event that answers it repeats. None: it has none."""
    stream_id = body.get("stream_id") if isinstance(body, dict) else None
    return stream_id if isinstance(stream_id, str) and STREAM_ID.fullmatch(stream_id) else None


def _read_predecessor(fields: JSONFields) -> tuple[str | None, str | None]:
    """Read the ids of the previous response and of the conversation, of which a request has at most one."""
    previous = fields.get_text("previous_response_id")
    conversation = _read_conversation_id(fields)
    if previous is not None and conversation is not None:
        message = "Mutually exclusive parameters: give only one of 'previous_response_id' and 'conversation'."
        refuse(message, "previous_response_id", "mutually_exclusive_parameters")
    return previous, conversation


def _read_conversation_id(fields: JSONFields) -> str | None:
    if not isinstance(fields.value.get("conversation"), dict):
        return fields.get_text("conversation")
    inner = fields.get_object("conversation")
    if inner is None:  # pragma: no cover - it is an object, as seen above
        return None
    conversation_id = inner.require_text("id", may_be_empty=False)
    inner.refuse_unread()
    return conversation_id


def _read_instructions(fields: JSONFields) -> str | None:
    return fields.get_text("instructions", max_length=MAX_INPUT_TEXT_CHARS)


def _read_elicitation(fields: JSONFields, *, is_stored: bool) -> str:
    wanted = fields.get_choice("elicitation", ("ask", "decline")) or "decline"
    if wanted == "ask" and not is_stored:
        reason = "The questions of servers are found by the id of a stored response"
        refuse(f"{reason}: with 'elicitation': 'ask', 'store' must not be false.", "elicitation", "invalid_value")
    return wanted


def _read_obfuscation(fields: JSONFields, *, stream: bool) -> bool:
    options = fields.get_object("stream_options")
    if options is None:
        return False
    if not stream:
        refuse("'stream_options' is only for 'stream': true.", "stream_options", "invalid_value")
    is_wanted = options.get_flag("include_obfuscation") or False
    options.refuse_unread()
    return is_wanted
