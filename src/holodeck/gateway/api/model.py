"""The base of the models that declare bodies of requests, and the types of their fields.

A field has its type and limits, its description for the OpenAPI document and its row in the table of request fields in
one declaration, from which the reader, the schema and the table derive. A field that is null counts as absent: one of
the type `None` is refused with any value, for the reason in its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from holodeck.gateway.api.field_rows import RequestField
from holodeck.lib.limits import MAX_INPUT_TEXT_CHARS, MAX_SHOWN_CHARS

NAMED = "schema_name"
"""Keyword of a declared JSON Schema: a name of a schema of the OpenAPI document, or pairs of a `type` and a name."""
NO_VALUE = WithJsonSchema({"not": {}})
"""Mark of a field that is refused with any value, and is not part of the OpenAPI document."""
LongText = Annotated[str, Field(max_length=MAX_INPUT_TEXT_CHARS)]
NonEmptyText = Annotated[str, StringConstraints(min_length=1)]


class APIModel(BaseModel):
    """An object of a request. Its validator is built when the first request needs it.

    Members that are not declared are in `model_extra`, since one error for each of them would have no limit.
    """

    model_config = ConfigDict(defer_build=True, strict=True, extra="allow", hide_input_in_errors=True)


class ClosedModel(APIModel):
    """An object inside a body, which has no other members than those declared, unless they are null."""

    @model_validator(mode="after")
    def _refuse_unknown(self) -> Self:
        for key, value in (self.__pydantic_extra__ or {}).items():
            if value is not None:
                raise PydanticCustomError("unknown", "{key}", {"key": key[:MAX_SHOWN_CHARS]})
        return self


def declare_field(
    row: RequestField, about: str | None = None, *, is_required: bool = False, alias: str | None = None
) -> Any:
    """Declare a field, with its row and its description in the OpenAPI document.

    `alias`: its name in requests, where Python does not allow that.
    """
    extra: Any = {"row": row}
    return Field(default=... if is_required else None, description=about, json_schema_extra=extra, alias=alias)


def accept_only(harmless: object, reason: str) -> AfterValidator:
    """Accept one value of a field, which asks for nothing special, and refuse all others for a reason."""

    def check(value: object) -> object:
        if value != harmless:
            raise PydanticCustomError("unsupported", reason)
        return value

    return AfterValidator(check)


def limit_length(max_length: int) -> BeforeValidator:
    """Refuse a list that is too long before its elements are read."""

    def check(value: Any) -> Any:
        if isinstance(value, list) and len(value) > max_length:
            limits = {"field_type": "List", "max_length": max_length, "actual_length": len(value)}
            raise PydanticKnownError("too_long", limits)
        return value

    return BeforeValidator(check)


def invalid(about: str, code: str = "invalid_value", *, at: str = "") -> PydanticCustomError:
    """Build the error of a value. `about`: the end of the message. `at`: a path inside the field."""
    return PydanticCustomError("invalid", "", {"about": about, "code": code, "at": at})


def list_rows(model: type[APIModel]) -> Iterator[RequestField]:
    """Return the rows of the fields of a model that have one, in their order."""
    for field in model.model_fields.values():
        extra: Any = field.json_schema_extra
        if extra is not None:
            yield extra["row"]
