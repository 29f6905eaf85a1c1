"""Schemas of request bodies, field by field as `wire/request` and `wire/chat` read them."""

from __future__ import annotations

from holodeck.gateway.endpoints.conversations import MAX_NEW_ITEMS
from holodeck.gateway.openapi.schemas.input_schemas import CACHE_MARK, IMAGE_URL, JSON_SCHEMA, LONG_TEXT
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    array,
    body_of,
    boolean,
    choice,
    constant,
    integer,
    mapping,
    number,
    only,
    ref,
    string,
)
from holodeck.gateway.wire.chat.request import REASONING_FIELD
from holodeck.gateway.wire.request.body import STREAM_ID
from holodeck.gateway.wire.request.content_parts import AUDIO_TYPES
from holodeck.gateway.wire.request.context_management import MAX_ENTRIES, MIN_COMPACT_THRESHOLD
from holodeck.gateway.wire.request.options import (
    EFFORTS,
    INCLUDABLE,
    LOGPROBS,
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE_CHARS,
    MAX_TEMPERATURE,
    MAX_TOP_LOGPROBS,
    MIN_OUTPUT_TOKENS,
    SERVICE_TIERS,
    SUMMARIES,
    VERBOSITIES,
)
from holodeck.gateway.wire.request.tools import CHOICE_MODES
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_IDENTIFIER_CHARS,
    MAX_IMAGE_URL_CHARS,
    MAX_INPUT_ITEMS,
    MAX_INPUT_TEXT_CHARS,
    MAX_REQUEST_TOOLS,
    MAX_TOOL_NAME_CHARS,
)
from holodeck.models.llm import MAX_PENALTY, MAX_SEED, MAX_STOP_WORDS

METADATA = mapping(
    "Your own key-value pairs.",
    additionalProperties=string(max_length=MAX_METADATA_VALUE_CHARS),
    propertyNames={"maxLength": MAX_METADATA_KEY_CHARS},
    maxProperties=MAX_METADATA_PAIRS,
)
_IDENTIFIER = string("Sent to the provider, if it has the field.", max_length=MAX_IDENTIFIER_CHARS)
_CACHE_HINTS: dict[str, Schema] = {
    "prompt_cache_options": mapping("A hint. Sent to the provider, if it has the field."),
    "prompt_cache_retention": string("A hint. Sent to the provider, if it has the field."),
}
_SERVICE_TIER = choice(SERVICE_TIERS, "The tier at the provider. The response has the one that was used.")
_TOP_LOGPROBS = integer("Alternatives for each token.", minimum=0, maximum=MAX_TOP_LOGPROBS)
_INPUT = any_of(
    LONG_TEXT, array(ref("InputItem"), max_items=MAX_INPUT_ITEMS), about="A text, or the items of a conversation."
)
_INSTRUCTIONS = string("Replaces the instructions of the agent.", max_length=MAX_INPUT_TEXT_CHARS)
_PREVIOUS = string("The response that this one continues.")


def build_body_schemas() -> dict[str, Schema]:
    """Every request body, by the name of its schema."""
    return {
        "CreateResponse": body_of(
            {**_response_fields(), **_http_fields()},
            "`input` is required unless the request continues a response or a conversation.",
            one_of=("input", "previous_response_id", "conversation"),
        ),
        "SocketMessage": body_of(
            {
                "type": constant("response.create"),
                "stream_id": string(
                    "Repeated in every event that answers this message.", pattern=f"^{STREAM_ID.pattern}$"
                ),
                "generate": boolean("False prepares the next message: no model is asked."),
                "stream": only(True, "A WebSocket always streams."),
                "background": only(False),
                **_response_fields(),
            },
            "A message of a WebSocket: a response to create.",
            required=("type",),
            one_of=("input", "previous_response_id", "conversation"),
        ),
        "CompactConversation": body_of(
            {
                "model": string("A name of `/v1/models`. May be left out if there is only one."),
                "input": _INPUT,
                "instructions": _INSTRUCTIONS,
                "previous_response_id": _PREVIOUS,
                "prompt_cache_key": string("Accepted without effect.", max_length=MAX_IDENTIFIER_CHARS),
                **_CACHE_HINTS,
                "service_tier": _SERVICE_TIER,
                "context_management": _context_management("The result has about so many tokens, at most."),
            },
            "`input` is required unless there is a `previous_response_id`.",
            one_of=("input", "previous_response_id"),
        ),
        "CreateConversation": body_of(
            {
                "items": any_of(LONG_TEXT, array(ref("InputItem"), max_items=MAX_NEW_ITEMS)),
                "metadata": METADATA,
            }
        ),
        "UpdateConversation": {
            **body_of({"metadata": METADATA}, "The metadata is replaced; null empties it."),
            "required": ["metadata"],
        },
        "AddItems": body_of(
            {"items": any_of(LONG_TEXT, array(ref("InputItem"), max_items=MAX_NEW_ITEMS))}, required=("items",)
        ),
        **_option_schemas(),
        **_chat_schemas(),
        **_handed_on_schemas(),
    }


def _response_fields() -> dict[str, Schema]:
    """The fields that a request has over HTTP and over a WebSocket."""
    conversation = body_of({"id": string(min_length=1)}, required=("id",))
    return {
        "model": string("A name of `/v1/models`. May be left out if there is only one."),
        "input": _INPUT,
        "instructions": _INSTRUCTIONS,
        "previous_response_id": _PREVIOUS,
        "conversation": any_of(string(), conversation, about="The conversation that this response becomes part of."),
        "store": boolean("False: the response cannot be read again. Left out: true."),
        "tools": array(ref("Tool"), "Your functions, and MCP servers.", max_items=MAX_REQUEST_TOOLS),
        "tool_choice": ref("ToolChoice"),
        "parallel_tool_calls": boolean("False: the model calls one tool at a time."),
        "max_tool_calls": integer("Calls that the gateway runs for this response, at most.", minimum=1),
        "text": ref("TextOptions"),
        "reasoning": ref("ReasoningOptions"),
        **_sampling_fields(),
        "max_output_tokens": integer("Tokens of one answer of the model, at most.", minimum=MIN_OUTPUT_TOKENS),
        "top_logprobs": _TOP_LOGPROBS,
        "include": array(
            choice(INCLUDABLE),
            f"`reasoning.encrypted_content` adds reasoning that you can send back, `{LOGPROBS}` log probabilities; "
            "others add results of hosted tools.",
        ),
        "truncation": choice(
            ("auto", "disabled"), "`auto`: the oldest items are left out if the model does not have room for all."
        ),
        "context_management": _context_management("The context is compacted beyond so many tokens."),
        "elicitation": choice(
            ("ask", "decline"),
            "`ask`: questions of MCP servers wait for your answer at `/v1/responses/{id}/elicitations`. Needs a "
            "response that is stored. Left out: they are declined.",
        ),
        "metadata": METADATA,
        "safety_identifier": _IDENTIFIER,
        "prompt_cache_key": _IDENTIFIER,
        **_CACHE_HINTS,
        "user": string("Sent to the provider, if it has the field.", max_length=MAX_INPUT_TEXT_CHARS),
        "service_tier": _SERVICE_TIER,
        "client_metadata": mapping("Accepted without effect."),
    }


def _context_management(threshold: str) -> Schema:
    entry = {
        "type": constant("compaction"),
        "compact_threshold": integer(threshold, minimum=MIN_COMPACT_THRESHOLD),
    }
    return array(body_of(entry, required=("type",)), max_items=MAX_ENTRIES)


def _http_fields() -> dict[str, Schema]:
    options = body_of({"include_obfuscation": boolean("True pads each delta, so that its size tells little.")})
    return {
        "stream": boolean("True: the reply is a stream of events."),
        "stream_options": {**options, "description": "Only with `stream`."},
        "background": boolean("True: the response is stored as queued, and runs without a client."),
    }


def _sampling_fields() -> dict[str, Schema]:
    return {
        "temperature": number("0: always the most likely token.", minimum=0, maximum=MAX_TEMPERATURE),
        "top_p": number("Only tokens within this share of the probability.", minimum=0, maximum=1),
        "presence_penalty": number("Against topics that were mentioned.", minimum=-MAX_PENALTY, maximum=MAX_PENALTY),
        "frequency_penalty": number("Against repeated words.", minimum=-MAX_PENALTY, maximum=MAX_PENALTY),
        "stop": any_of(
            string(min_length=1),
            array(string(min_length=1), max_items=MAX_STOP_WORDS),
            about="The model stops before these.",
        ),
        "seed": integer("For the same answer again, where the model can do that.", minimum=-MAX_SEED, maximum=MAX_SEED),
    }


def _named_schema_fields() -> dict[str, Schema]:
    return {
        "name": string(max_length=MAX_TOOL_NAME_CHARS, min_length=1),
        "description": string(),
        "schema": JSON_SCHEMA,
        "strict": boolean(),
    }


def _option_schemas() -> dict[str, Schema]:
    return {
        "TextOptions": body_of(
            {"format": ref("TextFormat"), "verbosity": choice(VERBOSITIES)}, "The form of the answer."
        ),
        "TextFormat": any_of(
            body_of({"type": choice(("text", "json_object"))}, required=("type",)),
            body_of({"type": constant("json_schema"), **_named_schema_fields()}, required=("type", "name", "schema")),
        ),
        "ReasoningOptions": body_of(
            {
                "effort": choice(EFFORTS, "How much the model thinks."),
                "summary": choice(SUMMARIES, "Asks for a summary of the reasoning instead of its text."),
                "generate_summary": choice(SUMMARIES, "The older name of `summary`."),
                "mode": choice(("standard",)),
                "context": choice(("auto",)),
            }
        ),
    }


def _handed_on_schemas() -> dict[str, Schema]:
    fields = {"model": string("A name of `/v1/models`. May be left out if there is only one.")}
    text = any_of(string(), array(any_of(string(), integer(), array(integer()))), about="Texts, or their tokens.")
    return {
        name: mapping("Other fields are handed on.", properties={**fields, key: text}, required=[key])
        for name, key in (("CreateEmbeddings", "input"), ("CreateCompletion", "prompt"))
    } | {"CompletionChunk": mapping("A chunk as the provider sent it, or an error.", properties={"model": string()})}


def _chat_schemas() -> dict[str, Schema]:
    tool = body_of({"type": constant("function"), "function": ref("FunctionDefinition")}, required=("type", "function"))
    stream_options = body_of(
        {
            "include_usage": boolean("True: a last chunk has the tokens."),
            "include_obfuscation": only(False),
        },
        "Only with `stream`.",
    )
    return {
        "CreateChatCompletion": body_of(
            {
                "model": string("A name of `/v1/models`. May be left out if there is only one."),
                "messages": array(
                    ref("ChatMessage"), "The whole conversation.", max_items=MAX_INPUT_ITEMS, min_items=1
                ),
                "stream": boolean("True: the reply is a stream of chunks."),
                "stream_options": stream_options,
                "tools": array(
                    any_of(tool, ref("MCPTool")), "Your functions, and MCP servers.", max_items=MAX_REQUEST_TOOLS
                ),
                "tool_choice": ref("ChatToolChoice"),
                "parallel_tool_calls": boolean("False: the model calls one tool at a time."),
                "response_format": ref("ChatResponseFormat"),
                "max_completion_tokens": integer("Tokens of one answer of the model, at most.", minimum=1),
                "max_tokens": integer("The older name of `max_completion_tokens`.", minimum=1),
                **_sampling_fields(),
                "reasoning_effort": choice(EFFORTS, "How much the model thinks."),
                "verbosity": choice(VERBOSITIES),
                "metadata": METADATA,
                "safety_identifier": string(max_length=MAX_IDENTIFIER_CHARS),
                "prompt_cache_key": string(max_length=MAX_IDENTIFIER_CHARS),
                **_CACHE_HINTS,
                "user": string(max_length=MAX_INPUT_TEXT_CHARS),
                "service_tier": _SERVICE_TIER,
                "n": only(1),
                "store": only(False),
                "logprobs": boolean("True: the answer has log probabilities."),
                "top_logprobs": _TOP_LOGPROBS,
                "logit_bias": mapping("Only empty.", maxProperties=0),
                "modalities": array(choice(("text",)), "Only text."),
            },
            required=("messages",),
        ),
        "ChatResponseFormat": _chat_format(),
        "ChatToolChoice": _chat_tool_choice(),
        **_chat_message_schemas(),
    }


def _chat_format() -> Schema:
    return any_of(
        body_of({"type": choice(("text", "json_object"))}, required=("type",)),
        body_of(
            {
                "type": constant("json_schema"),
                "json_schema": body_of(_named_schema_fields(), required=("name", "schema")),
            },
            required=("type", "json_schema"),
        ),
    )


def _chat_tool_choice() -> Schema:
    chosen = body_of(
        {
            "type": constant("function"),
            "function": body_of({"name": string(min_length=1)}, required=("name",)),
        },
        required=("type", "function"),
    )
    allowed = body_of({"mode": choice(CHOICE_MODES), "tools": array(chosen, min_items=1)}, required=("tools",))
    return any_of(
        choice(CHOICE_MODES),
        chosen,
        ref("MCPServerReference"),
        body_of({"type": constant("allowed_tools"), "allowed_tools": allowed}, required=("type", "allowed_tools")),
    )


def _chat_message_schemas() -> dict[str, Schema]:
    ignored = {"description": "Ignored: some SDKs send it back."}
    name = {"name": string(max_length=MAX_IDENTIFIER_CHARS)}
    return {
        "ChatMessage": any_of(
            *(ref(f"Chat{who}Message") for who in ("System", "User", "Assistant", "Tool")),
            about="A message. Its `role` says which of these it is.",
        ),
        "ChatSystemMessage": body_of(
            {"role": choice(("system", "developer")), "content": _chat_content("Text"), **name},
            required=("role", "content"),
        ),
        "ChatUserMessage": body_of(
            {"role": constant("user"), "content": _chat_content("Text", "Image", "Audio", "File"), **name},
            required=("role", "content"),
        ),
        "ChatAssistantMessage": body_of(
            {
                "role": constant("assistant"),
                "content": _chat_content("SentText", "SentRefusal"),
                **name,
                "tool_calls": array(_chat_call()),
                "refusal": string(),
                REASONING_FIELD: string(),
                "annotations": array({}),
                "parsed": ignored,
                "provider_specific_fields": ignored,
            },
            "An earlier answer, sent back. It has `content`, `refusal` or `tool_calls`.",
            required=("role",),
            one_of=("content", "refusal", "tool_calls"),
        ),
        "ChatToolMessage": body_of(
            {
                "role": constant("tool"),
                "tool_call_id": string("The call.", max_length=MAX_CALL_ID_CHARS, min_length=1),
                "content": _chat_content("Text", "Image"),
                "name": string("Ignored: the call has it."),
            },
            "The output of one of your functions.",
            required=("role", "tool_call_id", "content"),
        ),
        **_chat_part_schemas(ignored),
    }


def _chat_content(*parts: str) -> Schema:
    return any_of(LONG_TEXT, array(any_of(*(ref(f"Chat{part}Part") for part in parts))))


def _chat_call() -> Schema:
    function = body_of(
        {
            "name": string(max_length=2 * MAX_TOOL_NAME_CHARS, min_length=1),
            "arguments": string("JSON."),
            "parsed_arguments": {"description": "Ignored."},
        },
        required=("name", "arguments"),
    )
    return body_of(
        {
            "id": string(max_length=MAX_CALL_ID_CHARS, min_length=1),
            "type": constant("function"),
            "index": {"description": "Ignored."},
            "function": function,
        },
        required=("id", "function"),
    )


def _chat_part_schemas(ignored: Schema) -> dict[str, Schema]:
    sent_back = dict.fromkeys(("role", "annotations", "tool_calls", REASONING_FIELD), ignored)
    text = {"type": constant("text"), "text": LONG_TEXT, "parsed": ignored, **CACHE_MARK}
    image = body_of(
        {
            "url": string(
                "An http or https URL, or a data URL with an image.",
                max_length=MAX_IMAGE_URL_CHARS,
                pattern=IMAGE_URL,
                example="https://example.com/chart.png",
            ),
            "detail": choice(("auto", "low", "high")),
        },
        required=("url",),
    )
    sound = body_of(
        {"data": string("Base64.", max_length=MAX_FILE_DATA_CHARS), "format": choice(AUDIO_TYPES)},
        required=("data", "format"),
    )
    file = body_of(
        {"file_data": string("Base64, or a data URL.", max_length=MAX_FILE_DATA_CHARS), "filename": string()},
        required=("file_data",),
    )
    refusal = {"type": constant("refusal"), "refusal": LONG_TEXT, "parsed": ignored, **CACHE_MARK}
    return {
        "ChatTextPart": body_of(text, required=("type", "text")),
        "ChatImagePart": body_of(
            {"type": constant("image_url"), "image_url": image, **CACHE_MARK}, required=("type", "image_url")
        ),
        "ChatAudioPart": body_of(
            {"type": constant("input_audio"), "input_audio": sound, **CACHE_MARK}, required=("type", "input_audio")
        ),
        "ChatFilePart": body_of({"type": constant("file"), "file": file, **CACHE_MARK}, required=("type", "file")),
        "ChatSentTextPart": body_of(
            {**text, **sent_back, "refusal": ignored}, "Text of an earlier answer.", required=("type", "text")
        ),
        "ChatSentRefusalPart": body_of({**refusal, **sent_back}, required=("type", "refusal")),
    }
