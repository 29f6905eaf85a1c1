"""Messages of the Messages API, and their blocks. Fields are in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from holodeck.gateway.api.model import (
    AS_MANY_AS_ITEMS,
    FAIL_FAST,
    APIModel,
    ClosedModel,
    LongText,
    OneOf,
    TextOr,
    invalid,
    kinds_of,
    list_choices,
)
from holodeck.gateway.api.models.input_items import AnyList, ToolName
from holodeck.gateway.api.models.parts import NO_FILES, WEB_URL, FileContent, ImageURL
from holodeck.gateway.api.models.tools import ShortText
from holodeck.lib.limits import MAX_CALL_ID_CHARS

CACHE_HINT = "A mark for the prompt cache. An Anthropic model gets it as it is; for others it has no effect."
NO_SERVER_BLOCKS = "Blocks of tools that Anthropic's servers run are not known here: leave them out."
NO_CITATIONS = "The models behind this gateway cite no documents."
WEB_TOOLS = ("web_search", "web_fetch")
"""Tools that Anthropic's servers run, and that an MCP tool can run here."""
_AS_THEY_ARE = "Images are handed on as they are."
_SOURCE_TYPES = ("base64", "url", "text", "content")


class _Blocks(OneOf):
    """A mark of blocks, whose refusal explains which of them are not known here."""

    def advise(self, kind: str) -> str:
        is_of_server = "server_tool" in kind or kind.endswith("_tool_result") or kind.startswith("mcp_")
        return NO_SERVER_BLOCKS if is_of_server else ""


class _Sources(OneOf):
    """A mark of the sources of an image or a document."""

    def refuse(self, value: Any) -> NoReturn:
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "file":
            raise PydanticCustomError("unsupported", NO_FILES, {"at": ".file_id"})
        if isinstance(kind, str) and kind not in _SOURCE_TYPES:
            listed = {"expected": list_choices(_SOURCE_TYPES), "value": kind, "at": ".type"}
            raise PydanticCustomError("listed", "", listed)
        super().refuse(value)


class _SearchContent(OneOf):
    """A mark of the results of a search, or its error."""

    def find_form(self, value: Any) -> str:
        return "~array" if isinstance(value, list) else super().find_form(value)

    def list_tags(self, member: Any) -> list[str]:
        return super().list_tags(member) if isinstance(member, type) else ["~array"]

    def list_kinds(self) -> list[str]:
        return ["web_search_tool_result_error"]


class Citations(APIModel):
    """Whether the model cites a document."""

    enabled: bool | None = None


def _refuse_citations(citations: Citations) -> Citations:
    if citations.enabled:
        raise PydanticCustomError("unsupported", NO_CITATIONS)
    return citations


def _refuse_transformations(transformations: dict[str, Any]) -> dict[str, Any]:
    if transformations:
        raise PydanticCustomError("unsupported", _AS_THEY_ARE)
    return transformations


def _check_document_url(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise invalid("expected an http or https URL.")
    return url


def _check_web_tool(name: str) -> str:
    if name not in WEB_TOOLS:
        raise PydanticCustomError("listed", "", {"expected": list_choices(WEB_TOOLS), "advice": NO_SERVER_BLOCKS})
    return name


_CallId = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CALL_ID_CHARS)]
_NoCitations = Annotated[
    Citations,
    AfterValidator(_refuse_citations),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"enabled": {"anyOf": [{"const": False}, {"type": "null"}]}},
            "additionalProperties": False,
        }
    ),
]


class _Block(ClosedModel):
    cache_control: Annotated[dict[str, Any], Field(description=CACHE_HINT)] | None = None


class MessagesText(_Block):
    type: Literal["text"]
    # Answers have this field, and clients send them back.
    citations: AnyList | None = None
    text: LongText


class ImageData(ClosedModel):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: FileContent


class ImageLocation(ClosedModel):
    type: Literal["url"]
    url: ImageURL


class MessagesImage(_Block):
    type: Literal["image"]
    transformations: (
        Annotated[
            dict[str, Any],
            AfterValidator(_refuse_transformations),
            WithJsonSchema({"type": "object", "maxProperties": 0}),
        ]
        | None
    ) = None
    source: Annotated[ImageData | ImageLocation, _Sources(is_inline=True)]


class DocumentData(ClosedModel):
    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: FileContent


class DocumentLocation(ClosedModel):
    type: Literal["url"]
    url: Annotated[
        LongText,
        AfterValidator(_check_document_url),
        Field(json_schema_extra={"pattern": WEB_URL}, examples=["https://example.com/report.pdf"]),
    ]


class DocumentText(ClosedModel):
    type: Literal["text"]
    media_type: Literal["text/plain"] | None = None
    data: LongText


class DocumentContent(ClosedModel):
    type: Literal["content"]
    content: (
        Annotated[
            LongText | Annotated[list[Annotated[MessagesText | MessagesImage, _Blocks()]], FAIL_FAST, AS_MANY_AS_ITEMS],
            TextOr("an array"),
        ]
        | None
    ) = None


class MessagesDocument(_Block):
    type: Literal["document"]
    citations: _NoCitations | None = None
    title: str | None = None
    context: LongText | None = None
    source: Annotated[
        DocumentData | DocumentLocation | DocumentText | DocumentContent,
        _Sources(is_inline=True),
    ]


Texts = Annotated[list[Annotated[MessagesText, _Blocks()]], FAIL_FAST, AS_MANY_AS_ITEMS]


class MessagesSearchResult(_Block):
    type: Literal["search_result"]
    citations: _NoCitations | None = None
    title: str
    source: str
    content: Texts | None = None


PartBlock = MessagesText | MessagesImage | MessagesDocument | MessagesSearchResult


class MessagesToolUse(_Block):
    type: Literal["tool_use"]
    id: _CallId
    name: ToolName
    input: dict[str, Any] | None = None
    # Answers of Anthropic's API say that the model itself made the call.
    caller: dict[str, Any] | None = None


class MessagesServerToolUse(MessagesToolUse):
    """A call of a declared MCP server, which the gateway has run."""

    type: Literal["mcp_tool_use"]  # type: ignore[assignment]
    server_name: ShortText


class MessagesWebToolUse(MessagesToolUse):
    """A call of a web tool, which this gateway has run, or Anthropic's servers."""

    type: Literal["server_tool_use"]  # type: ignore[assignment]
    name: Annotated[ToolName, AfterValidator(_check_web_tool), WithJsonSchema({"type": "string", "enum": [*WEB_TOOLS]})]


class _Result(_Block):
    tool_use_id: _CallId
    content: (
        Annotated[
            LongText | Annotated[list[Annotated[PartBlock, _Blocks()]], FAIL_FAST, AS_MANY_AS_ITEMS],
            TextOr("an array"),
        ]
        | None
    ) = None
    is_error: bool | None = None


class MessagesToolResult(_Result):
    type: Literal["tool_result"]


class MessagesServerToolResult(_Result):
    type: Literal["mcp_tool_result"]


class FoundPage(ClosedModel):
    """One result of a search."""

    type: Literal["web_search_result"]
    encrypted_content: LongText
    title: str
    url: str
    page_age: str | None = None


class SearchError(ClosedModel):
    type: Literal["web_search_tool_result_error"]
    error_code: str


class FetchError(ClosedModel):
    type: Literal["web_fetch_tool_result_error"]
    error_code: str


class FetchedPage(ClosedModel):
    type: Literal["web_fetch_result"]
    content: Annotated[MessagesDocument, _Blocks()]
    url: str
    retrieved_at: str | None = None


class _WebResult(_Block):
    tool_use_id: _CallId
    caller: dict[str, Any] | None = None


class MessagesWebSearchResult(_WebResult):
    """The results of a search, or the code of its error."""

    type: Literal["web_search_tool_result"]
    content: Annotated[
        Annotated[list[FoundPage], FAIL_FAST, AS_MANY_AS_ITEMS] | SearchError, _SearchContent(is_inline=True)
    ]


class MessagesWebFetchResult(_WebResult):
    """A page, or the code of an error."""

    type: Literal["web_fetch_tool_result"]
    content: Annotated[FetchError | FetchedPage, OneOf(is_inline=True)]


class MessagesSentThinking(_Block):
    type: Literal["thinking"]
    thinking: str
    signature: str


class MessagesRedactedThinking(_Block):
    type: Literal["redacted_thinking"]
    data: str


UserBlock = PartBlock | MessagesToolResult
AnswerBlock = (
    MessagesText
    | MessagesSentThinking
    | MessagesRedactedThinking
    | MessagesToolUse
    | MessagesServerToolUse
    | MessagesServerToolResult
    | MessagesWebToolUse
    | MessagesWebSearchResult
    | MessagesWebFetchResult
)
_EXPECTED = TextOr("a string or an array of blocks")


class UserMessage(ClosedModel):
    role: Literal["user"]
    content: Annotated[
        LongText | Annotated[list[Annotated[UserBlock, _Blocks()]], FAIL_FAST, AS_MANY_AS_ITEMS], _EXPECTED
    ]


class AnswerMessage(ClosedModel):
    role: Literal["assistant"]
    content: Annotated[
        LongText | Annotated[list[Annotated[AnswerBlock, _Blocks()]], FAIL_FAST, AS_MANY_AS_ITEMS], _EXPECTED
    ]


class SystemMessage(ClosedModel):
    role: Literal["system"]
    content: Annotated[LongText | Texts, _EXPECTED]


MESSAGE_MODELS: Mapping[str, type[APIModel]] = {
    kinds_of(model, "role")[0]: model for model in (UserMessage, AnswerMessage, SystemMessage)
}
"""The messages by their roles, in the order in which a refusal lists them."""
BLOCK_MODELS: tuple[type[APIModel], ...] = (
    MessagesText,
    MessagesImage,
    MessagesDocument,
    MessagesSearchResult,
    MessagesToolUse,
    MessagesToolResult,
    MessagesServerToolUse,
    MessagesServerToolResult,
    MessagesWebToolUse,
    MessagesWebSearchResult,
    MessagesWebFetchResult,
    MessagesSentThinking,
    MessagesRedactedThinking,
)
