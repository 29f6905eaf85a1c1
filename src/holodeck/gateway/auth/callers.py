"""Authentication of callers by API keys or by tokens of an identity provider.

`Callers` asks each configured `CallerProvider` in order: `APIKeys` here, `JWTProvider` in `jwt.py`. A request that none
of them recognises has no caller and is refused.

The providers can be replaced while the gateway runs. Callers whose credentials are gone by that are revoked:
`add_revocation_listener` is for components that serve a caller for longer than one moment.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, Protocol

from holodeck.gateway.auth.groups import Groups, SharedAccount, build_owner_account
from holodeck.gateway.auth.scope import CallerScope
from holodeck.lib.record import record
from holodeck.models.callers import KEY_CALLER_PREFIX, CallerKey, KeyLimits, Role

KEY_PREFIX = "hd-"
# Begins the access tokens of programs that persons have let in.
PROGRAM_TOKEN_PREFIX = "hdp-"  # noqa: S105 - the prefix of one
# Keys whose callers are remembered: more than a gateway has in use. Beyond that, they are found anew.
MAX_REMEMBERED_KEYS = 16_384
# Random bytes of a new key: beyond guessing.
_KEY_BYTES = 32
# Begins the ids of callers with tokens; the rest is a claim.
JWT_CALLER_PREFIX = "jwt:"
# The one caller of a gateway without authentication, which listens on loopback only.
LOCAL_CALLER_ID = "local"

ClaimValues = Mapping[str, Sequence[str]]
"""Values of claims of a token, by claim."""
KeyRefusal = Literal["paused", "expired", "no_group", "unknown", "caller_paused", "erasing", "logged_out"]
"""Why a key is refused that is in the file or in the store, or a caller with any credentials.

`no_group`: the file does not have its group any more. `unknown`: it is not known whether the key is in force.
`caller_paused`, `erasing`: of a caller that an operator has paused, or whose data is being erased.
`logged_out`: it is no key, but the cookie of a login that has ended.
"""


@record
class Caller:
    """An authenticated client of the gateway. What it stores belongs to its `id`."""

    id: str
    role: Role | None = None
    limits: KeyLimits | None = None
    issuer: str = field(default="", compare=False)
    """The issuer of its token; empty for a key."""
    expires_at: float | None = field(default=None, compare=False)
    """When its credentials expire, in seconds since 1970. None: never."""
    refusal: KeyRefusal | None = field(default=None, compare=False)
    """Why its key is refused for now. None: it is not, or has expired."""
    scope: CallerScope = field(default_factory=CallerScope.everything, compare=False)
    """What it may use, as configured now."""
    claim_values: ClaimValues = field(default_factory=dict, compare=False)
    """The values of its token's claims that decide its scope; stored with durable work, which outlives the token."""
    group: str | None = field(default=None, compare=False)
    """The name of its group."""
    shared: tuple[SharedAccount, ...] = field(default=(), compare=False)
    """The accounts that it is charged to beside its own: of its group, and of the owner of its key."""
    session_id: str = field(default="", compare=False)
    """The session of a person that it authenticates with. Empty: its credentials are others."""
    is_from_browser: bool = field(default=False, compare=False)
    """Whether a browser sends its credentials by itself, also for a page of another site."""
    only_path: str = field(default="", compare=False)
    """The path that its credentials are for, and all below it. Empty: they are for everything."""
    shown_name: str = field(default="", compare=False)
    """What a person is called. Empty: not known."""

    def has_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= time.time()

    @property
    def can_read_all_callers(self) -> bool:
        """Whether it may read what all callers asked and were answered: an operator without a scope."""
        return self.role == "operator" and not self.scope.is_limited

    @property
    def can_read_all_figures(self) -> bool:
        """Whether it may read the usage of all callers: an operator or a viewer without a scope."""
        return self.role in ("operator", "viewer") and not self.scope.is_limited


_LOCAL_CALLER = Caller(id=LOCAL_CALLER_ID, role="operator")


@record
class RevokedCallers:
    """Callers whose credentials were withdrawn: `caller_id in revoked`."""

    names: frozenset[str]
    """Ids of callers, and prefixes of the ids of all callers of an identity provider."""

    def __contains__(self, caller_id: object) -> bool:
        return caller_id in self.names or f"{str(caller_id).partition(':')[0]}:" in self.names

    def __bool__(self) -> bool:
        return bool(self.names)


RevocationListener = Callable[[RevokedCallers], None]
Credential = tuple[str, object]
"""The id of a caller, or the prefix of the ids of many, with what it proves itself by. Compared, never shown."""


class CallerProvider(Protocol):
    """One way to authenticate a bearer token."""

    def list_credentials(self) -> Sequence[Credential]:
        """Return what callers can authenticate with at this moment."""
        ...

    async def authenticate(self, token: str) -> Caller | None:
        """Return the caller of a token. None: this provider does not recognise it."""
        ...

    def find_caller(self, caller_id: str, issuer: str, claim_values: ClaimValues) -> Caller | None:
        """Return a caller that was authenticated before, perhaps by another process, as it is configured now.

        None: it could not be authenticated any more. Raises `StorageError` if that is not known.
        """
        ...

    def explain_refusal(self, token: str) -> KeyRefusal | None:
        """Return why a token that `authenticate` has refused is refused. None: this provider does not know it."""
        ...

    def take_expired(self) -> Collection[str]:
        """Return the ids of callers that have expired as a whole since the last call."""
        ...

    async def close(self) -> None:
        """End background work. Bounded."""
        ...


class Persons(Protocol):
    """The way to authenticate a request without a token: by what a browser, or a proxy, sends by itself."""

    async def authenticate(self, headers: Mapping[str, str], address: str) -> Caller | None: ...

    async def authenticate_token(self, token: str) -> Caller | None: ...

    def explain_refusal(self, headers: Mapping[str, str]) -> KeyRefusal | None: ...


class APIKeys:
    """Authenticates API keys by their hashes, however many there are.

    A hash is looked up by a keyed digest of it: how long that takes says nothing of any key.
    """

    def __init__(self, keys: Iterable[CallerKey] = (), groups: Groups | None = None) -> None:
        self._groups: Groups = groups or {}
        self._digest_key = secrets.token_bytes(_KEY_BYTES)
        self._by_digest: dict[bytes, Caller] = {}
        self._callers: dict[str, Caller] = {}
        self._keys: dict[str, CallerKey] = {}
        """By the id of the caller."""
        self._next_expiry = math.inf
        for key in keys:
            self.add_key(key)

    def add_key(self, key: CallerKey) -> None:
        """Accept a key from now on, if it is in force."""
        caller = _caller_of_key(key, self._groups)
        self._callers[caller.id] = caller
        self._keys[caller.id] = key
        for key_hash, with_expiry in _hashes_of_key(key, caller):
            self._by_digest[self._digest_of(key_hash)] = with_expiry
        if caller.expires_at is not None and not caller.has_expired():
            self._next_expiry = min(self._next_expiry, caller.expires_at)

    def remove_key(self, key: CallerKey) -> None:
        """Refuse a key from now on."""
        caller = self._callers.pop(key.caller_id)
        del self._keys[caller.id]
        for key_hash, _ in _hashes_of_key(key, caller):
            self._by_digest.pop(self._digest_of(key_hash), None)

    async def authenticate(self, token: str) -> Caller | None:
        found = self._find(token)
        return found if found is not None and _is_in_force(found) else None

    def list_credentials(self) -> Sequence[Credential]:
        return [(caller_id, each) for caller_id, key in self._keys.items() for each in self.find_accepted_hashes(key)]

    def find_accepted_hashes(self, key: CallerKey) -> frozenset[str]:
        """Return the hashes of keys with which a caller is accepted at this moment."""
        now = time.time()
        has_expired = key.expires is not None and key.expires.timestamp() <= now
        if key.paused or has_expired or _is_without_group(key, self._groups):
            return frozenset()
        has_old = key.old_hash_expires is not None and key.old_hash_expires.timestamp() > now
        return frozenset({key.hash, str(key.old_hash)} if has_old else {key.hash})

    def find_caller(self, caller_id: str, issuer: str, claim_values: ClaimValues) -> Caller | None:
        caller = self._callers.get(caller_id)
        return caller if caller is not None and _is_in_force(caller) else None

    def explain_refusal(self, token: str) -> KeyRefusal | None:
        found = self._find(token)
        if found is None:
            return None
        return found.refusal or ("expired" if found.has_expired() else None)

    def take_expired(self) -> Collection[str]:
        now = time.time()
        if now < self._next_expiry:
            return ()
        since = self._next_expiry
        times = {each.id: each.expires_at for each in self._callers.values() if each.expires_at is not None}
        self._next_expiry = min((at for at in times.values() if at > now), default=math.inf)
        return [caller_id for caller_id, at in times.items() if since <= at <= now]

    async def close(self) -> None:
        """Do nothing: keys need no background work."""

    def _find(self, token: str) -> Caller | None:
        return self._by_digest.get(self._digest_of(hash_key(token)))

    def _digest_of(self, key_hash: str) -> bytes:
        return hashlib.blake2b(key_hash.encode(), key=self._digest_key).digest()


class Callers:
    """The configured providers, asked in order.

    Built without any, every request is of the local caller, an operator, until there are some. Once there were some, no
    request is accepted without them.
    """

    def __init__(self, providers: Sequence[CallerProvider], persons: Persons | None = None) -> None:
        self._providers = tuple(providers)
        self._refusals: Mapping[str, KeyRefusal] = {}
        """Why callers are refused whose credentials are accepted, by their ids."""
        self._persons = persons
        self._has_no_auth = not providers
        self._listeners: list[RevocationListener] = []
        self._digest_key = secrets.token_bytes(_KEY_BYTES)
        self._remembered: dict[bytes, Caller] = {}
        """Callers by a digest of their keys. The digest is keyed: how long a lookup takes says nothing of any key."""
        self._used: dict[str, None] = {}
        """The callers that were authenticated lately."""

    def add_revocation_listener(self, callback: RevocationListener) -> None:
        """Call `callback` whenever callers are revoked, after requests of them are refused. It must not wait."""
        self._listeners.append(callback)

    def replace_providers(self, providers: Sequence[CallerProvider]) -> RevokedCallers:
        """Authenticate with other providers from now on. Returns the callers that are revoked by that.

        A caller is revoked if any of its credentials is not accepted any more: requests that were made with it end. The
        owner of the replaced providers closes them.
        """
        before = self._list_credentials()
        self._remembered.clear()
        self._providers = tuple(providers)
        self._has_no_auth = self._has_no_auth and not providers
        now = frozenset(self._list_credentials())
        revoked = RevokedCallers(names=frozenset(each[0] for each in before if each not in now))
        self.revoke(revoked)
        return revoked

    def revoke(self, revoked: RevokedCallers) -> None:
        """Forget what was found of keys before, and end what is open for callers whose keys are not accepted now."""
        self._remembered.clear()
        if revoked:
            for callback in self._listeners:
                callback(revoked)

    def replace_refusals(self, refusals: Mapping[str, KeyRefusal]) -> None:
        """Refuse these callers from now on, whatever their credentials, and end what is open for new ones of them."""
        added = frozenset(refusals.keys() - self._refusals.keys())
        self._refusals = refusals
        self.revoke(RevokedCallers(names=added))

    def revoke_expired(self) -> None:
        """End what is open for callers that have expired since the last call."""
        expired = frozenset(each for provider in self._providers for each in provider.take_expired())
        if expired:
            self.revoke(RevokedCallers(names=expired))

    async def explain_refusal(self, headers: Mapping[str, str], address: str = "") -> KeyRefusal | None:
        """Return why the key of a refused request is refused. None: no provider knows it."""
        token = _find_bearer_token(headers)
        if token is None:
            return await self._explain_refused_person(headers, address)
        caller = await _authenticate_with(self._providers, token) if self._refusals else None
        if caller is not None:
            return self._refusals.get(caller.id)
        found = (provider.explain_refusal(token) for provider in self._providers)
        return next((refusal for refusal in found if refusal is not None), None)

    def take_used(self) -> Collection[str]:
        """Return the ids of the callers that were authenticated since the last call."""
        used, self._used = self._used, {}
        return used

    def forget_use(self, caller_id: str) -> None:
        """Forget that a caller was authenticated."""
        self._used.pop(caller_id, None)

    @property
    def providers(self) -> Sequence[CallerProvider]:
        return self._providers

    @property
    def has_no_auth(self) -> bool:
        return self._has_no_auth

    async def authenticate(self, headers: Mapping[str, str], address: str = "") -> Caller | None:
        """Return the caller of a request, by its headers. None: the request has to be refused.

        `address`: of the connection. Raises `StorageError` where it is not known whether a person is logged in.
        """
        if self._has_no_auth:
            return _LOCAL_CALLER
        token = _find_bearer_token(headers)
        if token is None:
            return await self._authenticate_person(headers, address)
        if token.startswith(PROGRAM_TOKEN_PREFIX) and self._persons is not None:
            return self._use(await self._persons.authenticate_token(token))
        digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self._digest_key).digest()
        caller = self._remembered.get(digest)
        if caller is not None and (caller.expires_at is None or not caller.has_expired()):
            self._used[caller.id] = None
            return caller
        while True:
            providers = self._providers
            caller = await _authenticate_with(providers, token)
            # Replaced while an identity provider was asked for its keys: the caller may be revoked.
            if providers is self._providers:
                break
        if caller is None or caller.id in self._refusals:
            return None
        # A token is verified each time: its issuer may have withdrawn the key that has signed it.
        if not caller.issuer:
            if len(self._remembered) >= MAX_REMEMBERED_KEYS:
                self._remembered.clear()
            self._remembered[digest] = caller
        self._used[caller.id] = None
        return caller

    async def _authenticate_person(self, headers: Mapping[str, str], address: str) -> Caller | None:
        return None if self._persons is None else self._use(await self._persons.authenticate(headers, address))

    def _use(self, caller: Caller | None) -> Caller | None:
        """Return a caller that is authenticated now, unless it is refused with any credentials."""
        if caller is None or caller.id in self._refusals:
            return None
        self._used[caller.id] = None
        return caller

    async def _explain_refused_person(self, headers: Mapping[str, str], address: str) -> KeyRefusal | None:
        if self._persons is None:
            return None
        caller = await self._persons.authenticate(headers, address)
        return self._persons.explain_refusal(headers) if caller is None else self._refusals.get(caller.id)

    def find_current(self, caller: Caller) -> Caller:
        """Return a caller with the scope, the limits and the group that it has now, for a connection that outlives its
        handshake."""
        found = self.find_caller(caller.id, caller.issuer, caller.claim_values)
        return (
            caller
            if found is None
            else replace(caller, limits=found.limits, scope=found.scope, group=found.group, shared=found.shared)
        )

    def find_caller(self, caller_id: str, issuer: str, claim_values: ClaimValues) -> Caller | None:
        """Return a caller with the scope that it has now, by the name of its key or the issuer of its tokens.

        None: the configuration does not have it any more.
        """
        if self.has_no_auth:
            return _LOCAL_CALLER if caller_id == LOCAL_CALLER_ID else None
        if caller_id in self._refusals:
            return None
        found = (provider.find_caller(caller_id, issuer, claim_values) for provider in self._providers)
        return next((caller for caller in found if caller is not None), None)

    async def close(self) -> None:
        """End the background work of the providers. Bounded."""
        for provider in self._providers:
            await provider.close()

    def _list_credentials(self) -> list[Credential]:
        if self.has_no_auth:
            return [(LOCAL_CALLER_ID, None)]
        return [each for provider in self._providers for each in provider.list_credentials()]


async def _authenticate_with(providers: Sequence[CallerProvider], token: str) -> Caller | None:
    for provider in providers:
        caller = await provider.authenticate(token)
        if caller is not None:
            return caller
    return None


def new_key() -> str:
    """Generate a random key. It is shown once; files have only its hash."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def hash_key(key: str) -> str:
    """Return the hash of a key, as files store it. Keys are long and random, so a plain hash cannot be reversed."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def resolve_caller_id(text: str, find_key: Callable[[str], CallerKey | None]) -> str:
    """Return the id of a caller that a person names, by its id or by the name of its key, with or without `key:`.

    `find_key`: finds the key in force by its name.
    """
    # A key named `local` has to be named with `key:`: the caller of a gateway without keys has no other name.
    is_id = text == LOCAL_CALLER_ID or text.startswith((KEY_CALLER_PREFIX, JWT_CALLER_PREFIX))
    caller_id = text if is_id else f"{KEY_CALLER_PREFIX}{text}"
    if not caller_id.startswith(KEY_CALLER_PREFIX):
        return caller_id
    key = find_key(caller_id.removeprefix(KEY_CALLER_PREFIX))
    return caller_id if key is None else key.caller_id


def is_storable(name: str) -> bool:
    """Return whether every database can store a name: one with half a surrogate pair or a NUL cannot be stored."""
    return "\0" not in name and not any("\ud800" <= char <= "\udfff" for char in name)


def _is_without_group(key: CallerKey, groups: Groups) -> bool:
    return key.group is not None and key.group not in groups


def _caller_of_key(key: CallerKey, groups: Groups) -> Caller:
    scope = CallerScope.everything() if key.allow is None else CallerScope.of([key.allow])
    group = None if key.group is None else groups.get(key.group)
    owned = () if key.owner is None else (build_owner_account(key.owner),)
    expires_at = None if key.expires is None else key.expires.timestamp()
    return Caller(
        id=key.caller_id,
        role=key.role,
        limits=key.limits,
        expires_at=expires_at,
        refusal="paused" if key.paused else "no_group" if _is_without_group(key, groups) else None,
        scope=scope if group is None else scope.within(group.scope),
        group=key.group,
        shared=owned if group is None else (*owned, group.account),
    )


def _is_in_force(caller: Caller) -> bool:
    return caller.refusal is None and not caller.has_expired()


def _hashes_of_key(key: CallerKey, caller: Caller) -> list[tuple[str, Caller]]:
    """Return the hashes that are accepted, each with its caller, whose credentials expire where it is the old hash."""
    hashes = [(key.hash, caller)]
    if key.old_hash is not None and key.old_hash_expires is not None:
        expires_at = min(key.old_hash_expires.timestamp(), caller.expires_at or math.inf)
        hashes.append((key.old_hash, replace(caller, expires_at=expires_at)))
    return hashes


def _find_bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the token of `Authorization: Bearer`, or else of `x-api-key` (Anthropic's clients) or `api-key`
    (Azure's)."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key") or headers.get("api-key") or None
