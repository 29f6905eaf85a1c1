"""How HoloDeck proves to a remote MCP server who it is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holodeck.lib.secret import Secret
from holodeck.models.base import FileModel, Integer, NonEmpty


class BearerAuth(FileModel):
    """A token that somebody made for us, sent as `Authorization: Bearer ...`."""

    type: Literal["bearer"]
    token: Secret


class OAuthClientCredentials(FileModel):
    """OAuth 2 for machines. `token_url` or `issuer` pins who may see the secret: the MCP server has no say in it."""

    type: Literal["oauth_client_credentials"]
    client_id: NonEmpty
    client_secret: Secret | None = None
    private_key_file: NonEmpty | None = None
    """A PEM file; with it the client signs (`private_key_jwt`) instead of sending a secret."""
    signing_algorithm: NonEmpty = "ES256"
    token_url: NonEmpty | None = None
    issuer: NonEmpty | None = None
    auth_method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] | None = None
    scopes: list[NonEmpty] = Field(default_factory=list)
    resource: NonEmpty | None = None


class OAuthAuthorizationCode(FileModel):
    """OAuth 2 for a person at a browser, with PKCE; `holodeck mcp login SERVER` starts it."""

    type: Literal["oauth_authorization_code"]
    client_id: NonEmpty | None = None
    """Absent: the client registers itself, or names its metadata document."""
    client_secret: Secret | None = None
    client_metadata_url: NonEmpty | None = None
    issuer: NonEmpty | None = None
    scopes: list[NonEmpty] = Field(default_factory=list)
    redirect_port: Integer | None = Field(default=None, ge=1, le=65535)
    """The loopback port of the redirect. Absent: any free one."""


Auth = Annotated[BearerAuth | OAuthClientCredentials | OAuthAuthorizationCode, Field(discriminator="type")]
