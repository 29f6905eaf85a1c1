"""Rows of the tables of request fields: what the gateway does with one field of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal, get_args

from holodeck.lib.record import record
from holodeck.models.generation import API, OPTIONS, Option

Treatment = Literal["done", "passed_on", "no_effect", "refused"]
Dialect = Literal["chat", "responses", "anthropic"]
Places = Mapping[Dialect, str]

NOT_SUPPORTED = "This gateway does not implement it."
# Instead of a path in `RequestField.sent_as`.
REFUSED = "refused"
"""The request is refused, because models of this dialect have no such field."""
NOT_SENT = "not sent"
"""This dialect has no such field, and the request goes on without it."""
DESCRIBED = "described in words"
"""This dialect has no such content: the model reads that there was some."""


@record
class RequestField:
    """One row: a field by its path, such as `reasoning.effort` or `tools[].type`, and what the gateway does with it."""

    path: str
    treatment: Treatment
    about: str
    """For people. Of a refused field: the reason that the refusal gives after the name of the field."""
    example: Mapping[str, Any]
    """Fields of a body that has the field. Ids in it, such as `resp_example`, stand for real ones."""
    value: str | None = None
    """The value that the row is about. None: any."""
    harmless: Any = None
    """A value with which a refused field is accepted, because it asks for nothing. None: there is no such value."""
    sent_as: Places = field(default_factory=dict)
    """Where a field that is passed on is in the request to a model, by its dialect."""

    @property
    def param(self) -> str:
        """The `param` of the error, if the example is refused."""
        return self.path.replace("[]", "[0]")


def refusal_reasons(fields: Iterable[RequestField]) -> dict[str, str]:
    """Map the fields of a body that are refused with any value to the reasons."""
    return {
        row.path: row.about
        for row in fields
        if row.treatment == "refused" and row.harmless is None and row.path.isidentifier()
    }


def done_row(path: str, value: Any, about: str, **beside: Any) -> RequestField:
    """Build the row of a field that the gateway itself heeds. `beside`: other fields of the example."""
    return RequestField(path=path, treatment="done", about=about, example={**beside, **build_example(path, value)})


def no_effect_row(path: str, value: Any, reason: str) -> RequestField:
    """Build the row of a field that is accepted without effect."""
    return RequestField(path=path, treatment="no_effect", about=reason, example=build_example(path, value))


def passed_on_row(path: str, value: Any, sent_as: Places, about: str = "", **beside: Any) -> RequestField:
    """Build the row of a field that the model gets. `beside`: as in `done_row`."""
    example = {**beside, **build_example(path, value)}
    return RequestField(path=path, treatment="passed_on", about=about, example=example, sent_as=sent_as)


def refused_row(path: str, value: Any, reason: str, *, harmless: Any = None, **beside: Any) -> RequestField:
    """Build the row of a field that is refused. `beside`: as in `done_row`."""
    example = {**beside, **build_example(path, value)}
    return RequestField(path=path, treatment="refused", about=reason, example=example, harmless=harmless)


def option_rows(api: API, **tools: Any) -> tuple[RequestField, ...]:
    """Build the rows of the generation options of an API. `tools`: fields for options that are sent only with tools."""
    return tuple(
        passed_on_row(
            option.places[api].path,
            option.example,
            option_places(option),
            option.places[api].note,
            **(tools if option.is_with_tools else {}),
        )
        for option in OPTIONS
        if api in option.places
    )


def option_places(option: Option) -> Places:
    """Return where models get an option, by their dialect."""
    return {dialect: _place_of(option, dialect) for dialect in get_args(Dialect)}


def _place_of(option: Option, dialect: Dialect) -> str:
    if dialect in option.sent_as and dialect not in option.values_in:
        return option.sent_as[dialect]
    return REFUSED if option.hint is None else NOT_SENT


def everywhere(path: str) -> Places:
    """Return the places of a field that every dialect calls the same."""
    return {"chat": path, "responses": path, "anthropic": path}


def build_example(path: str, value: Any) -> dict[str, Any]:
    """Build the fields of a body with `value` at `path`, where `[]` is a list of one."""
    head, _, rest = path.partition(".")
    inner = build_example(rest, value) if rest else value
    return {head.removesuffix("[]"): [inner] if head.endswith("[]") else inner}
