"""Callers with a token of an identity provider: signature, issuer, audience and time are checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from holodeck.gateway.auth.callers import JWT_CALLER_PREFIX, Caller, is_storable
from holodeck.lib import log
from holodeck.lib.limits import MIB
from holodeck.lib.system.files import read_regular_file
from holodeck.lib.types import record
from holodeck.models.gateway import JWTCallers

# Seconds between two clocks that are both right.
JWT_LEEWAY = 30
# Tokens with made-up key ids must not make us hammer the identity provider.
JWKS_MIN_REFRESH = 30.0
# Seconds until keys are asked for again: one that was withdrawn opens nothing for longer.
JWKS_MAX_AGE = 600.0
JWKS_TIMEOUT = 10.0


_MAX_JWKS_BYTES = 1 * MIB


@record
class _SigningKey:
    """A public key of the issuer that is meant for signatures."""

    public_key: Any
    algorithm: str | None
    """The only algorithm that it is for; None: the set does not say."""


class JWTProvider:
    """Recognises tokens. A key that is not known makes one fetch, however many tokens wait for it.

    Those that are known are looked at again now and then: the issuer may have withdrawn one.
    """

    def __init__(self, config: JWTCallers, folder: Path, *, max_age: float = JWKS_MAX_AGE) -> None:
        self._config = config
        self._folder = folder
        self._keys: dict[str, _SigningKey] = {}
        self._max_age = max_age
        self._renewal: asyncio.Task[None] | None = None
        self._fetched_at = float("-inf")
        self._lock = asyncio.Lock()

    async def authenticate(self, token: str) -> Caller | None:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in self._config.algorithms:
                return None
            key = await self._find_key(str(header.get("kid", "")))
            if key is None or key.algorithm not in (None, header["alg"]):
                return None
            claims = jwt.decode(
                token,
                key.public_key,
                algorithms=list(self._config.algorithms),
                audience=self._config.audience,
                issuer=self._config.issuer,
                leeway=JWT_LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except Exception:
            return None
        who = claims.get(self._config.caller_claim)
        if not isinstance(who, str) or not who or not is_storable(who):
            return None
        scopes = str(claims.get("scope", "")).split()
        return Caller(
            id=f"{JWT_CALLER_PREFIX}{who}",
            is_admin=self._config.admin_scope in scopes,
            issuer=self._config.issuer,
            expires_at=int(claims["exp"]) + JWT_LEEWAY,
        )

    def is_known(self, caller_id: str, issuer: str) -> bool:
        """`issuer` is empty for work of a version that did not keep it."""
        return caller_id.startswith(JWT_CALLER_PREFIX) and issuer in ("", self._config.issuer)

    async def _find_key(self, kid: str) -> _SigningKey | None:
        if kid not in self._keys:
            async with self._lock:
                if kid not in self._keys and time.monotonic() - self._fetched_at > JWKS_MIN_REFRESH:
                    await self._fetch_keys()
        elif time.monotonic() - self._fetched_at > self._max_age and (self._renewal is None or self._renewal.done()):
            self._renewal = asyncio.create_task(self._renew_keys(), name="renew keys")  # nobody waits for it
        return self._keys.get(kid)

    async def _renew_keys(self) -> None:
        async with self._lock:
            await self._fetch_keys()

    async def _fetch_keys(self) -> None:
        try:
            data = orjson.loads(await self._read_jwks())
            self._keys = dict(_signing_keys(data["keys"]))
        except Exception as error:  # whatever goes wrong at the provider, callers are simply not recognised
            log.warning("gateway.jwks_failed", issuer=self._config.issuer, error=type(error).__name__)
        self._fetched_at = time.monotonic()

    async def _read_jwks(self) -> bytes:
        if self._config.jwks_file:
            return await asyncio.to_thread(read_regular_file, self._folder / self._config.jwks_file, _MAX_JWKS_BYTES)
        # Imported late: it takes a quarter of a gateway's start, which others do without.
        from holodeck.lib.net.aiohttp_client import create_http_client, read_body

        async with (
            asyncio.timeout(JWKS_TIMEOUT),
            create_http_client(connect_timeout=JWKS_TIMEOUT) as client,
            client.get(str(self._config.jwks_url), allow_redirects=False) as response,
        ):
            response.raise_for_status()
            return await read_body(response, _MAX_JWKS_BYTES)


def _signing_keys(jwks: list[Any]) -> Iterator[tuple[str, _SigningKey]]:
    """The keys of a set by their ids, without those that are for encryption or of an unknown kind (RFC 7517)."""
    import jwt

    for jwk in jwks:
        if jwk.get("use", "sig") != "sig" or "verify" not in jwk.get("key_ops", ("verify",)):
            continue
        with suppress(jwt.PyJWTError):
            key = _SigningKey(public_key=jwt.PyJWK.from_dict(jwk).key, algorithm=jwk.get("alg"))
            yield str(jwk.get("kid") or ""), key
