"""Formats of an answer, in the Responses API and in Chat Completions, where the schema is one object deeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from holodeck.gateway.api.field_rows import Places, RequestField, Treatment, build_example
from holodeck.gateway.api.model import ClosedModel
from holodeck.gateway.api.models.tools import CheckedSchema, ShortText

CITY_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
"""The schema of the examples."""
IN_FORMAT: Places = {
    "chat": "response_format.json_schema.schema",
    "responses": "text.format.schema",
    "anthropic": "output_config.format.schema",
}
CHECKED = "The gateway also checks the answer, and asks again."
_IN_JSON_MODE: Places = {"chat": "response_format", "responses": "text.format", "anthropic": "output_config.format"}


def format_rows(path: str, schema_format: Mapping[str, Any]) -> tuple[RequestField, ...]:
    """Build the rows of the format at a path. `schema_format`: the example of one with a schema."""
    rows: tuple[tuple[Treatment, Mapping[str, Any], str, Places], ...] = (
        ("no_effect", {"type": "text"}, "It is what a model answers anyway.", {}),
        ("passed_on", {"type": "json_object"}, CHECKED, _IN_JSON_MODE),
        ("passed_on", schema_format, CHECKED, IN_FORMAT),
    )
    return tuple(
        RequestField(
            path=f"{path}.type",
            treatment=treatment,
            about=about,
            example=build_example(path, entry),
            value=entry["type"],
            sent_as=places,
        )
        for treatment, entry, about, places in rows
    )


class NamedSchema(ClosedModel):
    """A schema that the answer must match."""

    name: ShortText
    json_schema: CheckedSchema = Field(alias="schema")
    strict: bool | None = None
    description: str | None = None


class SchemaFormat(NamedSchema):
    """An answer that matches a schema."""

    type: Literal["json_schema"]


class ChatSchemaFormat(ClosedModel):
    """An answer that matches a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


class PlainFormat(ClosedModel):
    """An answer without a schema."""

    type: Literal["text", "json_object"]
