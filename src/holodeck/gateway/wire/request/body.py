"""The body of `POST /v1/responses`, and the same request as a WebSocket message.

Every parameter of the API is either supported or refused by its name; none is ignored silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from holodeck.gateway.api.models.create_response import CompactionEntry, Conversation, CreateResponse
from holodeck.gateway.wire.request.input import read_input
from holodeck.gateway.wire.request.json_fields import (
    EXTRA_ADVICE,
    JSONFields,
    refuse,
    refuse_missing,
    refuse_unsupported,
)
from holodeck.gateway.wire.request.options import (
    TEXT_FORMAT,
    check_metadata,
    read_generation_options,
)
from holodeck.gateway.wire.request.parsed_input import (
    FindItem,
    Input,
    SealedInput,
    ToolNameOf,
    find_nothing,
    plain_tool_name,
)
from holodeck.gateway.wire.request.tools import (
    TOOL_SEARCH,
    ClientToolAlias,
    RequestToolChoice,
    RequestTools,
    read_found_tools,
    read_tool_choice,
    read_tools,
)
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.models.generation import DEFAULT_OPTIONS, GenerationOptions, options_to_dict
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, TextContent
from holodeck.models.model_io import ModelRequest, ToolChoice, ToolSpec

SOCKET_FIELDS = ("type", "generate", "stream", "stream_options", "background", "stream_id")
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
    options: GenerationOptions = DEFAULT_OPTIONS
    text_format: Mapping[str, Any] = field(default_factory=lambda: TEXT_FORMAT)
    """The format of the answer, as the response repeats it."""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    max_tool_calls: int | None = None
    truncation: str = "disabled"
    elicitation: str = "decline"
    """`ask`: the client answers the questions of MCP servers."""
    context_management: CompactionEntry | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    include: frozenset[str] = frozenset()
    store: bool = True
    stream: bool = False
    background: bool = False
    is_obfuscated: bool = False
    extra_parameters: Mapping[str, Any] = field(default_factory=dict)
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
        """Return True for a function that the client runs, unless the tool choice excludes it."""
        allowed = () if self.tool_choice.mode == "none" else self.tool_choice.allowed
        return any(spec.name == name for spec in self.tools.functions) and (allowed is None or name in allowed)

    def is_client_call(self, call: FunctionCall) -> bool:
        """Return True for a call that the client runs: of its functions, and with an action if the tool has one."""
        return self.is_client_function(call.name) and self.tools.is_valid_action(call)

    def build_model_request(
        self,
        context: tuple[Item, ...],
        choice: ToolChoice,
        *,
        instructions: str | None = None,
        run_id: str = "",
        caller_id: str = "",
    ) -> ModelRequest:
        """Build the request of the first turn, from the context and this input.

        `instructions`: those of the agent, which the instructions of this request replace.
        """
        return ModelRequest(
            items=(*context, *self.input.items),
            instructions=instructions if self.instructions is None else self.instructions,
            tool_choice=choice,
            extra_body=self.extra_parameters,
            is_streamed=self.stream or self.background,
            run_id=run_id,
            caller_id=caller_id,
            thread=self.conversation_id or self.previous_response_id or "",
            **options_to_dict(self.options),
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
    declared = read_body(CreateResponse, body)
    _check_members(declared)
    others = JSONFields(declared.model_extra or {})
    parsed = Input()
    if declared.input is not None:
        parsed = read_input(declared.input, find_item=find_item, tool_name_of=tool_name_of, sealed=sealed)
    tools, tool_choice = read_tools(declared.tools), read_tool_choice(declared.tool_choice)
    options, text_format = read_generation_options(declared, others)
    conversation = declared.conversation
    request = ResponseRequest(
        model=declared.model,
        input=parsed,
        tools=tools,
        tool_choice=tool_choice,
        options=options,
        text_format=text_format,
        instructions=declared.instructions,
        previous_response_id=declared.previous_response_id,
        conversation_id=conversation.id if isinstance(conversation, Conversation) else conversation,
        max_tool_calls=declared.max_tool_calls,
        truncation=declared.truncation or "disabled",
        elicitation=declared.elicitation or "decline",
        context_management=declared.context_management[0] if declared.context_management else None,
        metadata=declared.metadata or {},
        include=frozenset(declared.include or ()),
        store=declared.store is not False,
        stream=declared.stream or False,
        background=declared.background or False,
        is_obfuscated=declared.stream_options is not None and declared.stream_options.include_obfuscation is True,
    )
    return with_extra_parameters(request, others, extra_parameters_of)


def _check_members(body: CreateResponse) -> None:
    """Refuse members that contradict each other. Raises `BadRequestError`, which names one."""
    if body.previous_response_id is None and body.conversation is None:
        if body.input is None:
            refuse_missing("input")
        if body.input == []:
            refuse("Invalid 'input': empty array. There is nothing that a model could answer.", "input", "empty_array")
    elif body.previous_response_id is not None and body.conversation is not None:
        message = "Mutually exclusive parameters: give only one of 'previous_response_id' and 'conversation'."
        refuse(message, "previous_response_id", "mutually_exclusive_parameters")
    if body.store is False and body.background:
        refuse("A background response is always stored: 'store' must not be false.", "store", "invalid_value")
    if body.store is False and body.elicitation == "ask":
        reason = "The questions of servers are found by the id of a stored response"
        refuse(f"{reason}: with 'elicitation': 'ask', 'store' must not be false.", "elicitation", "invalid_value")
    if body.stream_options is not None and not body.stream:
        refuse("'stream_options' is only for 'stream': true.", "stream_options", "invalid_value")
    if body.metadata:
        check_metadata(body.metadata)


def with_extra_parameters(
    request: ResponseRequest, fields: JSONFields, extra_parameters_of: ExtraParameters
) -> ResponseRequest:
    """Return the request with its unread fields that the operator allows. Refuses all others, unless they are null."""
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
    body = {key: value for key, value in fields.value.items() if key not in SOCKET_FIELDS}
    request = read_request(
        body,
        find_item=find_item,
        tool_name_of=tool_name_of,
        sealed=sealed,
        extra_parameters_of=extra_parameters_of,
    )
    return replace(request, needs_model=needs_model)


def stream_id_of(body: object) -> str | None:
    """Return the valid `stream_id` of a WebSocket message, which every event of its answer repeats. None: none."""
    stream_id = body.get("stream_id") if isinstance(body, dict) else None
    return stream_id if isinstance(stream_id, str) and STREAM_ID.fullmatch(stream_id) else None


def add_found_tools(request: ResponseRequest, items: Iterable[Item]) -> ResponseRequest:
    """Return the request with the found tools added, if it has a tool search. `items`: the whole conversation."""
    if TOOL_SEARCH not in request.tools.aliases:
        return request
    known = {spec.name for spec in request.tools.functions}
    found: list[ToolSpec] = []
    aliases: dict[str, ClientToolAlias] = {}
    searches: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall) and item.name == TOOL_SEARCH:
            searches.add(item.call_id)
        elif isinstance(item, FunctionCallOutput) and item.call_id in searches:
            found += read_found_tools(_parse_search_output(item).get("tools"), "input.tools.tools", aliases)
    new = {spec.name: spec for spec in found if spec.name not in known}
    if not new:
        return request
    functions = (*request.tools.functions, *new.values())
    tools = replace(request.tools, functions=functions, aliases={**aliases, **request.tools.aliases})
    return replace(request, tools=tools)


def _parse_search_output(output: FunctionCallOutput) -> dict[str, Any]:
    # The output is the text that the model has read.
    try:
        found = parse_json("".join(part.text for part in output.content if isinstance(part, TextContent)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
