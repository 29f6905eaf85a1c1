"""Content parts of messages and of the outputs of tools in the Responses API. Fields are in reading order."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from holodeck.gateway.api.model import (
    AS_MANY_AS_ITEMS,
    FAIL_FAST,
    NO_VALUE,
    ClosedModel,
    LongText,
    OneOf,
    TextOr,
    accept_only,
    invalid,
    refuse_value,
)
from holodeck.lib.limits import MAX_FILE_DATA_CHARS, MAX_IMAGE_URL_CHARS

NO_FILES = "This gateway stores no files: send the content itself, or its URL."
AS_IT_IS = "A file is handed on as it is."
WEB_URL = "^https?://"
_WEB_SCHEMES = ("https://", "http://")


def check_image_url(url: str) -> str:
    """Return the URL of an image. Raises `PydanticCustomError`."""
    if not url.startswith(("data:image/", *_WEB_SCHEMES)):
        raise invalid("expected an http or https URL, or a data URL with an image.", "invalid_url")
    return url


def check_web_url(url: str) -> str:
    """Return the URL of a file. Raises `PydanticCustomError`."""
    if not url.startswith(_WEB_SCHEMES):
        raise invalid("expected an http or https URL.", "invalid_url")
    return url


CacheBreakpoint = Annotated[
    dict[str, Any], Field(description="A mark for the prompt cache. Sent to the provider, if it has the field.")
]
FileContent = Annotated[str, Field(max_length=MAX_FILE_DATA_CHARS)]
ImageURL = Annotated[
    str,
    Field(
        max_length=MAX_IMAGE_URL_CHARS,
        description="An http or https URL, or a data URL with an image.",
        json_schema_extra={"pattern": "^(https?://|data:image/)"},
        examples=["https://example.com/chart.png"],
    ),
    AfterValidator(check_image_url),
]
NoFile = Annotated[Any, refuse_value(NO_FILES), NO_VALUE]
Sounds = Literal["wav", "mp3"]


class InputText(ClosedModel):
    type: Literal["input_text"]
    text: LongText
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class InputImage(ClosedModel):
    type: Literal["input_image"]
    file_id: NoFile = None
    image_url: ImageURL
    detail: Literal["auto", "low", "high", "original"] | None = Field(
        default=None, description="How closely the model looks at it."
    )
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class InputFile(ClosedModel):
    one_of: ClassVar[tuple[str, ...]] = ("file_data", "file_url")
    is_exclusive: ClassVar[bool] = True
    type: Literal["input_file"]
    file_id: NoFile = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None
    detail: (
        Annotated[
            Literal["auto", "low", "high"],
            accept_only("auto", AS_IT_IS),
            Field(json_schema_extra={"enum": ["auto"]}),
        ]
        | None
    ) = None
    filename: str | None = None
    file_data: FileContent | None = Field(default=None, description="The content, as base64 or as a data URL.")
    file_url: (
        Annotated[
            str,
            AfterValidator(check_web_url),
            Field(json_schema_extra={"pattern": WEB_URL}, examples=["https://example.com/report.pdf"]),
        ]
        | None
    ) = Field(
        default=None, description="A URL that the gateway fetches, instead of the content. The operator must allow it."
    )


class Sound(ClosedModel):
    data: FileContent = Field(description="Base64.")
    format: Sounds


class InputAudio(ClosedModel):
    type: Literal["input_audio"]
    # No model that takes sounds has a cache of them.
    prompt_cache_breakpoint: CacheBreakpoint | None = None
    input_audio: Sound


class SentOutputText(ClosedModel):
    """Text of an earlier answer, sent back."""

    type: Literal["output_text"]
    parsed: Any = Field(default=None, description="Ignored: some SDKs send the parsed text back.")
    annotations: Annotated[list[Any], AS_MANY_AS_ITEMS] | None = None
    logprobs: Annotated[list[Any], AS_MANY_AS_ITEMS] | None = None
    text: LongText


class SentRefusal(ClosedModel):
    type: Literal["refusal"]
    refusal: LongText


InputPart = Annotated[
    InputText | InputImage | InputFile | InputAudio | SentOutputText | SentRefusal, OneOf("InputPart")
]
AnswerPart = Annotated[SentOutputText | SentRefusal | InputText, OneOf("InputPart")]
_EXPECTED = TextOr("a string or an array of parts")
InputContent = Annotated[LongText | Annotated[list[InputPart], FAIL_FAST], _EXPECTED]
AnswerContent = Annotated[LongText | Annotated[list[AnswerPart], FAIL_FAST], _EXPECTED]
