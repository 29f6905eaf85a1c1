"""Both servers of DPoP (RFC 9449): one binds tokens to a key, the other wants a proof with every request."""

from __future__ import annotations

import hashlib
from typing import Any

import jwt
from aiohttp import web
from tools.mcp.auth_server import AuthServer
from tools.mcp.resource_server import ResourceServer


def _verify_proof(proof: str) -> tuple[str, dict[str, Any]]:
    """The key of a proof and its claims, once its signature is checked."""
    header = jwt.get_unverified_header(proof)
    claims: dict[str, Any] = jwt.decode(proof, jwt.PyJWK.from_dict(header["jwk"]).key, ["ES256"])
    assert "d" not in header["jwk"], "only the public part is sent"
    return header["jwk"]["x"], claims


async def issue_bound(server: AuthServer, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
    """Issue a bound token for a proof that has this server's nonce."""
    _, claims = _verify_proof(request.headers["DPoP"])
    assert (claims["htm"], claims["htu"]) == ("POST", server.token_url)
    if claims.get("nonce") != "as-nonce":
        return web.json_response({"error": "use_dpop_nonce"}, status=400, headers={"DPoP-Nonce": "as-nonce"})
    return server.issue(token_type="DPoP")


class BoundResource:
    """Lets a resource server accept nothing but bound tokens with a proof that has its nonce."""

    def __init__(self, server: ResourceServer) -> None:
        self._server = server
        self.proofs: list[str] = []
        self.keys: set[str] = set()
        server.judge = self._judge

    async def _judge(self, request: web.Request) -> web.StreamResponse | None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "DPoP":
            return None
        key, claims = _verify_proof(request.headers["DPoP"])
        digest = jwt.utils.base64url_encode(hashlib.sha256(token.encode()).digest()).decode()
        assert (claims["ath"], claims["htu"]) == (digest, self._server.mcp)
        if claims.get("nonce") != "rs-nonce":
            headers = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": "rs-nonce"}
            return web.Response(status=401, headers=headers)
        self.proofs.append(claims["jti"])
        self.keys.add(key)
        return web.Response(text="welcome")
