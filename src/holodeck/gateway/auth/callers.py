"""Who is calling: a key that was made for them, or a token of an identity provider. Everything else is nobody."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holodeck.models.gateway import CallerKey, KeyLimits

KEY_PREFIX = "hd-"
_KEY_BYTES = 32
KEY_CALLER_PREFIX = "key:"
JWT_CALLER_PREFIX = "jwt:"
"""What the ids of callers begin with; the rest is the name of a key, or a claim of a token."""
LOCAL_CALLER_ID = "local"
"""The owner of everything on a gateway without keys, which listens on loopback only."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Somebody who may use the gateway. `id` owns what they store."""

    id: str
    is_admin: bool = False
    limits: KeyLimits | None = None
    issuer: str = field(default="", compare=False)
    """Of the token by which it was recognised; empty for a key."""
    expires_at: float | None = field(default=None, compare=False)
    """When a request with the same credentials is refused, in seconds since 1970. None: never."""


class CallerProvider(Protocol):
    """Recognises a bearer token, or does not."""

    async def authenticate(self, token: str) -> Caller | None: ...

    def is_known(self, caller_id: str, issuer: str) -> bool:
        """Whether a caller that was recognised once, perhaps by another process, still could be."""
        ...


class APIKeys:
    """Callers by the hash of their key. Every comparison takes the same time, whoever matches."""

    def __init__(self, keys: Sequence[CallerKey]) -> None:
        self._keys = tuple((key.hash.removeprefix("sha256:"), _caller_of_key(key)) for key in keys)

    async def authenticate(self, token: str) -> Caller | None:
        digest = hash_key(token).removeprefix("sha256:")
        found: Caller | None = None
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def is_known(self, caller_id: str, issuer: str) -> bool:
        return any(caller.id == caller_id for _, caller in self._keys)


class Callers:
    """All ways to be recognised, in order. With none configured, everybody is the person at this machine."""

    def __init__(self, providers: Sequence[CallerProvider]) -> None:
        self._providers = tuple(providers)

    @property
    def has_no_auth(self) -> bool:
        return not self._providers

    async def authenticate(self, headers: Mapping[str, str]) -> Caller | None:
        """The caller of a request by its headers, or None."""
        if self.has_no_auth:
            return Caller(id=LOCAL_CALLER_ID, is_admin=True)
        token = _find_bearer_token(headers)
        if token is None:
            return None
        for provider in self._providers:
            caller = await provider.authenticate(token)
            if caller is not None:
                return caller
        return None

    def is_known(self, caller_id: str, issuer: str) -> bool:
        """Whether the configuration still has a caller: its key by name, or the issuer of its tokens."""
        if self.has_no_auth:
            return caller_id == LOCAL_CALLER_ID
        return any(provider.is_known(caller_id, issuer) for provider in self._providers)


def new_key() -> str:
    """A fresh key, to be shown once."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def hash_key(key: str) -> str:
    """What a file keeps of a key. Keys are long and random, so a plain hash cannot be guessed backwards."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def is_storable(name: str) -> bool:
    """Whether every database takes a name: one with half a surrogate pair or a zero in it is taken by none."""
    return "\0" not in name and not any("\ud800" <= char <= "\udfff" for char in name)


def _caller_of_key(key: CallerKey) -> Caller:
    return Caller(id=f"{KEY_CALLER_PREFIX}{key.name}", is_admin=key.is_admin, limits=key.limits)


def _find_bearer_token(headers: Mapping[str, str]) -> str | None:
    """`Authorization: Bearer ...`, as every OpenAI client sends it; `api-key` as Azure's do."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("api-key") or None
