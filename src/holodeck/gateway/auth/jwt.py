"""Authentication by JSON Web Tokens of an identity provider.

The signature, the issuer, the audience and the expiry of a token are checked. The public keys come from the issuer's
key set (JWKS), a file or a URL. They are fetched when a token names an unknown key, at most once in
`JWKS_MIN_REFRESH` seconds, and renewed in the background once they are older than `JWKS_MAX_AGE`. A key set that
cannot be fetched is logged, and the keys of before stay in use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from holodeck.gateway.auth.callers import (
    JWT_CALLER_PREFIX,
    Caller,
    ClaimValues,
    Credential,
    KeyRefusal,
    is_storable,
)
from holodeck.gateway.auth.groups import Group, Groups
from holodeck.gateway.auth.scope import CallerScope
from holodeck.lib import log
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import MIB
from holodeck.lib.net.http1_pool import send_once
from holodeck.lib.record import record
from holodeck.lib.system.files import read_regular_file
from holodeck.lib.tasks import TaskSet
from holodeck.models.callers import ROLES, JWTCallers, Role, Scope

# Seconds by which the clocks of the issuer and of this machine may differ.
JWT_LEEWAY = 30
# Seconds between two fetches for unknown key ids: tokens with invented ids must not flood the identity provider.
JWKS_MIN_REFRESH = 30.0
# Seconds until the keys are fetched again: the longest time that a withdrawn key is accepted.
JWKS_MAX_AGE = 600.0
# Seconds for one fetch of the key set.
JWKS_TIMEOUT = 10.0

# Bytes of a key set: far more than the keys of any issuer.
_MAX_JWKS_BYTES = 1 * MIB
# Claims that hold several values in one text, separated by spaces (RFC 8693, and some identity providers).
_SPACED_CLAIMS = frozenset({"scope", "scp"})
# Combinations of claim values whose scopes are remembered: compiling one takes longer than all of a small request.
_MAX_SCOPES = 256
# Seconds that `close` waits for a fetch to end.
_CLOSE_SECONDS = 1.0


@record
class _SigningKey:
    """A public key of the issuer for signatures."""

    public_key: Any
    algorithm: str | None
    """The only algorithm that the key is for. None: the key set does not say."""


class JWTProvider:
    """Authenticates tokens of one issuer. Tokens that need an unknown key at the same time share one fetch."""

    def __init__(
        self, config: JWTCallers, folder: Path, groups: Groups | None = None, *, max_age: float = JWKS_MAX_AGE
    ) -> None:
        self.config = config
        self._groups: Groups = groups or {}
        self._scopes = _list_scopes(config, self._groups)
        self._folder = folder
        self._keys: dict[str, _SigningKey] = {}
        self._max_age = max_age
        self._renewals = TaskSet()
        self._fetched_at = float("-inf")
        self._lock = asyncio.Lock()
        self._build_scope = lru_cache(_MAX_SCOPES)(partial(_build_scope, config, self._scopes))

    def is_of(self, config: JWTCallers, groups: Groups) -> bool:
        """Return whether a provider that is built of these would be the same."""
        return self.config == config and self._groups == groups

    def list_credentials(self) -> Sequence[Credential]:
        # What a token may do can change without that the token is withdrawn.
        rights = dict.fromkeys(("role_by_scope", "allow", "allow_by_claim", "login", "trusted_header"))
        return [(JWT_CALLER_PREFIX, self.config.model_copy(update=rights).model_dump_json())]

    async def authenticate(self, token: str) -> Caller | None:
        claims = await self.verify(token, self.config.audience)
        return None if claims is None else self.build_caller(claims)

    async def verify(self, token: str, audience: str) -> Mapping[str, Any] | None:
        """Return the claims of a token of this issuer for an audience. None: it is none, or has expired."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in self.config.algorithms:
                return None
            key = await self._find_key(str(header.get("kid", "")))
            if key is None or key.algorithm not in (None, header["alg"]):
                return None
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.public_key,
                algorithms=list(self.config.algorithms),
                audience=audience,
                issuer=self.config.issuer,
                leeway=JWT_LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except Exception:
            return None
        return claims

    def build_caller(self, claims: Mapping[str, Any]) -> Caller | None:
        """Return the caller that a token with these claims belongs to. None: they name none."""
        subject = claims.get(self.config.caller_claim)
        if not isinstance(subject, str) or not subject or not is_storable(subject):
            return None
        scopes, values = str(claims.get("scope", "")).split(), self._matching_values(claims)
        group = self._find_group(values)
        return Caller(
            id=f"{JWT_CALLER_PREFIX}{subject}",
            role=_find_role(self.config, scopes),
            issuer=self.config.issuer,
            expires_at=int(claims["exp"]) + JWT_LEEWAY,
            scope=self._build_scope(values),
            claim_values={self.config.allow_by_claim.claim: values} if self.config.allow_by_claim is not None else {},
            group=None if group is None else group.name,
            shared=() if group is None else (group.account,),
        )

    @property
    def deciding_claims(self) -> tuple[str, ...]:
        """The claims that decide the id and the rights of a caller."""
        by_claim = self.config.allow_by_claim
        return (self.config.caller_claim, "scope", *(() if by_claim is None else (by_claim.claim,)))

    def find_caller(self, caller_id: str, issuer: str, claim_values: ClaimValues) -> Caller | None:
        """Return the caller of stored work."""
        if not caller_id.startswith(JWT_CALLER_PREFIX) or issuer != self.config.issuer:
            return None
        values = self._matching_values(claim_values)
        group = self._find_group(values)
        return Caller(
            id=caller_id,
            issuer=self.config.issuer,
            scope=self._build_scope(values),
            claim_values=claim_values,
            group=None if group is None else group.name,
            shared=() if group is None else (group.account,),
        )

    def explain_refusal(self, token: str) -> KeyRefusal | None:
        return None

    def take_expired(self) -> Collection[str]:
        # A request of a token is refused when it has expired. What it has begun may end.
        return ()

    def _matching_values(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the values of the claim of `allow_by_claim` that the file has a scope for, in the order of the
        file: those of groups last."""
        settings = self.config.allow_by_claim
        if settings is None:
            return ()
        held = claims.get(settings.claim)
        if isinstance(held, str):
            held = held.split() if settings.claim in _SPACED_CLAIMS else [held]
        return tuple(value for value in self._scopes if isinstance(held, list | tuple) and value in held)

    def _find_group(self, values: tuple[str, ...]) -> Group | None:
        """Return the first group that one of these values makes a token a member of."""
        found = (group for group in self._groups.values() if not group.claim_values.keys().isdisjoint(values))
        return next(found, None)

    async def close(self) -> None:
        await self._renewals.close(_CLOSE_SECONDS)

    async def _find_key(self, kid: str) -> _SigningKey | None:
        if kid not in self._keys:
            async with self._lock:
                if kid not in self._keys and time.monotonic() - self._fetched_at > JWKS_MIN_REFRESH:
                    await self._fetch_keys()
        elif time.monotonic() - self._fetched_at > self._max_age and not self._renewals:
            # In the background: the known key is still good for this token.
            self._renewals.start(self._renew_keys(), name="renew keys")
        return self._keys.get(kid)

    async def _renew_keys(self) -> None:
        async with self._lock:
            await self._fetch_keys()

    async def _fetch_keys(self) -> None:
        try:
            data = parse_json(await self._read_jwks())
            self._keys = dict(_signing_keys(data["keys"]))
        # A boundary: whatever fails at the identity provider, tokens with unknown keys are not recognised.
        except Exception as error:
            log.warning("gateway.jwks_failed", issuer=self.config.issuer, error=type(error).__name__)
        self._fetched_at = time.monotonic()

    async def _read_jwks(self) -> bytes:
        if self.config.jwks_file:
            return await asyncio.to_thread(read_regular_file, self._folder / self.config.jwks_file, _MAX_JWKS_BYTES)
        async with (
            asyncio.timeout(JWKS_TIMEOUT),
            send_once("GET", str(self.config.jwks_url), connect_timeout=JWKS_TIMEOUT) as response,
        ):
            if response.status != HTTPStatus.OK:
                raise OSError(f"HTTP {response.status}")
            return await response.read_all(_MAX_JWKS_BYTES)


def _find_role(config: JWTCallers, scopes: Sequence[str]) -> Role | None:
    """Return the role of a token with these scopes: of several, the one that may do most."""
    if config.role_by_scope is None:
        return None
    found = {config.role_by_scope.get(scope) for scope in scopes}
    return next((role for role in ROLES if role in found), None)


def _list_scopes(config: JWTCallers, groups: Groups) -> Mapping[str, Scope]:
    """Return the scopes of tokens by the values of the claim."""
    found = dict(config.allow_by_claim.values) if config.allow_by_claim is not None else {}
    for group in groups.values():
        found |= group.claim_values
    return found


def _build_scope(config: JWTCallers, scopes: Mapping[str, Scope], values: tuple[str, ...]) -> CallerScope:
    """Return the scope of tokens with these values of the claim, all of which have one."""
    if values:
        return CallerScope.of(scopes[value] for value in values)
    if config.allow is not None:
        return CallerScope.of([config.allow])
    return CallerScope.everything() if config.allow_by_claim is None else CallerScope.of(())


def _signing_keys(jwks: list[Any]) -> Iterator[tuple[str, _SigningKey]]:
    """Yield the keys of a key set by their ids, without those for encryption or of an unknown kind (RFC 7517)."""
    import jwt

    for jwk in jwks:
        if jwk.get("use", "sig") != "sig" or "verify" not in jwk.get("key_ops", ("verify",)):
            continue
        with suppress(jwt.PyJWTError):
            key = _SigningKey(public_key=jwt.PyJWK.from_dict(jwk).key, algorithm=jwk.get("alg"))
            yield str(jwk.get("kid") or ""), key
