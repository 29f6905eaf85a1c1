"""Client authentication at a token endpoint: a secret in header or form, a signed assertion, or the client id alone."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote_plus

from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.limits import MAX_SECRET_FILE_BYTES
from holodeck.lib.secret import Secret
from holodeck.lib.system.files import read_regular_file
from holodeck.tools.mcp.auth.provider import auth_error

# Seconds for which a signed client assertion is valid; authorization servers refuse long ones.
ASSERTION_LIFETIME = 300.0

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

Form = dict[str, str]
Headers = dict[str, str]


class ClientIdentity(Protocol):
    """Authenticates a client by adding to the form or the headers of a token request."""

    async def sign(self, form: Form, headers: Headers, *, audience: str) -> None: ...

    def secrets(self) -> Iterable[Secret]:
        """Return the values that must be masked in errors."""
        ...


class PublicClient:
    """A client id without a secret."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id

    async def sign(self, form: Form, headers: Headers, *, audience: str) -> None:
        form["client_id"] = self._client_id

    def secrets(self) -> Iterable[Secret]:
        return ()


class SecretInHeader:
    """`client_secret_basic`: both parts are form-encoded first (RFC 6749 section 2.3.1)."""

    def __init__(self, client_id: str, secret: Secret) -> None:
        self._client_id = client_id
        self._secret = secret

    async def sign(self, form: Form, headers: Headers, *, audience: str) -> None:
        headers["Authorization"] = f"Basic {self._credentials()}"

    def secrets(self) -> Iterable[Secret]:
        return (self._secret, Secret(quote_plus(self._secret.reveal())), Secret(self._credentials()))

    def _credentials(self) -> str:
        pair = f"{quote_plus(self._client_id)}:{quote_plus(self._secret.reveal())}"
        return base64.b64encode(pair.encode()).decode()


class SecretInForm:
    """`client_secret_post`."""

    def __init__(self, client_id: str, secret: Secret) -> None:
        self._client_id = client_id
        self._secret = secret

    async def sign(self, form: Form, headers: Headers, *, audience: str) -> None:
        form["client_id"] = self._client_id
        form["client_secret"] = self._secret.reveal()

    def secrets(self) -> Iterable[Secret]:
        return (self._secret, Secret(quote_plus(self._secret.reveal())))


class SignedAssertion:
    """`private_key_jwt`: sends a short-lived signature for one audience, never the key."""

    def __init__(
        self, client_id: str, key: Path | Secret, *, algorithm: str, server: str, clock: Clock = wall_clock
    ) -> None:
        self._client_id = client_id
        self._key = key
        self._algorithm = algorithm
        self._server = server
        self._clock = clock

    async def sign(self, form: Form, headers: Headers, *, audience: str) -> None:
        form["client_id"] = self._client_id
        form["client_assertion_type"] = ASSERTION_TYPE
        # The key file is read at each renewal, so that an operator can rotate the key without a restart.
        form["client_assertion"] = await asyncio.to_thread(self._assertion, audience)

    def secrets(self) -> Iterable[Secret]:
        return ()

    def _assertion(self, audience: str) -> str:
        import jwt

        now = int(self._clock())
        claims: dict[str, Any] = {
            "iss": self._client_id,
            "sub": self._client_id,
            "aud": audience,
            "iat": now,
            "exp": now + int(ASSERTION_LIFETIME),
            "jti": uuid.uuid4().hex,
        }
        try:
            return jwt.encode(claims, self._pem(), algorithm=self._algorithm)
        except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError):
            # The library's text may quote the key.
            raise auth_error(
                self._server,
                f"the private key cannot sign with {self._algorithm}."
                " 'private_key_file' must be an unencrypted PEM whose kind fits 'signing_algorithm'.",
            ) from None

    def _pem(self) -> str:
        if isinstance(self._key, Secret):
            return self._key.reveal()
        try:
            return read_regular_file(self._key, MAX_SECRET_FILE_BYTES).decode("ascii")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a PEM file"
            raise auth_error(self._server, f"the private key {self._key} cannot be read: {reason}.") from None
