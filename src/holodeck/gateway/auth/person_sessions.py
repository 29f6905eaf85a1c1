"""Sessions of persons: authentication by the cookie of a browser, and by a header of a trusted proxy.

A person that has logged in has a session in the store, and the browser its secret in a cookie. What the person may do
follows from the claims that the identity provider has made then, as for a token with these claims.

Sessions that were seen are remembered. `follow` compares them with the store a few times a second, so that one that is
ended at any gateway is refused at every other within a second, and its open requests end. A gateway that cannot reach
the store for `KNOWN_SECONDS` does not know any more which sessions are in force, and refuses them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson

from holodeck.gateway.auth.callers import PROGRAM_TOKEN_PREFIX, Caller, KeyRefusal
from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.gateway.auth.open_requests import OpenRequests
from holodeck.gateway.auth.stored_keys import KNOWN_SECONDS
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.ids import new_id
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import KIB
from holodeck.lib.net.ip_policy import is_in_networks, parse_networks
from holodeck.models.callers import TrustedHeader
from holodeck.models.url import is_loopback
from holodeck.storage.person_sessions import PersonSessionStore, SessionKind, StoredSession

# Seconds between two comparisons with the store.
_FOLLOW_SECONDS = 0.25
# Seconds after which a session without requests is not compared any more. Its next request reads it again.
_IDLE_SECONDS = 60.0
# Sessions that are remembered: more than a gateway serves at once.
_MAX_REMEMBERED = 16_384
# Seconds of an access token of a program.
ACCESS_SECONDS = 3_600.0
# Random bytes of a secret: beyond guessing.
_SECRET_BYTES = 32
# Bytes of what is stored of a person: a token with more does not fit into a header either.
MAX_CLAIMS_BYTES = 64 * KIB
# Characters of what a browser says of itself.
_MAX_ABOUT = 200
# Claims that only name the person.
_NAME_CLAIMS = ("name", "preferred_username", "email")
# A cookie with this prefix is accepted by browsers from this host alone, over https.
_HOST_PREFIX = "__Host-"
_COOKIE = "holodeck_session"

# Seconds for which a request is of the person that a proxy has named: the proxy says it with each request.
_HEADER_SECONDS = 3_600.0


class _KnownSession:
    """A session as this gateway knows it."""

    __slots__ = ("caller", "checked_at", "is_renewed", "stored", "used_at")

    def __init__(self, stored: StoredSession, caller: Caller) -> None:
        self.stored = stored
        self.caller = caller
        self.checked_at = self.used_at = time.monotonic()
        self.is_renewed = False


class PersonSessions:
    """Authenticates requests of persons; none without an identity provider to log in to."""

    def __init__(
        self,
        store: PersonSessionStore,
        open_requests: OpenRequests,
        *,
        known_seconds: float = KNOWN_SECONDS,
    ) -> None:
        """`open_requests`: those of a session that has ended are cancelled."""
        self.store = store
        self._open_requests = open_requests
        self._known_seconds = known_seconds
        self._provider: JWTProvider | None = None
        self._by_hash: dict[str, _KnownSession] = {}

    @property
    def provider(self) -> JWTProvider | None:
        """The identity provider that names persons."""
        return self._provider

    def replace_provider(self, provider: JWTProvider | None) -> None:
        """Take the persons, and what they may do, from this provider from now on."""
        self._provider = provider
        before, self._by_hash = self._by_hash, {}
        for digest, known in before.items():
            caller = self._build_caller(known.stored)
            if caller is not None:
                self._by_hash[digest] = known
                known.caller = caller
        self._open_requests.cancel_sessions(
            {each.stored.id for digest, each in before.items() if digest not in self._by_hash}
        )

    async def start(self, claims: Mapping[str, Any], *, about: str, seconds: float) -> tuple[StoredSession, str] | None:
        """Begin a session of the person that these claims name, in a browser. Returns it with its secret.

        None: they name no person. Raises `StorageError`, and `ValueError` for claims that are too large to store.
        """
        provider = self._provider
        if provider is None:
            return None
        kept = {name: claims[name] for name in (*provider.deciding_claims, *_NAME_CLAIMS) if name in claims}
        now = time.time()
        caller = provider.build_caller({**kept, "exp": now + seconds})
        if caller is None:
            return None
        encoded, secret = orjson.dumps(kept), secrets.token_urlsafe(_SECRET_BYTES)
        if len(encoded) > MAX_CLAIMS_BYTES:
            raise ValueError(f"The identity provider says more than {MAX_CLAIMS_BYTES} bytes of this person.")
        session = StoredSession(
            id=new_id("ses"),
            kind="console",
            caller_id=caller.id,
            issuer=provider.config.issuer,
            about=about[:_MAX_ABOUT],
            created_at=now,
            expires_at=now + seconds,
            secret_hash=hash_secret(secret),
            secret_expires_at=now + seconds,
            claims=encoded,
        )
        await self.store.add_session(session)
        return session, secret

    async def let_in_program(
        self, session_id: str, person: StoredSession, *, about: str, resource: str, seconds: float, renewal: str
    ) -> tuple[StoredSession, str]:
        """Begin a session of a program that a person has let in. Returns it with its first access token.

        `resource`: the path that its tokens are for. `renewal`: the text that renews them. Raises `StorageError`.
        """
        now, token = time.time(), new_program_token()
        session = replace(
            person,
            id=session_id,
            kind="program",
            about=about[:_MAX_ABOUT],
            created_at=now,
            expires_at=now + seconds,
            secret_hash=hash_secret(token),
            secret_expires_at=now + min(seconds, ACCESS_SECONDS),
            resource=resource,
            renewal_hash=hash_secret(renewal),
        )
        await self.store.add_session(session)
        return session, token

    async def authenticate_token(self, token: str) -> Caller | None:
        """Return the person that has let in the program with this access token. Raises `StorageError`."""
        known = await self._find(hash_secret(token), "program")
        return None if known is None else known.caller

    async def end(self, session_id: str, caller_id: str) -> bool:
        """End a session of a person, here at once and elsewhere within a second. False: there is none."""
        is_ended = await self.store.end_session(session_id, caller_id)
        self._forget({session_id})
        return is_ended

    async def authenticate(self, headers: Mapping[str, str], address: str) -> Caller | None:
        """Return the person that a request belongs to, by its cookie or by the header of a trusted proxy.

        `address`: of the connection. Raises `StorageError`.
        """
        provider = self._provider
        if provider is None:
            return None
        secret = find_session_cookie(headers)
        if secret is not None and provider.config.login is not None:
            known = await self._find(hash_secret(secret), "console")
            if known is not None:
                return known.caller
        trusted = provider.config.trusted_header
        return None if trusted is None else _read_trusted_header(trusted, provider, headers, address)

    def explain_refusal(self, headers: Mapping[str, str]) -> KeyRefusal | None:
        """Return why a request is refused for which `authenticate` finds no person."""
        return None if find_session_cookie(headers) is None else "logged_out"

    async def find_stored(self, secret: str) -> StoredSession | None:
        """Return the session of a cookie. Raises `StorageError`."""
        known = await self._find(hash_secret(secret), "console")
        return None if known is None else known.stored

    async def follow(self) -> None:
        """Forget sessions that have ended elsewhere. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            if self._by_hash:
                await self._compare()

    async def _compare(self) -> None:
        now, is_open = time.monotonic(), self._open_requests.list_sessions()
        for digest, known in list(self._by_hash.items()):
            if now - known.used_at > _IDLE_SECONDS and known.stored.id not in is_open:
                del self._by_hash[digest]
        watched = {known.stored.id for known in self._by_hash.values()}
        try:
            current = await self.store.find_current(watched)
        except StorageError as error:
            log.debug("gateway.storage_failed", error=error)
            known_until = time.monotonic() - self._known_seconds
            self._forget({each.stored.id for each in self._by_hash.values() if each.checked_at < known_until})
            return
        self._forget(watched - current.keys())
        for digest, known in self._by_hash.items():
            known.checked_at = now
            # A renewed secret is refused, and what was begun with it goes on.
            known.is_renewed = current.get(known.stored.id, digest) != digest

    def _forget(self, ids: Collection[str]) -> None:
        """Refuse these sessions from now on, and end what is open for them."""
        if ids:
            self._by_hash = {digest: each for digest, each in self._by_hash.items() if each.stored.id not in ids}
            self._open_requests.cancel_sessions(ids)

    async def _find(self, digest: str, kind: SessionKind) -> _KnownSession | None:
        known, now = self._by_hash.get(digest), time.monotonic()
        if known is None or now - known.checked_at > self._known_seconds:
            stored = await self.store.find_session(digest)
            caller = None if stored is None or stored.kind != kind else self._build_caller(stored)
            if stored is None or caller is None:
                return None
            if len(self._by_hash) >= _MAX_REMEMBERED:
                is_open = self._open_requests.list_sessions()
                self._by_hash = {each: known for each, known in self._by_hash.items() if known.stored.id in is_open}
            known = self._by_hash[digest] = _KnownSession(stored, caller)
        known.used_at = now
        is_accepted = known.stored.kind == kind and not known.is_renewed
        return known if is_accepted and known.stored.secret_expires_at > time.time() else None

    def _build_caller(self, stored: StoredSession) -> Caller | None:
        """Return the caller of a session as the configuration has it now. None: it is of no person any more."""
        provider = self._provider
        if provider is None or provider.config.login is None or stored.issuer != provider.config.issuer:
            return None
        claims = {**parse_json(stored.claims), "exp": stored.expires_at}
        caller = provider.build_caller(claims)
        if caller is None or caller.id != stored.caller_id:
            return None
        return replace(
            caller,
            session_id=stored.id,
            is_from_browser=stored.kind == "console",
            shown_name=find_shown_name(claims),
            only_path=stored.resource,
        )


def new_program_token() -> str:
    """Generate an access token of a program."""
    return PROGRAM_TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def find_shown_name(claims: Mapping[str, Any]) -> str:
    """Return what a person is called, by its claims. Empty: they do not say."""
    return next((str(claims[name]) for name in _NAME_CLAIMS if claims.get(name)), "")


def hash_secret(secret: str) -> str:
    """Return the hash of a secret, as the store has it. Secrets are long and random: it cannot be reversed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def name_cookie(host: str, name: str = _COOKIE) -> str:
    """Return the name of a cookie of the gateway at this host, with its port.

    Browsers accept it over https from this very host only. On loopback, where there is no https, programs at other
    ports have the same cookies, so that its name has the port.
    """
    return _name_local_cookie(host, name) or f"{_HOST_PREFIX}{name}"


def _name_local_cookie(host: str, name: str) -> str:
    """Return the name of a cookie on loopback; empty for every other host."""
    try:
        parts = urlsplit(f"//{host}")
        return f"{name}_{parts.port or 80}" if is_loopback(parts.hostname or "") else ""
    except ValueError:
        return ""


def find_session_cookie(headers: Mapping[str, str]) -> str | None:
    """Return the secret in the session's cookie of a request."""
    return find_cookie(headers, _COOKIE)


def find_cookie(headers: Mapping[str, str], name: str) -> str | None:
    """Return the value of a cookie of the gateway. None: there is none, or several, of which one is not ours."""
    sent = headers.get("cookie")
    if sent is None:
        return None
    pairs = [each.strip().partition("=") for each in sent.split(";")]
    # A proxy may have another host for the gateway than the browser.
    for full_name in (f"{_HOST_PREFIX}{name}", _name_local_cookie(headers.get("host", ""), name)):
        found = [value for key, _, value in pairs if key == full_name]
        if found:
            return found[0] if len(found) == 1 and found[0] else None
    return None


def build_cookie(base_url: str, value: str, *, name: str = _COOKIE, seconds: float) -> str:
    """Return the `Set-Cookie` of a cookie for the gateway at this address. `seconds`: 0 deletes it."""
    parts = urlsplit(base_url)
    full_name = name_cookie(parts.netloc, name)
    secure = "; Secure" if full_name.startswith(_HOST_PREFIX) else ""
    return f"{full_name}={value}; Path=/; Max-Age={int(seconds)}; HttpOnly; SameSite=Lax{secure}"


def _read_trusted_header(
    settings: TrustedHeader, provider: JWTProvider, headers: Mapping[str, str], address: str
) -> Caller | None:
    """Return the person that a proxy names. None: it names none, or the request comes from another address."""
    name = headers.get(settings.name.lower(), "").strip()
    if not name or not is_in_networks(address, parse_networks(settings.proxies)):
        return None
    claims: dict[str, Any] = {}
    by_claim = provider.config.allow_by_claim
    if settings.claim_header is not None and by_claim is not None:
        values = headers.get(settings.claim_header.lower(), "").split(",")
        claims[by_claim.claim] = [value.strip() for value in values if value.strip()]
    caller = provider.build_caller({**claims, provider.config.caller_claim: name, "exp": time.time() + _HEADER_SECONDS})
    return None if caller is None else replace(caller, is_from_browser=True, shown_name=name)
