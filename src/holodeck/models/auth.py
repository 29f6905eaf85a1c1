"""How HoloDeck proves to a remote MCP server who it is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holodeck.lib.secret import Secret
from holodeck.models.file_model import Boolean, FileModel, Integer, NonEmpty


class BearerAuth(FileModel):
    """A token that somebody made for us, sent as `Authorization: Bearer ...`."""

    type: Literal["bearer"]
    """A fixed token."""
    token: Secret
    """The token, as a variable: `${API_TOKEN}`."""


class OAuthClientCredentials(FileModel):
    """OAuth 2 for machines. `token_url` or `issuer` pins who may see the secret: the MCP server has no say in it."""

    type: Literal["oauth_client_credentials"]
    """OAuth for a machine, which needs no person."""
    client_id: NonEmpty
    """The name that the authorization server gave to this client."""
    client_secret: Secret | None = None
    """The client's secret, as a variable: `${CLIENT_SECRET}`."""
    private_key_file: NonEmpty | None = None
    """A PEM file; with it the client signs (`private_key_jwt`) instead of sending a secret."""
    signing_algorithm: NonEmpty = "ES256"
    """How the client signs with its private key; it must fit the kind of the key."""
    assertion_file: NonEmpty | None = None
    """A file with a JWT that the platform writes for this workload, presented as the grant (RFC 7523)."""
    token_url: NonEmpty | None = None
    """The address that issues tokens. It or `issuer` is required."""
    issuer: NonEmpty | None = None
    """The authorization server, whose metadata says where tokens are issued."""
    auth_method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] | None = None
    """How the client proves itself. Absent: as the authorization server and the keys above allow."""
    scopes: list[NonEmpty] = Field(default_factory=list)
    """The rights to ask for, such as `read`. Absent: the authorization server's default."""
    resource: NonEmpty | None = None
    """The resource that tokens are for, usually the MCP server's address."""
    dpop: Boolean = False
    """Bind tokens to a key of this client (DPoP), where the authorization server does that."""


class OAuthAuthorizationCode(FileModel):
    """OAuth 2 for a person at a browser, with PKCE; `holodeck mcp login SERVER` starts it."""

    type: Literal["oauth_authorization_code"]
    """OAuth for a person, who logs in with a browser."""
    client_id: NonEmpty | None = None
    """Absent: the client registers itself, or names its metadata document."""
    client_secret: Secret | None = None
    """The client's secret, as a variable. It needs `client_id` and `issuer`."""
    client_metadata_url: NonEmpty | None = None
    """The https address of a document that describes this client, instead of a registration."""
    issuer: NonEmpty | None = None
    """The authorization server. Absent: the one that the MCP server names."""
    scopes: list[NonEmpty] = Field(default_factory=list)
    """The rights to ask for. Absent: those that the MCP server asks for."""
    redirect_port: Integer | None = Field(default=None, ge=1, le=65535)
    """The loopback port of the redirect. Absent: any free one."""
    dpop: Boolean = False
    """Bind tokens to a key that is kept beside them (DPoP), where the authorization server does that."""


Auth = Annotated[BearerAuth | OAuthClientCredentials | OAuthAuthorizationCode, Field(discriminator="type")]
