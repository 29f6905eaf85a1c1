"""OAuth's metadata of a protected resource (RFC 9728): where an MCP client gets a token for this gateway.

A client that is refused with 401 reads the address of the metadata in `WWW-Authenticate`, finds the identity provider
there, and lets its user log in. Only a gateway that accepts tokens of an identity provider has metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.http.asgi import find_base_url
from holodeck.gateway.http.errors import MCP_PATH, APIError
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.models.callers import JWTCallers
from holodeck.models.gateway import GatewayFile

WELL_KNOWN = "/.well-known/oauth-protected-resource"

_declare = partial(
    route,
    "GET",
    tag="MCP",
    description=(
        "For MCP clients that log in (RFC 9728): the address of the endpoint, and of the identity provider. 404 "
        "if the gateway has no `jwt`, as that of these examples."
    ),
    reply="ResourceMetadata",
    example=examples.RESOURCE_METADATA,
    is_public=True,
)


class ResourceMetadata:
    """Describes the MCP endpoint to clients without a token."""

    def __init__(self, get_settings: Callable[[], GatewayFile]) -> None:
        self._get_settings = get_settings

    @_declare(WELL_KNOWN, id="getResourceMetadata", summary="Find the identity provider")
    @_declare(
        f"{WELL_KNOWN}{MCP_PATH}",
        id="getResourceMetadataOfMCP",
        summary="Find the identity provider of the MCP endpoint",
    )
    @_declare(
        f"{WELL_KNOWN}{MCP_PATH}/{{server}}",
        id="getResourceMetadataOfServer",
        summary="Find the identity provider of one server",
    )
    async def get(self, request: Request) -> Reply:
        """Return the metadata of the endpoint, or of the one of a server. 404 without an identity provider."""
        jwt = self._get_settings().jwt
        if jwt is None:
            message = "This gateway accepts only keys of its operator: there is no identity provider to log in to."
            raise APIError(404, message, kind="not_found", code="unknown_url")
        server = request.path_params.get("server")
        path = MCP_PATH if server is None else f"{MCP_PATH}/{server}"
        return json_reply(
            {
                "resource": self._base_url(request.headers, request.scheme) + path,
                "authorization_servers": [self._find_authorization_server(jwt, request)],
                "bearer_methods_supported": ["header"],
                "resource_name": "HoloDeck",
            }
        )

    def _find_authorization_server(self, jwt: JWTCallers, request: Request) -> str:
        """Return this gateway where clients log in at it, or else the identity provider."""
        if self._get_settings().mcp_endpoint.login is None:
            return jwt.issuer
        return self._base_url(request.headers, request.scheme)

    def challenge(self, headers: Mapping[str, str], scheme: str, path: str) -> str:
        """Return the value of `WWW-Authenticate` for a request that is refused at this path of the endpoint."""
        if self._get_settings().jwt is None:
            return "Bearer"
        return f'Bearer resource_metadata="{self._base_url(headers, scheme)}{WELL_KNOWN}{path}"'

    def _base_url(self, headers: Mapping[str, str], scheme: str) -> str:
        return find_base_url(self._get_settings().mcp_endpoint.public_url, headers, scheme)
