"""Provider for the OAuth authorization code grant: tokens of a person, stored between runs.

The stored record is loaded before the first request. A token is refreshed shortly before it expires. A refused token
is refreshed once, and then replaced by a new login if a login page can be shown; otherwise by one that another process
or provider has stored since, or else the error names the login command. Renewals run one at a time in this process
(`SharedRenewal`) and, through the lock of the token store, one at a time among the processes of the user. `login` is no
renewal: it waits for a person without the lock, so that others can renew what is stored in the meantime.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from holodeck.lib import log
from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.errors import MCPError
from holodeck.tools.mcp.auth.auth_http import AuthHTTP
from holodeck.tools.mcp.auth.dpop import DPoPHTTP, ProofKey
from holodeck.tools.mcp.auth.oauth_flow import Login, LoginFlow, LoginPrompt, login_needed_error
from holodeck.tools.mcp.auth.provider import AuthRefusal, auth_error, challenge_parameter
from holodeck.tools.mcp.auth.token import SharedRenewal, Token, build_token, read_lifetime
from holodeck.tools.mcp.auth.token_store import LoginRecord, TokenStore

UNAUTHORIZED, FORBIDDEN = 401, 403
_PROOF_KEY = "dpop_key"
_PING = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'


class AuthorizationCode:
    """Provider that uses and renews the tokens of a login.

    `prompt` lets a person log in; without it a missing token raises an error that names the login command.
    """

    def __init__(
        self,
        login: Login,
        *,
        http: AuthHTTP,
        store: TokenStore,
        prompt: LoginPrompt | None = None,
        proof: ProofKey | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self._login = login
        self._proof = DPoPHTTP(http, proof) if proof else None
        self._http: AuthHTTP = self._proof or http
        self._store = store
        self._prompt = prompt
        self._clock = clock
        self._key = "\n".join((login.url, login.client_id or login.client_metadata_url or ""))
        self._record: LoginRecord = {}
        self._token: Token | None = None
        self._is_loaded = False
        self._loaded_at = 0.0
        self._is_refreshable = False
        self._is_refused = False
        self._is_from_login = False
        self._requested_scopes: set[frozenset[str]] = set()
        self._load = SharedRenewal(self._load_stored)
        self._renew = SharedRenewal(self._run_renewal)

    async def headers(self, method: str = "POST", url: str = "") -> Mapping[str, str]:
        if not self._is_loaded or time.monotonic() - self._loaded_at >= self._store.reload_seconds:
            await self._load()
        token = self._token
        if token is not None and self._is_refreshable and not token.is_fresh(self._clock()):
            token = await self._refresh(token)
        return self._build_headers(token, method, url or self._login.url) if token else {}

    async def refused(self, refusal: AuthRefusal) -> bool:
        error = challenge_parameter(refusal.www_authenticate, "error")
        if self._proof is not None and self._proof.store_nonce(refusal):
            return True
        if refusal.status == FORBIDDEN and error != "insufficient_scope":
            return False
        # Another call has renewed the token in the meantime.
        if self._token is not None and not self._has_current_token(refusal):
            return True
        if refusal.status == FORBIDDEN:
            self._require_new_scope(refusal)
            return await self._renew(refusal, refresh=False)
        if refusal.attempt > 1 and self._is_from_login:
            raise auth_error(
                self._login.server, "it refused a token from a login just made (401).", status=UNAUTHORIZED
            )
        is_second = refusal.attempt > 1 and not self._is_from_login and self._token is not None
        try:
            return await self._renew(refusal, refresh=self._is_refreshable and not is_second)
        except MCPError as error:
            self._is_refused = bool(error.details.get("login"))
            raise

    @property
    def is_logged_in(self) -> bool:
        """True when there is a token. Before the first request, which loads the stored one, always false."""
        return self._token is not None

    async def has_login(self) -> bool:
        """Return whether there is a token to send now, which was renewed if it had to be. Raises MCPError.

        A token that the server has refused, and that could not be renewed, is none.
        """
        headers = await self.headers()
        if headers and not self._is_refused:
            return True
        return await self.use_stored() and bool(await self.headers())

    async def login(self) -> None:
        """Log in now, even if a token is stored. Raises MCPError. May be cancelled while it waits for the person."""
        await self._load()
        self._requested_scopes.clear()
        record = await self._run_login(await self._request_challenge())
        async with self._store.lock(self._key):
            await self._use_new_record(record)
        self._is_from_login = True

    async def use_stored(self) -> bool:
        """Use the login that is stored now. True when it is another one than that in use, and has a token."""
        stored = await self._store.load(self._key)
        if not stored or (stored.get("tokens") or {}) == (self._record.get("tokens") or {}):
            return False
        self._use_record(stored)
        self._is_loaded, self._loaded_at, self._is_from_login = True, time.monotonic(), False
        self._requested_scopes.clear()
        return self._token is not None

    async def logout(self) -> None:
        """Delete the tokens and the client registration from memory and from the token store."""
        self._use_record({})
        await self._store.delete(self._key)

    def replace_store(self, wrap: Callable[[TokenStore], TokenStore]) -> None:
        """Load and store the login elsewhere from now on. `wrap` is given the store so far."""
        self._store = wrap(self._store)

    async def _load_stored(self) -> None:
        stored = await self._store.load(self._key) or {}
        if not self._is_loaded or stored != self._record:
            self._use_record(stored)
        self._is_loaded, self._loaded_at = True, time.monotonic()

    def _use_record(self, record: LoginRecord) -> None:
        # What another issuer than the configured one has given is of no use, as after a change of the definition.
        issuer = (record.get("server_metadata") or {}).get("issuer")
        tokens = record.get("tokens") if self._login.issuer in (None, issuer) else None
        value = tokens.get("access_token") if isinstance(tokens, dict) else None
        self._record = record
        self._token, self._is_refreshable, self._is_refused = None, False, False
        if self._proof is not None:
            key = record.get(_PROOF_KEY)
            self._proof.is_bound = isinstance(key, dict)
            if isinstance(key, dict):
                self._proof.key.restore(key)
        if isinstance(tokens, dict) and isinstance(value, str) and value:
            lifetime, issued_at = read_lifetime(tokens.get("expires_in")), float(record.get("issued_at") or 0)
            self._token = build_token(value, issued_at=issued_at, lifetime=lifetime, scope=tokens.get("scope"))
            # The metadata names the one authorization server that the refresh token may be sent to.
            self._is_refreshable = bool(tokens.get("refresh_token") and record.get("server_metadata"))

    def _build_headers(self, token: Token, method: str, url: str) -> dict[str, str]:
        if self._proof is None:
            return {"Authorization": token.authorization}
        return self._proof.build_headers(token.value.reveal(), method, url)

    def _has_current_token(self, refusal: AuthRefusal) -> bool:
        sent = refusal.sent.get("Authorization", "").partition(" ")[2]
        return self._token is not None and sent == self._token.value.reveal()

    async def _refresh(self, old: Token) -> Token | None:
        """Return a fresh token, or the old one while it is valid, or None: then the server answers 401."""
        try:
            await self._renew(None, refresh=True)
        except MCPError:
            if not old.is_valid(self._clock()):
                raise
        token = self._token or old
        return token if token.is_valid(self._clock()) else None

    def _require_new_scope(self, refusal: AuthRefusal) -> None:
        wanted = frozenset(challenge_parameter(refusal.www_authenticate, "scope").split())
        if wanted in self._requested_scopes:
            needs = f"the scope '{' '.join(sorted(wanted))}'" if wanted else "more rights"
            raise auth_error(
                self._login.server, f"it needs {needs}, which a new login did not give (403).", status=FORBIDDEN
            )
        self._requested_scopes.add(wanted)

    async def _run_renewal(self, refusal: AuthRefusal | None, *, refresh: bool) -> bool:
        if not refresh and self._prompt is None:
            return await self._require_stored()
        async with self._store.lock(self._key):
            if await self._load_renewed(is_widening=bool(refusal and refusal.status == FORBIDDEN)):
                return True
            if refresh and await self._run_refresh():
                self._is_from_login = False
                return True
            self._is_refreshable = False
            if refusal is None:
                return False
            if self._prompt is None:
                raise login_needed_error(self._login.server, self._store.login_advice)
            await self._use_new_record(await self._run_login(refusal))
            self._is_from_login = True
            return True

    async def _require_stored(self) -> bool:
        """Use a login that was stored since the one in use was loaded, as by the login command. Raises MCPError."""
        if not await self.use_stored():
            raise login_needed_error(self._login.server, self._store.login_advice)
        return True

    async def _load_renewed(self, *, is_widening: bool) -> bool:
        stored = await self._store.load(self._key)
        if is_widening or not stored or (stored.get("tokens") or {}) == (self._record.get("tokens") or {}):
            return False
        self._use_record(stored)
        return self._token is not None and self._token.is_fresh(self._clock())

    async def _run_refresh(self) -> bool:
        """Exchange the refresh token. True when a new token was obtained and stored."""
        record = dict(self._record)
        if not await LoginFlow(self._login, record, http=self._http, clock=self._clock).refresh():
            return False
        await self._use_new_record(record)
        return True

    async def _run_login(self, refusal: AuthRefusal) -> LoginRecord:
        """Let a person log in, and return the new record, which is neither used nor stored yet."""
        if self._prompt is None:
            raise login_needed_error(self._login.server, self._store.login_advice)
        record = dict(self._record)
        async with self._prompt.open_redirect(_registered_uris(record)) as redirect:
            flow = LoginFlow(
                self._login, record, http=self._http, clock=self._clock, redirect=redirect, show=self._prompt.show
            )
            await flow.log_in(refusal)
        return record

    async def _use_new_record(self, record: LoginRecord) -> None:
        if self._proof is not None:
            # Another process of the user can use the token only with the key that it is bound to.
            record[_PROOF_KEY] = self._proof.key.export() if self._proof.is_bound else None
        # A record that was deleted in the meantime is not used.
        await self._save_record(record)
        self._use_record(record)
        self._is_loaded, self._loaded_at = True, time.monotonic()

    async def _save_record(self, content: LoginRecord) -> None:
        try:
            await self._store.save(self._key, content)
        except OSError as error:
            # The token is usable in this process; the next one needs a new login.
            log.warning("mcp.login_not_stored", server=self._login.server, reason=error.strerror)

    async def _request_challenge(self) -> AuthRefusal:
        """Return the server's refusal of a request without credentials.

        Without a 401 answer the challenge is empty, and the flow reads the metadata at its well-known URLs.
        """
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        with contextlib.suppress(MCPError):
            answer = await self._http("POST", self._login.url, headers=headers, body=_PING)
            if answer.status == UNAUTHORIZED:
                names = (value for name, value in answer.headers.items() if name.lower() == "www-authenticate")
                return AuthRefusal(status=UNAUTHORIZED, url=self._login.url, www_authenticate=next(names, ""))
        return AuthRefusal(status=UNAUTHORIZED, url=self._login.url)


def _registered_uris(record: LoginRecord) -> list[str]:
    uris = (record.get("client") or {}).get("redirect_uris")
    return [uri for uri in uris if isinstance(uri, str)] if isinstance(uris, list) else []
