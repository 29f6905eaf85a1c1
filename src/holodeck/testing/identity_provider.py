"""An OpenID Connect provider on loopback, for tests of logins.

`IdentityProvider` answers discovery, authorization requests and token requests as a real one does, and signs its tokens
with a key of its own. It checks what a client sends: its id and secret, its redirect URI, PKCE with S256, and that each
code is used once. With `like="entra"` it behaves as Microsoft's: it registers no clients, refuses `resource`, has no
metadata of RFC 8414, and names no issuer beside a code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import unquote_plus, urlencode

from aiohttp import web

# Seconds for which the tokens are valid.
_TOKEN_SECONDS = 3_600
_KEY_ID = "key-1"


class IdentityProvider:
    """An identity provider, as an async context manager. The person at its login page is `person`."""

    def __init__(
        self,
        like: Literal["standard", "entra"] = "standard",
        *,
        client_id: str = "holodeck",
        client_secret: str | None = None,
        audience: str = "holodeck",
        port: int = 0,
    ) -> None:
        """`audience`: of its access tokens. `client_secret`: None for a public client. `port`: 0 for a free one."""
        from cryptography.hazmat.primitives.asymmetric import ec

        self._is_entra = like == "entra"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._codes: dict[str, tuple[dict[str, str], dict[str, Any]]] = {}
        self._runner: web.AppRunner | None = None
        self._port = port
        self.client_id = client_id
        self.client_secret = client_secret
        self.audience = audience
        self.url = ""
        self.person: dict[str, Any] | None = {"sub": "anna", "name": "Anna Example"}
        """The claims of the person that is logged in there. None: the person says no."""
        self.id_claims: dict[str, Any] = {}
        """Claims of ID tokens that are other than they should be."""
        self.response_parameters: dict[str, str | None] = {}
        """Parameters beside a code that are other than they should be. None: left out."""
        self.has_page = False
        """Whether a person has to press a button before the browser goes back."""
        self.authorizations: list[dict[str, str]] = []
        """The authorization requests that it has accepted."""
        self.token_requests: list[dict[str, str]] = []
        """The forms of the token requests, also of those that it has refused."""
        self.registrations: list[dict[str, Any]] = []
        """The clients that have registered themselves."""

    @property
    def issuer(self) -> str:
        return f"{self.url}/tenant/v2.0" if self._is_entra else self.url

    @property
    def jwt_entry(self) -> dict[str, Any]:
        """The entry `jwt` of a gateway file, without `login`."""
        return {"issuer": self.issuer, "audience": self.audience, "jwks_url": f"{self.url}/keys"}

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None  # noqa: S101 - entered
        await self._runner.cleanup()

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token of this issuer with these claims beside the usual ones."""
        import jwt

        now = int(time.time())
        usual = {"iss": self.issuer, "aud": self.audience, "iat": now, "exp": now + _TOKEN_SECONDS}
        return jwt.encode({**usual, **claims}, self._key, algorithm="ES256", headers={"kid": _KEY_ID})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.url.path == f"{self.issuer.removeprefix(self.url)}/.well-known/openid-configuration":
            return web.json_response(self._build_metadata())
        match request.path:
            case "/.well-known/oauth-authorization-server" if not self._is_entra:
                return web.json_response(self._build_metadata())
            case "/keys":
                return web.json_response({"keys": [self._build_public_key()]})
            case "/authorize":
                return self._authorize(dict(request.query))
            case "/token":
                return await self._exchange(request)
            case "/register" if not self._is_entra:
                body = await request.json()
                self.registrations.append(body)
                return web.json_response({**body, "client_id": f"client-{len(self.registrations)}"}, status=201)
        return web.json_response({"error": "not_found"}, status=404)

    def _build_metadata(self) -> dict[str, Any]:
        metadata = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }
        if self._is_entra:
            return metadata
        return {
            **metadata,
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _build_public_key(self) -> dict[str, Any]:
        from jwt.algorithms import ECAlgorithm

        return {**json.loads(ECAlgorithm.to_jwk(self._key.public_key())), "kid": _KEY_ID, "alg": "ES256"}

    def _authorize(self, query: dict[str, str]) -> web.Response:
        if query.get("client_id") != self.client_id or "redirect_uri" not in query:
            return web.Response(status=400, text="AADSTS700016: this client is not known here.")
        if problem := self._find_problem(query):
            return self._redirect(query, {"error": "invalid_request", "error_description": problem})
        if query.get("is_confirmed") is None and self.has_page:
            fields = "".join(f'<input type="hidden" name="{name}" value="{query[name]}">' for name in query)
            page = f'<!doctype html><form>{fields}<button name="is_confirmed" value="yes">Sign in</button></form>'
            return web.Response(text=page, content_type="text/html")
        if self.person is None:
            return self._redirect(query, {"error": "access_denied", **self._build_issuer_parameter()})
        self.authorizations.append(query)
        code = secrets.token_urlsafe(16)
        self._codes[code] = query, self.person
        return self._redirect(query, {"code": code, **self._build_issuer_parameter()})

    def _build_issuer_parameter(self) -> dict[str, str]:
        return {} if self._is_entra else {"iss": self.issuer}

    def _find_problem(self, query: Mapping[str, str]) -> str | None:
        if query.get("response_type") != "code" or "openid" not in query.get("scope", "").split():
            return "This is not an authentication request for a code."
        if query.get("code_challenge_method") != "S256" or not query.get("code_challenge"):
            return "PKCE with S256 is required."
        if self._is_entra and "resource" in query:
            return "AADSTS9010010: the parameter 'resource' does not match the requested scopes."
        return None

    def _redirect(self, query: Mapping[str, str], answer: Mapping[str, str | None]) -> web.Response:
        said = {**answer, "state": query.get("state"), **self.response_parameters}
        parameters = urlencode({name: value for name, value in said.items() if value is not None})
        return web.Response(status=302, headers={"location": f"{query['redirect_uri']}?{parameters}"})

    async def _exchange(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.token_requests.append(form)
        query, person = self._codes.pop(form.get("code", ""), ({}, {}))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        is_verified = base64.urlsafe_b64encode(digest).decode().rstrip("=") == query.get("code_challenge")
        if not self._is_client(request, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        if not is_verified or form.get("redirect_uri") != query["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if self._is_entra and "resource" in form:
            return web.json_response({"error": "invalid_target"}, status=400)
        id_claims = {**person, "aud": self.client_id, "nonce": query.get("nonce"), **self.id_claims}
        # Microsoft's access tokens for its own services cannot be read by others.
        access_token = secrets.token_urlsafe(32) if self._is_entra else self.sign(person)
        tokens = {"token_type": "Bearer", "expires_in": _TOKEN_SECONDS, "scope": query["scope"]}
        return web.json_response({**tokens, "access_token": access_token, "id_token": self.sign(id_claims)})

    def _is_client(self, request: web.Request, form: Mapping[str, str]) -> bool:
        kind, _, credentials = request.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            name, _, secret = base64.b64decode(credentials).decode().partition(":")
            sent = unquote_plus(name), unquote_plus(secret)
        else:
            sent = form.get("client_id", ""), form.get("client_secret", "")
        return sent == (self.client_id, self.client_secret or "")
