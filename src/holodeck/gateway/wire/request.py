"""The body of `POST /v1/responses`: every parameter is honoured, or refused by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from holodeck.gateway.wire.fields import Fields, refuse, unsupported
from holodeck.gateway.wire.input import read_input
from holodeck.gateway.wire.options import Answer, read_answer, read_include, read_metadata
from holodeck.gateway.wire.reading import Find, Input, ToolName, nothing_stored, plain_name
from holodeck.gateway.wire.sealed_input import SealedInput
from holodeck.gateway.wire.tools import Choice, Tools, read_choice, read_tools
from holodeck.lib.limits import MAX_IDENTIFIER_CHARS, MAX_INPUT_TEXT_CHARS
from holodeck.lib.record import record
from holodeck.models.exchange import ModelRequest, ToolChoice
from holodeck.models.items import Item

TIERS = ("auto", "default", "flex", "priority", "scale", "standard", "fast", "ultrafast", "batch")
_NOT_HERE = "This gateway does not have it."
_NO_CACHE = "This gateway has no prompt cache of its own."
_REFUSED = {
    **dict.fromkeys(("prompt", "moderation", "image", "access_programs", "context_management"), _NOT_HERE),
    **dict.fromkeys(("prompt_cache_options", "prompt_cache_retention"), _NO_CACHE),
}
_OF_A_SOCKET = ("type", "generate", "stream", "stream_options", "background", "stream_id")
_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")  # as OpenAI's own packages have it


@record
class ResponseRequest:
    """A request for a response, whichever way it came."""

    model: str | None
    input: Input
    tools: Tools = field(default_factory=Tools)
    tool_choice: Choice = field(default_factory=Choice)
    answer: Answer = field(default_factory=Answer)
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = None
    truncation: str = "disabled"
    metadata: Mapping[str, str] = field(default_factory=dict)
    include: frozenset[str] = frozenset()
    store: bool = True
    stream: bool = False
    background: bool = False
    is_obfuscated: bool = False
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    generates: bool = True
    """False for one that only prepares the next: the model is not asked."""

    @property
    def declares_mcp(self) -> bool:
        """True when the client speaks of MCP itself, and so expects OpenAI's items for it."""
        return bool(self.tools.declarations)

    @property
    def has_secrets(self) -> bool:
        """True when it brings credentials, which are never kept. The address of a server may hold one, too."""
        return any(each.has_credentials or each.server_url is not None for each in self.tools.declarations)

    def is_client(self, name: str) -> bool:
        """True for a function that the client runs, unless the choice of tools leaves it out."""
        allowed = () if self.tool_choice.mode == "none" else self.tool_choice.allowed
        return any(spec.name == name for spec in self.tools.functions) and (allowed is None or name in allowed)

    def model_request(
        self, context: tuple[Item, ...], choice: ToolChoice, *, instructions: str | None = None
    ) -> ModelRequest:
        """The first turn: what came before, then this input. The request's instructions replace an agent's own."""
        return self.answer.model_request(
            items=(*context, *self.input.items),
            instructions=instructions if self.instructions is None else self.instructions,
            tool_choice=choice,
            parallel_tool_calls=self.parallel_tool_calls,
        )


def read_request(
    body: object,
    *,
    find: Find = nothing_stored,
    tool_name: ToolName = plain_name,
    sealed: SealedInput | None = None,
) -> ResponseRequest:
    """Read a body. Raises `BadRequestError`, which names the field."""
    fields = Fields(body)
    if not fields.lacks(_REFUSED):
        for key, reason in _REFUSED.items():
            fields.refuse_given(reason, key)
    given = fields.take("input")
    previous = fields.text("previous_response_id")
    conversation = _conversation(fields)
    if previous is not None and conversation is not None:
        message = "Mutually exclusive parameters: give only one of 'previous_response_id' and 'conversation'."
        refuse(message, "previous_response_id", "mutually_exclusive_parameters")
    if previous is None and conversation is None:
        if given is None:
            fields.missing("input")
        if given == []:
            refuse("Invalid 'input': empty array. There is nothing that a model could answer.", "input", "empty_array")
    store, background = fields.flag("store"), fields.flag("background") or False
    if background and store is False:
        refuse("A background response is always stored: 'store' must not be false.", "store", "invalid_value")
    stream = fields.flag("stream") or False
    fields.mapping("client_metadata")  # what Codex says of itself, for whoever runs the models
    fields.choice("service_tier", TIERS)  # the tier that was used is in the response, as the API has it
    request = ResponseRequest(
        model=fields.text("model"),
        input=Input() if given is None else read_input(given, find=find, tool_name=tool_name, sealed=sealed),
        tools=read_tools(fields),
        tool_choice=read_choice(fields.take("tool_choice")),
        answer=read_answer(fields),
        instructions=_instructions(fields),
        previous_response_id=previous,
        conversation_id=conversation,
        parallel_tool_calls=fields.flag("parallel_tool_calls") is not False,
        max_tool_calls=fields.integer("max_tool_calls", least=1),
        truncation=fields.choice("truncation", ("auto", "disabled")) or "disabled",
        metadata=read_metadata(fields),
        include=read_include(fields),
        store=store is not False,
        stream=stream,
        background=background,
        is_obfuscated=_is_obfuscated(fields, stream=stream),
        safety_identifier=fields.text("safety_identifier", longest=MAX_IDENTIFIER_CHARS),
        prompt_cache_key=fields.text("prompt_cache_key", longest=MAX_IDENTIFIER_CHARS),
        user=fields.text("user", longest=MAX_INPUT_TEXT_CHARS),
    )
    fields.done()
    return request


def read_message(
    body: object,
    *,
    find: Find = nothing_stored,
    tool_name: ToolName = plain_name,
    sealed: SealedInput | None = None,
) -> ResponseRequest:
    """The same as a WebSocket message of the type `response.create`, without what only HTTP has."""
    fields = Fields(body)
    if fields.choice("type", ("response.create",)) is None:
        fields.missing("type")
    if fields.flag("stream") is False:  # clients that build a body for HTTP leave a true one in it
        unsupported("stream", "A WebSocket always streams.")
    if fields.flag("background") or fields.has("stream_options"):
        key = "stream_options" if fields.has("stream_options") else "background"
        unsupported(key, "A WebSocket has no use for it.")
    lane = fields.text("stream_id")
    if lane is not None and not _LANE.fullmatch(lane):
        words = "Expected 1 to 256 letters, digits, underscores, hyphens or periods."
        refuse(f"Invalid 'stream_id': {words}", "stream_id", "invalid_value")
    generates = fields.flag("generate") is not False
    body = {key: value for key, value in fields.value.items() if key not in _OF_A_SOCKET}
    return replace(read_request(body, find=find, tool_name=tool_name, sealed=sealed), generates=generates)


def lane_of(body: object) -> str | None:
    """The lane of a connection that a message belongs to; all that is answered to it says so. None: to none."""
    lane = body.get("stream_id") if isinstance(body, dict) else None
    return lane if isinstance(lane, str) and _LANE.fullmatch(lane) else None


def _conversation(fields: Fields) -> str | None:
    """An id, or an object that has it."""
    if not isinstance(fields.value.get("conversation"), dict):
        return fields.text("conversation")
    inner = fields.object("conversation")
    if inner is None:  # pragma: no cover - it is an object, as seen above
        return None
    conversation_id = inner.required("id", may_be_empty=False)
    inner.done()
    return conversation_id


def _instructions(fields: Fields) -> str | None:
    return fields.text("instructions", longest=MAX_INPUT_TEXT_CHARS)


def _is_obfuscated(fields: Fields, *, stream: bool) -> bool:
    options = fields.object("stream_options")
    if options is None:
        return False
    if not stream:
        refuse("'stream_options' is only for 'stream': true.", "stream_options", "invalid_value")
    is_wanted = options.flag("include_obfuscation") or False
    options.done()
    return is_wanted
