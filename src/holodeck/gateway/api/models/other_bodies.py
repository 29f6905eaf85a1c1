"""Bodies of the routes that ask no model: keys, MCP servers, conversations and questions. Fields are in reading order.

Also what the gateway itself reads of a body that it hands on to a provider.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from holodeck.config.edit.caller_keys import SETTINGS
from holodeck.gateway.api.model import NAMED, APIModel, ClosedModel, NonEmptyText
from holodeck.gateway.api.models.create_response import METADATA_SCHEMA
from holodeck.lib.limits import DAY, MAX_INPUT_TEXT_CHARS
from holodeck.models.callers import ROLES

# Seconds for which the key before may be accepted as well.
MAX_GRACE_SECONDS = int(90 * DAY)
# Characters of a redirect URI: more than addresses of gateways have, and less than many servers accept.
MAX_REDIRECT_URI_CHARS = 2_000
MAX_NEW_ITEMS = 20
CALLBACK_PATH = "/v1/mcp/login/callback"
"""Where the browser comes back to after a login."""

_Mapping = Annotated[Any, WithJsonSchema({"type": "object"})]
_Metadata = Annotated[dict[str, Any], WithJsonSchema(METADATA_SCHEMA), Field(description="Your own key-value pairs.")]
_NewItems = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "maxLength": MAX_INPUT_TEXT_CHARS},
                {"type": "array", "items": {NAMED: "InputItem"}, "maxItems": MAX_NEW_ITEMS},
            ]
        }
    ),
]


class CreateKey(ClosedModel):
    """A caller, and what it may do. Settings are those of `keys` in the gateway file."""

    name: NonEmptyText = Field(description="Name of the caller.")
    role: Annotated[Any, WithJsonSchema({"enum": list(ROLES)})] = Field(
        default=None,
        description="What the caller may do beside its own requests, as `keys[].role` of the gateway file.",
    )
    group: Annotated[Any, WithJsonSchema({"type": "string"})] = Field(
        default=None, description="Group of the caller, by its name in `groups` of the gateway file."
    )
    allow: _Mapping = Field(
        default=None,
        description="What the caller may use: `models`, `agents`, `servers` and `tools`, as lists of globs.",
    )
    limits: _Mapping = Field(default=None, description="As `keys[].limits` of the gateway file.")
    budget: _Mapping = Field(default=None, description="As `keys[].budget` of the gateway file.")
    expires: Annotated[Any, WithJsonSchema({"type": "string", "format": "date-time"})] = Field(
        default=None, description="Time after which the key is refused, with its time zone."
    )
    paused: Annotated[Any, WithJsonSchema({"type": "boolean"})] = Field(
        default=None, description="Whether the key is refused for now."
    )


class UpdateKey(CreateKey):
    """One setting at least. A null removes it."""

    one_of: ClassVar[tuple[str, ...]] = SETTINGS


class RotateKey(ClosedModel):
    """A caller that gets a new key."""

    name: NonEmptyText
    grace_seconds: Annotated[int, Field(ge=0, le=MAX_GRACE_SECONDS)] | None = Field(
        default=None, description="Seconds for the key before."
    )


class AcceptTools(ClosedModel):
    """Tools that an operator has looked at."""

    tools: Annotated[dict[str, Any], Field(min_length=1, description="The digest of each tool, by its name.")]


class StartLogin(ClosedModel):
    """A login of an operator at an MCP server."""

    redirect_uri: Annotated[str, Field(max_length=MAX_REDIRECT_URI_CHARS)] | None = Field(
        default=None,
        description=(
            f"Address of this gateway as the browser has it, with the path of a proxy, and `{CALLBACK_PATH}` at its "
            "end. Its origin must be that of the page or of the request. `mcp_endpoint.public_url` takes precedence."
        ),
    )


class CreateConversation(ClosedModel):
    """A conversation, with its first items."""

    items: _NewItems = None
    metadata: _Metadata | None = None


class UpdateConversation(ClosedModel):
    """The metadata is replaced; null empties it."""

    metadata: _Metadata | None


class AddItems(ClosedModel):
    """Items for a conversation."""

    one_of: ClassVar[tuple[str, ...]] = ("items",)
    items: _NewItems = None


class AnswerElicitation(ClosedModel):
    """The answer of a person to a question of an MCP server."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = Field(
        default=None, description="The members of an accepted form. A member that is left out has its default."
    )


class HandedOnBody(APIModel):
    """A body for the provider of a model."""

    model: str | None = None
    stream: bool | None = None
