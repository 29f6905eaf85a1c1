"""Messages of Chat Completions, their parts, and the functions that a request offers. Fields are in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from holodeck.gateway.api.model import (
    AS_MANY_AS_ITEMS,
    FAIL_FAST,
    NO_VALUE,
    ClosedModel,
    Ignored,
    LongText,
    OneOf,
    SentBack,
    TextOr,
    kinds_of,
    refuse_value,
)
from holodeck.gateway.api.models.create_chat_completion import TEXT_ONLY
from holodeck.gateway.api.models.input_items import AnyList, ToolName
from holodeck.gateway.api.models.parts import CacheBreakpoint, FileContent, ImageURL, Sound
from holodeck.gateway.api.models.tools import FunctionDefinition
from holodeck.lib.limits import MAX_CALL_ID_CHARS, MAX_IDENTIFIER_CHARS

USE_TOOL_CALLS = "Use 'tool_calls'."
NO_CHAT_FILES = "This gateway stores no files: send the content itself."
_Author = Annotated[str, Field(max_length=MAX_IDENTIFIER_CHARS)]
_CallId = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CALL_ID_CHARS)]


def _check_call_type(kind: str) -> str:
    if kind not in ("function", ""):
        raise PydanticCustomError("listed", "", {"expected": "'function'"})
    return kind


class _Part(ClosedModel):
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ChatTextPart(_Part):
    type: Literal["text"]
    parsed: SentBack = None
    text: LongText


class ChatImage(ClosedModel):
    url: ImageURL
    detail: Literal["auto", "low", "high"] | None = None


class ChatImagePart(_Part):
    type: Literal["image_url"]
    image_url: ChatImage


class ChatAudioPart(_Part):
    type: Literal["input_audio"]
    input_audio: Sound


class ChatFile(ClosedModel):
    file_id: Annotated[Any, refuse_value(NO_CHAT_FILES), NO_VALUE] = None
    file_data: FileContent = Field(description="Base64, or a data URL.")
    filename: str | None = None


class ChatFilePart(_Part):
    type: Literal["file"]
    file: ChatFile


class _SentPart(_Part):
    """A part of an answer, with fields that OpenAI's Agents SDK for JavaScript adds to the text part."""

    parsed: SentBack = None
    role: SentBack = None
    annotations: SentBack = None
    tool_calls: SentBack = None
    reasoning_content: SentBack = None


class ChatSentTextPart(_SentPart):
    """Text of an earlier answer."""

    type: Literal["text"]
    refusal: SentBack = None
    text: LongText


class ChatSentRefusalPart(_SentPart):
    type: Literal["refusal"]
    refusal: LongText


_EXPECTED = TextOr("a string or an array of parts")
_Texts = Annotated[list[Annotated[ChatTextPart, OneOf()]], FAIL_FAST, AS_MANY_AS_ITEMS]
_UserParts = Annotated[
    list[Annotated[ChatTextPart | ChatImagePart | ChatAudioPart | ChatFilePart, OneOf()]], FAIL_FAST, AS_MANY_AS_ITEMS
]
_AnswerParts = Annotated[list[Annotated[ChatSentTextPart | ChatSentRefusalPart, OneOf()]], FAIL_FAST, AS_MANY_AS_ITEMS]
_ResultParts = Annotated[list[Annotated[ChatTextPart | ChatImagePart, OneOf()]], FAIL_FAST, AS_MANY_AS_ITEMS]


class _Message(ClosedModel):
    function_call: Annotated[Any, refuse_value(USE_TOOL_CALLS), NO_VALUE] = None
    audio: Annotated[Any, refuse_value(TEXT_ONLY), NO_VALUE] = None


class ChatSystemMessage(_Message):
    role: Literal["system", "developer"]
    content: Annotated[LongText | _Texts, _EXPECTED]
    name: _Author | None = None


class ChatUserMessage(_Message):
    role: Literal["user"]
    content: Annotated[LongText | _UserParts, _EXPECTED]
    name: _Author | None = None


class CalledFunction(ClosedModel):
    name: ToolName
    arguments: str = Field(description="JSON.")
    parsed_arguments: Ignored = None


class ChatCall(ClosedModel):
    type: (
        Annotated[str, AfterValidator(_check_call_type), WithJsonSchema({"type": "string", "const": "function"})] | None
    ) = None
    index: Ignored = None
    id: _CallId
    function: CalledFunction


class ChatAssistantMessage(_Message):
    """An earlier answer, sent back. It has `content`, `refusal` or `tool_calls`."""

    one_of: ClassVar[tuple[str, ...]] = ("content", "refusal", "tool_calls")
    role: Literal["assistant"]
    name: _Author | None = None
    annotations: AnyList | None = None
    parsed: SentBack = None
    # LiteLLM stores our reasoning here a second time, and sends it back.
    provider_specific_fields: SentBack = None
    reasoning_content: str | None = None
    refusal: str | None = None
    content: Annotated[LongText | _AnswerParts, _EXPECTED] | None = None
    tool_calls: Annotated[list[ChatCall], FAIL_FAST, AS_MANY_AS_ITEMS] | None = None


class ChatToolMessage(_Message):
    """The output of one of your functions."""

    role: Literal["tool"]
    name: str | None = Field(default=None, description="Ignored: the call has it.")
    tool_call_id: _CallId = Field(description="The call.")
    content: Annotated[LongText | _ResultParts, _EXPECTED]


class ChatFunctionTool(ClosedModel):
    type: Literal["function"]
    function: FunctionDefinition


PART_MODELS = (
    ChatTextPart,
    ChatImagePart,
    ChatAudioPart,
    ChatFilePart,
    ChatSentTextPart,
    ChatSentRefusalPart,
)
MESSAGE_MODELS = (ChatSystemMessage, ChatUserMessage, ChatAssistantMessage, ChatToolMessage)
MODEL_OF_ROLE: Mapping[str, type[_Message]] = {
    role: model for model in MESSAGE_MODELS for role in kinds_of(model, "role")
}
"""The messages by their roles, in the order in which a refusal lists them."""
