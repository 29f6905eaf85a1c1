"""The models of `auth`: how HoloDeck authenticates to a remote MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from holodeck.lib.secret import Secret
from holodeck.models.file_model import Boolean, FileModel, Integer, NonEmpty


def _require_type(schema: dict[str, Any]) -> None:
    """Require `type` in files, where it tells the kinds apart. In Python, the class does."""
    del schema["properties"]["type"]["default"]
    schema["required"] = ["type", *schema.get("required", [])]


class _AuthModel(FileModel):
    model_config = ConfigDict(json_schema_extra=_require_type)


class BearerAuth(_AuthModel):
    """A fixed token, sent as `Authorization: Bearer ...`."""

    type: Literal["bearer"] = "bearer"
    """Authentication with a fixed token. E.g. `bearer`, not `baerer`."""
    token: Secret
    """Token, as a variable: `${API_TOKEN}`. E.g. `${API_TOKEN}`, not absent."""


class OAuthClientCredentials(_AuthModel):
    """OAuth 2 client credentials.

    `token_url` or `issuer` determines the server that receives the secret; the MCP server cannot change it.
    """

    type: Literal["oauth_client_credentials"] = "oauth_client_credentials"
    """OAuth without a user: the client authenticates itself. E.g. `oauth_client_credentials`, not `oauth`."""
    client_id: NonEmpty
    """Client id at the authorization server. E.g. `holodeck`, not absent."""
    client_secret: Secret | None = None
    """Client secret, as a variable: `${CLIENT_SECRET}`. E.g. `${CLIENT_SECRET}`, not `${NOT_SET}`."""
    private_key_file: NonEmpty | None = None
    """PEM file of a private key. The client then signs (`private_key_jwt`) instead of sending a secret. E.g.
    `client.pem`, not `missing.pem`, beside `{client_secret: null}`."""
    signing_algorithm: NonEmpty = "ES256"
    """Signature algorithm for the private key; it must match the type of the key. E.g. `ES256`, not `''`, beside
    `{client_secret: null, private_key_file: client.pem}`."""
    assertion_file: NonEmpty | None = None
    """File with a JWT that the platform writes for this workload, presented as the grant (RFC 7523). E.g.
    `assertion.jwt`, not `missing.jwt`, beside `{client_secret: null}`."""
    token_url: NonEmpty | None = None
    """URL of the token endpoint. It or `issuer` is required. E.g. `https://login.example.com/token`, not
    `login.example.com/token`, beside `{issuer: null}`."""
    issuer: NonEmpty | None = None
    """URL of the authorization server, whose metadata names the token endpoint. E.g. `https://login.example.com`, not
    absent."""
    auth_method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] | None = None
    """How the client authenticates. Absent: chosen by the server's metadata and the keys above. E.g.
    `client_secret_post`, not `post`."""
    scopes: list[NonEmpty] = Field(default_factory=list)
    """Scopes to request, such as `read`. Absent: the authorization server's default. E.g. `[tickets.read]`, not
    `tickets.read`."""
    resource: NonEmpty | None = None
    """Resource that the tokens are for, usually the URL of the MCP server. E.g. `https://mcp.example.com/mcp`, not
    `''`."""
    dpop: Boolean = False
    """Bind tokens to a key of this client (DPoP), where the authorization server supports it. E.g. `true`, not `'yes'`.
    """

    if TYPE_CHECKING:
        # A secret is given as text, which its field converts.
        def __init__(
            self,
            *,
            client_id: str,
            client_secret: str | Secret | None = None,
            private_key_file: str | None = None,
            signing_algorithm: str = "ES256",
            assertion_file: str | None = None,
            token_url: str | None = None,
            issuer: str | None = None,
            auth_method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] | None = None,
            scopes: list[str] = ...,
            resource: str | None = None,
            dpop: bool = False,
        ) -> None: ...


class OAuthAuthorizationCode(_AuthModel):
    """OAuth 2 authorization code with PKCE, for a user with a browser.

    `holodeck mcp login SERVER` starts it, or an operator of a gateway from its console.
    """

    type: Literal["oauth_authorization_code"] = "oauth_authorization_code"
    """OAuth with a user: login with a browser. E.g. `oauth_authorization_code`, not `oauth`."""
    per: Literal["gateway", "caller"] = "gateway"
    """Whose login a gateway calls tools with: one for all callers, or that of each caller. E.g. `caller`, not `user`.
    """
    client_id: NonEmpty | None = None
    """Client id at the authorization server. Absent: the client registers itself, or uses `client_metadata_url`. E.g.
    `holodeck`, not `''`."""
    client_secret: Secret | None = None
    """Client secret, as a variable. Requires `client_id` and `issuer`. E.g. `${CLIENT_SECRET}`, not `${NOT_SET}`,
    beside `{client_id: holodeck, issuer: 'https://login.example.com'}`."""
    client_metadata_url: NonEmpty | None = None
    """https URL of a document that describes this client, instead of a registration. E.g.
    `https://example.com/holodeck.json`, not `''`."""
    issuer: NonEmpty | None = None
    """URL of the authorization server. Absent: the one that the MCP server names. E.g. `https://login.example.com`, not
    `login.example.com`."""
    scopes: list[NonEmpty] = Field(default_factory=list)
    """Scopes to request. Absent: those that the MCP server names. E.g. `[tickets.read]`, not `tickets.read`."""
    redirect_port: Integer | None = Field(default=None, ge=1, le=65535)
    """Loopback port of the redirect of `holodeck mcp login`. Absent: any free port. E.g. `8976`, not `70000`."""
    dpop: Boolean = False
    """Bind tokens to a key that is stored with them (DPoP), where the authorization server supports it. E.g. `true`,
    not `'yes'`."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            per: Literal["gateway", "caller"] = "gateway",
            client_id: str | None = None,
            client_secret: str | Secret | None = None,
            client_metadata_url: str | None = None,
            issuer: str | None = None,
            scopes: list[str] = ...,
            redirect_port: int | None = None,
            dpop: bool = False,
        ) -> None: ...


Auth = Annotated[BearerAuth | OAuthClientCredentials | OAuthAuthorizationCode, Field(discriminator="type")]
