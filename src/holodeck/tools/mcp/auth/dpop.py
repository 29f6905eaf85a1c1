"""DPoP (RFC 9449): tokens bound to a key, so that a stolen token is useless. Each request carries its own signature."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from holodeck.lib.clock import Clock, wall_clock
from holodeck.tools.mcp.auth.auth_http import AuthHTTP, AuthResponse
from holodeck.tools.mcp.auth.provider import AuthRefusal, challenge_parameter

NONCE_WANTED = "use_dpop_nonce"
_FORM = "application/x-www-form-urlencoded"


class ProofKey:
    """The key pair of one client, and the latest nonce of each server for its proofs."""

    def __init__(self, *, clock: Clock = wall_clock) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from jwt.algorithms import ECAlgorithm

        self._algorithm = ECAlgorithm(ECAlgorithm.SHA256)
        self._set_key(ec.generate_private_key(ec.SECP256R1()))
        self._clock = clock
        self._nonces: dict[str, str] = {}

    def export(self) -> dict[str, str]:
        """Return the private key as a JWK, to be stored with the token that is bound to it."""
        return dict(self._algorithm.to_jwk(self._key, as_dict=True))

    def restore(self, exported: Mapping[str, str]) -> None:
        """Use an exported key from now on."""
        self._set_key(self._algorithm.from_jwk(dict(exported)))

    def _set_key(self, key: Any) -> None:
        self._key = key
        self._public = self._algorithm.to_jwk(key.public_key(), as_dict=True)

    def build_proof(self, method: str, url: str, *, token: str | None = None) -> str:
        """Return the proof for one request, a JWT that is valid for no other request."""
        import jwt

        claims: dict[str, Any] = {
            "jti": uuid.uuid4().hex,
            "htm": method,
            "htu": _target_uri(url),
            "iat": int(self._clock()),
        }
        if nonce := self._nonces.get(_origin(url)):
            claims["nonce"] = nonce
        if token is not None:
            digest = hashlib.sha256(token.encode("ascii")).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"typ": "dpop+jwt", "jwk": self._public})

    def store_nonce(self, url: str, headers: Mapping[str, str]) -> bool:
        """Store the nonce of a response. True when it is a new one."""
        nonce = next((value for name, value in headers.items() if name.lower() == "dpop-nonce"), None)
        if not nonce or self._nonces.get(_origin(url)) == nonce:
            return False
        self._nonces[_origin(url)] = nonce
        return True


class DPoPHTTP:
    """HTTP client that adds a proof to token requests, and repeats one once when the server demands its nonce.

    Tokens that were issued through it are presented with `build_headers`, and refusals of them go through
    `store_nonce`.
    """

    def __init__(self, http: AuthHTTP, key: ProofKey) -> None:
        self._http = http
        self.key = key
        self.is_bound = False
        """True when the last token was bound to the key. A server may ignore the proof and issue a bearer token."""

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> AuthResponse:
        sent = dict(headers or {})
        if method != "POST" or not _is_form(sent):
            return await self._http(method, url, headers=sent, body=body)
        answer = await self._post_with_proof(url, sent, body)
        content = answer.json() or {}
        if self.key.store_nonce(url, answer.headers) and content.get("error") == NONCE_WANTED:
            answer = await self._post_with_proof(url, sent, body)
            content = answer.json() or {}
        if "access_token" not in content:
            return answer
        self.is_bound = str(content.get("token_type", "")).lower() == "dpop"
        # The grants accept bearer tokens only; `build_headers` decides how the token is presented.
        return AuthResponse(
            status=answer.status, headers=answer.headers, body=orjson.dumps({**content, "token_type": "Bearer"})
        )

    def build_headers(self, token: str, method: str, url: str) -> dict[str, str]:
        """Return the headers that present a token to the MCP server."""
        if not self.is_bound:
            return {"Authorization": f"Bearer {token}"}
        return {"Authorization": f"DPoP {token}", "DPoP": self.key.build_proof(method, url, token=token)}

    def store_nonce(self, refusal: AuthRefusal) -> bool:
        """Store the nonce of a refusal. True when the server demanded it, so that the request may be repeated."""
        is_new = self.key.store_nonce(refusal.url, refusal.headers)
        return is_new and challenge_parameter(refusal.www_authenticate, "error") == NONCE_WANTED

    async def _post_with_proof(self, url: str, headers: Mapping[str, str], body: bytes) -> AuthResponse:
        return await self._http("POST", url, headers={**headers, "DPoP": self.key.build_proof("POST", url)}, body=body)


def _is_form(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "content-type" and value.startswith(_FORM) for name, value in headers.items())


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _target_uri(url: str) -> str:
    """Return the URL without query and fragment (RFC 9449 section 4.2)."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
