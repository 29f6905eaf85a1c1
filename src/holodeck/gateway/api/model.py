"""The base of the models that declare bodies of requests, and the types of their fields.

A field has its type and limits, its description for the OpenAPI document and its row in the table of request fields in
one declaration, from which the reader, the schema and the table derive. A field that is null counts as absent: one of
the type `None` is refused with any value, for the reason in its row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Any, ClassVar, NoReturn, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from holodeck.gateway.api.field_rows import RequestField
from holodeck.lib.limits import MAX_INPUT_ITEMS, MAX_INPUT_TEXT_CHARS, MAX_SHOWN_CHARS

NAMED = "schema_name"
"""Keyword of a declared JSON Schema: a name of a schema of the OpenAPI document, or pairs of a `type` and a name."""
ALTERNATIVES = "alternatives"
"""Keyword of a declared JSON Schema: fields of which an object must have one, and whether only one."""
NO_VALUE = WithJsonSchema({"not": {}})
"""Mark of a field that is refused with any value, and is not part of the OpenAPI document."""
LongText = Annotated[str, Field(max_length=MAX_INPUT_TEXT_CHARS)]
NonEmptyText = Annotated[str, StringConstraints(min_length=1)]
Ignored = Annotated[Any, Field(description="Ignored.")]
SentBack = Annotated[Any, Field(description="Ignored: some SDKs send it back.")]


def _add_alternatives(schema: dict[str, Any], model: type[BaseModel]) -> None:
    if issubclass(model, APIModel) and model.one_of:
        schema[ALTERNATIVES] = (model.one_of, model.is_exclusive)


class APIModel(BaseModel):
    """An object of a request. Its validator is built when the first request needs it.

    Members that are not declared are in `model_extra`, since one error for each of them would have no limit.
    """

    model_config = ConfigDict(
        defer_build=True,
        strict=True,
        extra="allow",
        hide_input_in_errors=True,
        json_schema_extra=_add_alternatives,
    )
    one_of: ClassVar[tuple[str, ...]] = ()
    """Fields of which the object must have one at least. Its reader sees to it."""
    is_exclusive: ClassVar[bool] = False
    """Whether only one of these may be given."""


class ClosedModel(APIModel):
    """An object inside a body, which has no other members than those declared, unless they are null."""

    @model_validator(mode="after")
    def _refuse_unknown(self) -> Self:
        for key, value in (self.__pydantic_extra__ or {}).items():
            if value is not None:
                raise PydanticCustomError("unknown", "{key}", {"key": key[:MAX_SHOWN_CHARS]})
        return self


class _FailFast:
    """A mark of a list whose first wrong element ends the reading. Pydantic's own mark cannot be part of a union."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        return {**schema, "fail_fast": True}


FAIL_FAST = _FailFast()


class _Forms:
    """A mark of a union whose members are chosen by Python: pydantic would report the errors of all of them.

    The value of a form that the union does not have is refused by `refuse`. The tags of forms begin with `~`, so that
    they are not taken for members of the body in the place of an error.
    """

    def find_form(self, value: Any) -> str:
        """Return the tag of the form of a value."""
        raise NotImplementedError

    def refuse(self, value: Any) -> NoReturn:
        """Raise `PydanticCustomError` for a value that has no form of the union."""
        raise NotImplementedError

    def list_tags(self, member: Any) -> list[str]:
        """Return the tags of a member of the union."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices: dict[Any, CoreSchema] = {}
        for member in get_args(source) or (source,):
            choices |= dict.fromkeys(self.list_tags(member), handler.generate_schema(member))
        known = frozenset(choices)

        def find_tag(value: Any) -> str:
            tag = self.find_form(value)
            return tag if tag in known else "~other"

        choices["~other"] = core_schema.no_info_plain_validator_function(self.refuse)
        return core_schema.tagged_union_schema(choices, find_tag)


class OneOf(_Forms):
    """A mark of objects that one of their members tells apart: `Annotated[InputText | InputImage, OneOf()]`."""

    def __init__(self, name: str = "", *, key: str = "type", is_inline: bool = False) -> None:
        """Take the name of the schema of the union, or whether it is part of that in which it stands."""
        self._name = name
        self._key = key
        self._is_inline = is_inline
        self._models: tuple[type[APIModel], ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        self._models = get_args(source) or (source,)
        return super().__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        if self._name:
            return {NAMED: self._name}
        if self._is_inline:
            return {"anyOf": [handler(each) for tag, each in schema["choices"].items() if tag != "~other"]}
        return {"anyOf": [{NAMED: model.__name__} for model in self._models]}

    def find_form(self, value: Any) -> str:
        return f"~{value.get(self._key)}" if isinstance(value, dict) else "~other"

    def list_tags(self, member: Any) -> list[str]:
        return [f"~{kind}" for kind in kinds_of(member, self._key)]

    def list_kinds(self) -> list[str]:
        """Return what a refusal lists."""
        return [each for model in self._models for each in kinds_of(model, self._key)]

    def advise(self, kind: str) -> str:
        """Return the end of the refusal of a kind."""
        return ""

    def refuse(self, value: Any) -> NoReturn:
        if not isinstance(value, dict):
            raise PydanticCustomError("model_type", "")
        kind, at = value.get(self._key), f".{self._key}"
        if kind is None:
            raise PydanticCustomError("absent", "", {"at": at})
        if not isinstance(kind, str):
            raise wrong_type("a string", kind, at=at)
        listed = {"expected": list_choices(self.list_kinds()), "value": kind, "advice": self.advise(kind), "at": at}
        raise PydanticCustomError("listed", "", listed)


class TextOr(_Forms):
    """A mark of a value that is a text or an array: `Annotated[LongText | list[Part], TextOr("...")]`."""

    def __init__(self, expected: str) -> None:
        """Take both forms in words."""
        self._expected = expected

    def find_form(self, value: Any) -> str:
        return "~text" if isinstance(value, str) else "~array" if isinstance(value, list) else "~other"

    def list_tags(self, member: Any) -> list[str]:
        return ["~array" if "list[" in str(member) else "~text"]

    def refuse(self, value: Any) -> NoReturn:
        if value is None:
            raise PydanticCustomError("absent", "", {"at": ""})
        raise wrong_type(self._expected, value)


def kinds_of(model: type[APIModel], key: str = "type") -> list[str]:
    """Return the values that a member of a model can have, by which it is told from others."""
    found: list[str] = []
    pending: list[Any] = [model.model_fields[key].annotation]
    while pending:
        each = pending.pop(0)
        if isinstance(each, str):
            found.append(each)
        pending = [*get_args(each), *pending]
    return found


def list_choices(choices: Collection[str]) -> str:
    """Return values in words, for a refusal."""
    *others, last = (repr(choice) for choice in choices)
    return f"{', '.join(others)} and {last}" if others else last


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


AS_MANY_AS_ITEMS = limit_length(MAX_INPUT_ITEMS)
"""Mark of a list inside an item that is read by element."""


def refuse_value(reason: str) -> AfterValidator:
    """Refuse a field with any value but null, for a reason."""
    return accept_only(None, reason)


def wrong_type(expected: str, value: object, *, at: str = "") -> PydanticCustomError:
    """Build the error of a value, or of one at a path inside it, that is not what is expected."""
    return PydanticCustomError("wrong_type", "", {"expected": expected, "value": value, "at": at})


def invalid(about: str, code: str = "invalid_value", *, at: str = "") -> PydanticCustomError:
    """Build the error of a value. `about`: the end of the message. `at`: a path inside the field."""
    return PydanticCustomError("invalid", "", {"about": about, "code": code, "at": at})


def list_rows(model: type[APIModel]) -> Iterator[RequestField]:
    """Return the rows of the fields of a model that have one, in their order."""
    for field in model.model_fields.values():
        extra: Any = field.json_schema_extra
        if extra is not None:
            yield extra["row"]
