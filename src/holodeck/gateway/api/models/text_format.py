"""Formats of an answer, in the Responses API and in Chat Completions, where the schema is one object deeper."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holodeck.gateway.api.model import ClosedModel
from holodeck.gateway.api.models.tools import CheckedSchema, ShortText


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
