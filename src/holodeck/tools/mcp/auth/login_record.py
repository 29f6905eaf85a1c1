"""What is known of a login: read from a store, handed to the SDK in its own shapes, and written down as it grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holodeck.lib.clock import Clock
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.auth.store import Record

if TYPE_CHECKING:
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken


@dataclass(frozen=True, kw_only=True)
class Login:
    """Who logs in, where."""

    server: str
    url: str
    client_id: str | None = None
    client_secret: Secret | None = None
    client_metadata_url: str | None = None
    issuer: str | None = None
    """Pins the authorization server: another one that the MCP server names is refused."""
    scopes: tuple[str, ...] = ()
    allow_insecure_hosts: tuple[str, ...] = ()


class LoginRecord:
    """The SDK's token storage for one flow. `content` is plain data, for a store to keep when the flow is over."""

    def __init__(self, login: Login, content: Record, *, redirect_uri: str, clock: Clock) -> None:
        self.login = login
        self.content = content
        self._redirect_uri = redirect_uri
        self._clock = clock

    @property
    def tokens(self) -> Any:
        return self.content.get("tokens")

    def client_metadata(self) -> OAuthClientMetadata:
        """What we say of ourselves when we register."""
        from mcp.shared.auth import OAuthClientMetadata

        scope = " ".join(self.login.scopes) or None
        return OAuthClientMetadata.model_validate(
            {"client_name": "HoloDeck", "redirect_uris": [self._redirect_uri], "scope": scope}
        )

    async def get_tokens(self) -> OAuthToken | None:
        from mcp.shared.auth import OAuthToken

        return OAuthToken.model_validate(self.tokens) if self.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.content["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self.content["issued_at"] = self._clock()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client of the file, or else the one that was registered."""
        from mcp.shared.auth import OAuthClientInformationFull

        known = self.content.get("client")
        if self.login.client_id:
            secret = self.login.client_secret
            known = {
                "client_id": self.login.client_id,
                "client_secret": secret.reveal() if secret else None,
                "redirect_uris": [self._redirect_uri],
                "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
                "issuer": self.login.issuer,
            }
        return OAuthClientInformationFull.model_validate(known) if known else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.content["client"] = client_info.model_dump(mode="json", exclude_none=True)

    def restore(self, context: OAuthContext) -> None:
        """A refresh after a restart goes to the same authorization server, without asking the MCP server again."""
        from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

        if known := self.content.get("server_metadata"):
            context.oauth_metadata = OAuthMetadata.model_validate(known)
        if known := self.content.get("resource_metadata"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(known)
        context.auth_server_url = self.content.get("auth_server_url")

    def remember(self, context: OAuthContext) -> None:
        """The places that `restore` will want to know."""
        found = {
            "server_metadata": context.oauth_metadata,
            "resource_metadata": context.protected_resource_metadata,
        }
        for name, metadata in found.items():
            if metadata is not None:
                self.content[name] = metadata.model_dump(mode="json", exclude_none=True)
        self.content["auth_server_url"] = context.auth_server_url

    def secrets(self) -> Iterator[str]:
        """What no error may show."""
        tokens, client = self.tokens or {}, self.content.get("client") or {}
        own = self.login.client_secret
        kept = (tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret"))
        yield from (secret for secret in (*kept, own.reveal() if own else None) if secret)
