"""`/v1/login`, `/v1/me` and `/v1/sessions`: logins of persons to this gateway, and what they are told of themselves.

The browser of a person goes to `/v1/login`, from there to the identity provider, and comes back with a code. What the
gateway has to know of the login in between is in a cookie of that browser, sealed: so it belongs to this browser, any
gateway with the same storage can finish it, and a login that is not finished leaves nothing behind. That its state was
used is in the store.
"""

from __future__ import annotations

import hmac
import re
import time
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import orjson

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.auth.issuer_login import ATTEMPT_SECONDS, IssuerLogin, LoginAttempt, LoginError
from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.gateway.auth.person_sessions import (
    PersonSessions,
    build_cookie,
    find_cookie,
    find_session_cookie,
    hash_secret,
)
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.http.asgi import find_base_url
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.http.pages import build_page
from holodeck.gateway.http.parameters import TextParameter
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.sealing import BrokenSealError, SealKeys
from holodeck.gateway.usage.budgets import Budgets
from holodeck.lib import log
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import HOUR
from holodeck.models.url import is_loopback
from holodeck.storage.person_sessions import StoredSession
from holodeck.tools.mcp.auth.redirect import read_redirect

LOGIN_CALLBACK_PATH = "/v1/login/callback"
# Sessions in a list: more than a person has.
MAX_LISTED_SESSIONS = 100
# A place in the console. Nothing else is redirected to.
_PLACE = re.compile(r"#/[A-Za-z0-9/_.~%?=&+-]*", re.ASCII)
_ATTEMPT_COOKIE = "holodeck_login"
_LOGIN_PURPOSE = "login"
_TAG = "Persons"
_NEXT = TextParameter(name="next", about="Where to go afterwards: a place in the console, such as `#/runs`.")
_route = partial(route, tag=_TAG, is_counted=False)
_page_route = partial(route, "GET", tag=_TAG, is_public=True, reply=None, errors=("caller",))


class PersonEndpoints:
    """Routes of persons that log in."""

    def __init__(
        self,
        configurations: ConfigurationHolder,
        sessions: PersonSessions,
        seal_keys: SealKeys,
        *,
        budgets: Budgets,
        audit: AuditLog,
    ) -> None:
        self.configurations = configurations
        self.sessions = sessions
        self._seal = seal_keys.for_caller("")
        self._budgets = budgets
        self.audit = audit
        self._issuer = IssuerLogin()

    @_page_route(
        "/v1/login",
        id="logIn",
        summary="Log in to the console",
        description=(
            "Sends the browser of a person to the identity provider of `jwt.login`. After the login the browser has a "
            "cookie, and the person may do what a token of it may."
        ),
        query=(_NEXT,),
        empty_replies={302: "To the login page of the identity provider."},
        error_pages={
            400: "the gateway is not reached over https.",
            404: "the gateway has no login.",
            503: "the identity provider does not answer.",
        },
    )
    async def log_in(self, request: Request) -> Reply:
        place = request.query.get(_NEXT.name, "")
        try:
            return await self.send_to_login(request, place if _PLACE.fullmatch(place) else "")
        except LoginError as error:
            return _build_error_page(error)

    async def send_to_login(self, request: Request, next_place: str) -> Reply:
        """Send a browser to the identity provider, and afterwards to a place below this gateway.

        Raises `LoginError`.
        """
        base = self._find_base_url(request)
        page, attempt = await self._issuer.begin(self._require_provider(), base + LOGIN_CALLBACK_PATH, next_place)
        sealed = self._seal.seal(_LOGIN_PURPOSE, orjson.dumps(asdict(attempt)))
        return _redirect(page, build_cookie(base, sealed.rstrip("="), name=_ATTEMPT_COOKIE, seconds=ATTEMPT_SECONDS))

    @_page_route(
        LOGIN_CALLBACK_PATH,
        id="finishLogin",
        summary="Come back from the identity provider",
        description="The redirect URI of `jwt.login`. Its `state` belongs to one browser, and is accepted once.",
        query=(
            TextParameter(name="state", about="Of the login."),
            TextParameter(name="code", about="Exchanged for what the identity provider says of the person."),
            TextParameter(name="iss", about="The identity provider."),
            TextParameter(name="error", about="Why there is no code."),
        ),
        empty_replies={302: "To the console, with the cookie of the session."},
        error_pages={
            400: "the answer does not belong to a login of this browser.",
            403: "the identity provider or the gateway does not let the person in.",
            404: "the gateway has no login.",
            503: "the identity provider does not answer.",
        },
    )
    async def finish(self, request: Request) -> Reply:
        try:
            base, provider = self._find_base_url(request), self._require_provider()
            attempt = await self._take_attempt(request)
            claims = await self._issuer.finish(provider, attempt, read_redirect(request.query))
            cookie = await self._start_session(request, provider, base, claims)
        except LoginError as error:
            return _build_error_page(error)
        return _redirect(f"{base}/{attempt.next}", cookie)

    @_route(
        "POST",
        "/v1/logout",
        id="logOut",
        summary="Log out",
        description="Ends the session that the cookie of the request belongs to, at every gateway within a second.",
        reply="Session",
        example={**examples.SESSION, "is_current": True},
        errors=("session", "storage"),
    )
    async def log_out(self, request: Request) -> Reply:
        caller = request.caller
        session = await self._find_session(caller, caller.session_id)
        if session is None:
            message = "This request has no login that could end: it has a key, or a token of its own."
            raise APIError(409, message, kind="invalid_request", code="not_logged_in")
        await self._end(request, session)
        reply = json_reply(_session_resource_of(session, caller))
        cookie = build_cookie(self._find_base_url(request), "", seconds=0)
        return Reply(body=reply.body, headers={"set-cookie": cookie, "clear-site-data": '"cache"'})

    @_route(
        "GET",
        "/v1/me",
        id="getMe",
        summary="Get the caller",
        description=(
            "Who the caller of this request is, what it may use, and what is left of its budgets. It may use what all "
            "scopes of any entry of `allow` allow together; null: everything."
        ),
        reply="Me",
        example=examples.ME,
        errors=("storage",),
    )
    async def get_me(self, request: Request) -> Reply:
        caller = request.caller
        session = await self._find_session(caller, caller.session_id) if caller.session_id else None
        allow = [[scope.model_dump(exclude_none=True) for scope in entry] for entry in caller.scope.sources]
        return json_reply(
            {
                "object": "caller",
                "id": caller.id,
                "name": caller.shown_name or None,
                "role": caller.role,
                "group": caller.group,
                "session": None if session is None else _session_resource_of(session, caller),
                "allow": allow if caller.scope.is_limited else None,
                "budgets": await self._list_budgets(caller),
            }
        )

    @_route(
        "GET",
        "/v1/sessions",
        id="listSessions",
        summary="List the own sessions",
        description="The sessions of the person that sends the request, the newest first. A key has none.",
        reply="SessionList",
        example={"object": "list", "data": [{**examples.SESSION, "is_current": True}]},
        errors=("storage",),
    )
    async def list_sessions(self, request: Request) -> Reply:
        found = await self.sessions.store.list_sessions(request.caller.id, MAX_LISTED_SESSIONS)
        return json_reply(
            {"object": "list", "data": [_session_resource_of(session, request.caller) for session in found]}
        )

    @_route(
        "DELETE",
        "/v1/sessions/{id}",
        id="endSession",
        summary="End a session",
        description="Ends a session of the person that sends the request, at every gateway within a second.",
        reply="Session",
        example=examples.SESSION,
        errors=("lookup", "storage"),
    )
    async def end_session(self, request: Request) -> Reply:
        session_id = request.path_params["id"]
        session = await self._find_session(request.caller, session_id)
        if session is None:
            raise not_found_error("Session", session_id)
        await self._end(request, session)
        return json_reply(_session_resource_of(session, request.caller))

    async def _find_session(self, caller: Caller, session_id: str) -> StoredSession | None:
        found = await self.sessions.store.list_sessions(caller.id, MAX_LISTED_SESSIONS)
        return next((session for session in found if session.id == session_id), None)

    async def _end(self, request: Request, session: StoredSession) -> None:
        if await self.sessions.end(session.id, session.caller_id):
            await self._record(request, session, is_end=True)

    async def _record(self, request: Request, session: StoredSession, *, is_end: bool) -> None:
        log.info("gateway.logged_out" if is_end else "gateway.logged_in", caller=session.caller_id, session=session.id)
        await self.audit.record_session(
            caller=session.caller_id,
            request_id=request.id,
            session=session.id,
            about=session.about,
            is_end=is_end,
        )

    async def _list_budgets(self, caller: Caller) -> list[dict[str, Any]]:
        accounts = [("You", caller.id), *((each.shown_as, each.id) for each in caller.shared)]
        states = [(owner, await self._budgets.read_state(account_id)) for owner, account_id in accounts]
        return [
            {"owner": owner, "amount": state.budget.amount, "period": state.budget.period, **state.to_resource()}
            for owner, state in states
            if state is not None
        ]

    def _require_provider(self) -> JWTProvider:
        provider = self.sessions.provider
        if provider is None or provider.config.login is None:
            raise LoginError("This gateway has no login. Its console asks for a key.", status=404)
        return provider

    def _find_base_url(self, request: Request) -> str:
        """Return the address of this gateway for the browser. Raises `LoginError` for one that cannot keep a secret."""
        current = self.configurations.current
        current.hosts.check(request.headers)
        base = find_base_url(current.gateway.mcp_endpoint.public_url, request.headers, request.scheme)
        parts = urlsplit(base)
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            text = "A login needs https. The operator sets 'mcp_endpoint.public_url' to the address of this gateway."
            raise LoginError(text, status=400)
        return base

    async def _take_attempt(self, request: Request) -> LoginAttempt:
        """Return the login that this browser has begun, once."""
        sealed = find_cookie(request.headers, _ATTEMPT_COOKIE) or ""
        try:
            # Without its padding, which clients would quote in a cookie.
            opened = self._seal.open(_LOGIN_PURPOSE, sealed + "=" * (-len(sealed) % 4))
            attempt = LoginAttempt(**parse_json(opened))
        except BrokenSealError:
            raise _unexpected_error() from None
        is_ours = hmac.compare_digest(attempt.state.encode(), request.query.get("state", "").encode())
        if not is_ours or attempt.expires_at < time.time():
            raise _unexpected_error()
        if not await self.sessions.store.use_once(hash_secret(attempt.state), attempt.expires_at):
            raise _unexpected_error()
        return attempt

    async def _start_session(self, request: Request, provider: JWTProvider, base: str, claims: Any) -> str:
        """Begin a session, and return its cookie. That of the browser before ends."""
        login = provider.config.login
        seconds = 0.0 if login is None else login.session_hours * HOUR
        about = request.headers.get("user-agent", "")
        try:
            started = await self.sessions.start(claims, about=about, seconds=seconds)
        except ValueError as error:
            log.warning("gateway.login_failed", reason=error)
            started = None
        if started is None:
            raise LoginError("The identity provider does not say who you are in a way that this gateway knows.")
        before = find_session_cookie(request.headers)
        old = None if before is None else await self.sessions.find_stored(before)
        if old is not None:
            await self._end(request, old)
        session, secret = started
        await self._record(request, session, is_end=False)
        return build_cookie(base, secret, seconds=seconds)


def _session_resource_of(session: StoredSession, caller: Caller) -> dict[str, Any]:
    return {
        "object": "session",
        "id": session.id,
        "kind": session.kind,
        "about": session.about,
        "created_at": int(session.created_at),
        "expires_at": int(session.expires_at),
        "is_current": session.id == caller.session_id,
    }


def _unexpected_error() -> LoginError:
    text = "This answer belongs to no login of this browser: it was used, replaced, or is too late. Log in again."
    return LoginError(text, status=400)


def _build_error_page(error: LoginError) -> Reply:
    return build_page("No login", str(error), status=error.status)


def _redirect(url: str, cookie: str) -> Reply:
    headers = {"location": url, "set-cookie": cookie, "cache-control": "no-store", "referrer-policy": "no-referrer"}
    return Reply(status=302, headers=headers)
