"""`/oauth`: the gateway as the authorization server of MCP clients, in front of the identity provider.

A client is sent to `/oauth/authorize` with its person. A person that is not logged in logs in as at the console, and is
then asked whether this client may act for it: always, since a client that the gateway does not know can take any name,
and a login of the person alone must not let it in. The client gets a code, which is sealed, bound to its PKCE
challenge, accepted once and for a minute, and exchanges it for an opaque access token for `/mcp` and a text that renews
it. A renewal is accepted once: used again, the whole session ends, since one of its two users has stolen it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.issuer_login import LoginError
from holodeck.gateway.auth.oauth_clients import OAuthClient, OAuthClients, OAuthError, check_redirect_uri, refuse_client
from holodeck.gateway.auth.person_sessions import (
    ACCESS_SECONDS,
    find_session_cookie,
    hash_secret,
    new_program_token,
)
from holodeck.gateway.endpoints.person_login import PersonEndpoints
from holodeck.gateway.http.asgi import find_base_url
from holodeck.gateway.http.errors import MCP_PATH, APIError, is_mcp_path
from holodeck.gateway.http.pages import build_page, build_question_page
from holodeck.gateway.http.parameters import TextParameter
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.sealing import BrokenSealError, SealKeys
from holodeck.lib import log
from holodeck.lib.errors import BadRequestError
from holodeck.lib.ids import new_id
from holodeck.lib.json.parse import parse_json
from holodeck.lib.limits import HOUR
from holodeck.models.mcp_clients import MCPLogin
from holodeck.storage.person_sessions import StoredSession

AUTHORIZE_PATH, TOKEN_PATH, REGISTER_PATH, REVOKE_PATH = (
    "/oauth/authorize",
    "/oauth/token",
    "/oauth/register",
    "/oauth/revoke",
)
# Seconds for a person to decide, and for a client to exchange its code.
DECISION_SECONDS = 600.0
CODE_SECONDS = 60.0
# Characters of the query of an authorization request, which is in a cookie while its person logs in.
MAX_QUERY_CHARS = 1_900
# Random bytes of what makes a sealed text the only one.
_NONCE_BYTES = 16
_QUESTION_PURPOSE, _CODE_PURPOSE, _RENEWAL_PURPOSE = "mcp question", "mcp code", "mcp renewal"
_CODE_FIELDS = ("client_id", "name", "redirect_uri", "challenge", "resource", "session")
_TAG = "MCP"
_CHALLENGE_CHARS = 43
_STORED_NOWHERE = {"cache-control": "no-store"}
_route = partial(route, tag=_TAG, is_public=True, takes_form=True, errors=("caller",))
_AUTHORIZE_QUERY = tuple(
    TextParameter(name=name, about=about)
    for name, about in (
        ("response_type", "`code`."),
        ("client_id", "An id of the gateway's file, the URL of a document, or one of a registration."),
        ("redirect_uri", "One of the client's, exactly; the port on loopback is free."),
        ("code_challenge", "Of PKCE."),
        ("code_challenge_method", "`S256`."),
        ("resource", "The address of the MCP endpoint, or of one of its servers."),
        ("state", "Sent back as it is."),
    )
)


class ClientLoginEndpoints:
    """Routes of the authorization server. Without `mcp_endpoint.login` there is none."""

    def __init__(self, persons: PersonEndpoints, seal_keys: SealKeys) -> None:
        """`persons`: where persons log in that are to decide."""
        self._configurations = persons.configurations
        self._sessions = persons.sessions
        self._seal = seal_keys.for_caller("")
        self._persons = persons
        self._clients = OAuthClients(seal_keys)

    @_route(
        "GET",
        "/.well-known/oauth-authorization-server",
        id="getAuthorizationServer",
        summary="Find the authorization server of MCP clients",
        description="The metadata (RFC 8414). 404 without `mcp_endpoint.login`, as at the gateway of these examples.",
        reply="AuthorizationServer",
        example=examples.AUTHORIZATION_SERVER,
    )
    async def get_metadata(self, request: Request) -> Reply:
        settings, base = self._require_settings(request)
        registration = {"registration_endpoint": base + REGISTER_PATH} if settings.registration else {}
        return json_reply(
            {
                "issuer": base,
                "authorization_endpoint": base + AUTHORIZE_PATH,
                "token_endpoint": base + TOKEN_PATH,
                "revocation_endpoint": base + REVOKE_PATH,
                **registration,
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "client_id_metadata_document_supported": settings.documents.allow,
                "authorization_response_iss_parameter_supported": True,
            }
        )

    @_route(
        "GET",
        AUTHORIZE_PATH,
        id="authorizeClient",
        summary="Ask a person to let an MCP client in",
        description="A page for the browser of a person, which logs in before if need be.",
        query=_AUTHORIZE_QUERY,
        reply={"type": "string"},
        media_type="text/html",
        empty_replies={302: "To the login, or back to the client with what is wrong with its request."},
        error_pages={
            400: "the client or its redirect URI is not known.",
            503: "the identity provider does not answer.",
        },
    )
    async def authorize(self, request: Request) -> Reply:
        """Show the question to a person that is logged in, and send any other to the login first."""
        try:
            settings, base = self._require_settings(request)
            query = request.query
            person = await self._find_person(request)
            if person is None:
                asked = urlencode({each.name: query[each.name] for each in _AUTHORIZE_QUERY if each.name in query})
                if len(asked) > MAX_QUERY_CHARS:
                    refuse_client("invalid_request", "The request of this client is too long.")
                return await self._persons.send_to_login(request, f"{AUTHORIZE_PATH[1:]}?{asked}")
            client = await self._clients.find(query.get("client_id", ""), settings)
            check_redirect_uri(client, query.get("redirect_uri", ""))
        except OAuthError as error:
            return build_page("Not let in", str(error), status=400)
        except LoginError as error:
            return build_page("No login", str(error), status=error.status)
        try:
            resource = _read_request(query, base)
        except OAuthError as error:
            said = {"error": error.name, "error_description": str(error)}
            return _send_back(query["redirect_uri"], {**said, "state": query.get("state"), "iss": base})
        return self._build_question(client, query, base, resource, person)

    def _build_question(
        self, client: OAuthClient, query: Mapping[str, str], base: str, resource: str, person: StoredSession
    ) -> Reply:
        redirect_uri = query["redirect_uri"]
        question = {
            "client_id": client.id,
            "name": client.name,
            "redirect_uri": redirect_uri,
            "challenge": query["code_challenge"],
            "resource": resource,
            "state": query.get("state"),
            "session": person.id,
            "expires_at": time.time() + DECISION_SECONDS,
        }
        parts = urlsplit(redirect_uri)
        target = f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"
        return build_question_page(
            f"Let {client.name} in?",
            (
                f"{client.known_by} It wants to use the MCP servers and agents at {base}{resource} "
                f"as {person.caller_id}, with all that you may do there.",
                f"You are sent back to {target}, at {redirect_uri}. If you have not begun this yourself, say no.",
            ),
            fields={"question": self._seal_text(_QUESTION_PURPOSE, question)},
            choices={"allow": "Allow", "deny": "Deny"},
            leads_to=target,
        )

    @_route(
        "POST",
        AUTHORIZE_PATH,
        id="decideClient",
        summary="Let an MCP client in, or not",
        description="The answer of the person, sent by the page of `GET`.",
        reply=None,
        empty_replies={302: "Back to the client, with a code or an error."},
        error_pages={400: "the answer belongs to no question to this person."},
    )
    async def decide(self, request: Request) -> Reply:
        """Send the browser back to the client, with a code if the person has allowed it."""
        try:
            _, base = self._require_settings(request)
            self._configurations.current.hosts.check_same_origin(request.headers)
            person, form = await self._find_person(request), _read_form(request)
            question = self._open_text(_QUESTION_PURPOSE, form.get("question", ""))
            if person is None or question["session"] != person.id:
                refuse_client("invalid_request", "This question was put to another person. Begin again.")
        except OAuthError as error:
            return build_page("Not let in", str(error), status=400)
        answer: dict[str, str | None] = {"state": question["state"], "iss": base}
        if form.get("decision") != "allow":
            return _send_back(question["redirect_uri"], {"error": "access_denied", **answer})
        code = {
            **{
                name: question[name]
                for name in ("client_id", "name", "redirect_uri", "challenge", "resource", "session")
            },
            "id": new_id("ses"),
            "expires_at": time.time() + CODE_SECONDS,
        }
        return _send_back(question["redirect_uri"], {"code": self._seal_text(_CODE_PURPOSE, code), **answer})

    @_route(
        "POST",
        TOKEN_PATH,
        id="exchangeClientCode",
        summary="Get an access token for the MCP endpoint",
        description="For a code, or for the text that renews a token (RFC 6749). The body is a form.",
        reply="AccessToken",
        example=examples.ACCESS_TOKEN,
        other_replies={400: "OAuthError"},
    )
    async def exchange(self, request: Request) -> Reply:
        """Return an access token, and what renews it."""
        try:
            settings, base = self._require_settings(request)
            form = _read_form(request)
            match form.get("grant_type"):
                case "authorization_code":
                    return await self._exchange_code(request, form, settings, base)
                case "refresh_token":
                    return await self._renew(request, form)
            refuse_client("unsupported_grant_type", "There are authorization_code and refresh_token.")
        except OAuthError as error:
            return _build_error(error)

    async def _exchange_code(self, request: Request, form: Mapping[str, str], settings: MCPLogin, base: str) -> Reply:
        code = self._open_text(_CODE_PURPOSE, form.get("code", ""), "invalid_grant")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        is_ours = (form.get("client_id"), form.get("redirect_uri")) == (code["client_id"], code["redirect_uri"])
        if not is_ours or not hmac.compare_digest(challenge.encode(), str(code["challenge"]).encode()):
            refuse_client("invalid_grant", "This code is of another client, or its verifier is wrong.")
        if form.get("resource", base + code["resource"]).rstrip("/") != base + code["resource"]:
            refuse_client("invalid_target", "This code is for another resource.")
        if not await self._sessions.store.use_once(hash_secret(form["code"]), code["expires_at"]):
            # One of the two that have sent it is not the client, so that its tokens may be in wrong hands.
            await self._end(request, await self._sessions.store.get_session(code["id"]))
            refuse_client("invalid_grant", "This code was used before. All tokens that it has given are withdrawn.")
        person = await self._sessions.store.get_session(code["session"])
        if person is None:
            refuse_client("invalid_grant", "The person has logged out meanwhile.")
        renewal = self._new_renewal(code["id"], code["client_id"])
        session, token = await self._sessions.let_in_program(
            code["id"],
            person,
            about=code["name"],
            resource=code["resource"],
            seconds=settings.session_hours * HOUR,
            renewal=renewal,
        )
        await self._record(request, session, is_end=False)
        return _build_tokens(token, renewal, session.secret_expires_at)

    async def _renew(self, request: Request, form: Mapping[str, str]) -> Reply:
        renewal = form.get("refresh_token", "")
        opened = self._open_text(_RENEWAL_PURPOSE, renewal, "invalid_grant")
        session = await self._sessions.store.get_session(opened["id"])
        if session is None or form.get("client_id") not in (None, opened["client_id"]):
            refuse_client("invalid_grant", "This login has ended. Log in again.")
        token, following = new_program_token(), self._new_renewal(session.id, opened["client_id"])
        expires_at = min(session.expires_at, time.time() + ACCESS_SECONDS)
        is_renewed = await self._sessions.store.renew_secret(
            session.id, hash_secret(renewal), hash_secret(token), expires_at, hash_secret(following)
        )
        if not is_renewed:
            await self._end(request, session)
            refuse_client("invalid_grant", "This renewal was used before, so the login has ended. Log in again.")
        return _build_tokens(token, following, expires_at)

    @_route(
        "POST",
        REVOKE_PATH,
        id="revokeClientToken",
        summary="Log an MCP client out",
        description="Ends the session of a token, or of what renews it (RFC 7009). The body is a form.",
        reply={"type": "object"},
        other_replies={400: "OAuthError"},
    )
    async def revoke(self, request: Request) -> Reply:
        """End the session of a token. One that is not known has ended."""
        try:
            self._require_settings(request)
            token = _read_form(request).get("token", "")
        except OAuthError as error:
            return _build_error(error)
        session = await self._sessions.store.find_session(hash_secret(token))
        if session is None:
            try:
                opened = self._open_text(_RENEWAL_PURPOSE, token)
            except OAuthError:
                return json_reply({})
            session = await self._sessions.store.get_session(opened["id"])
        if session is not None and session.kind == "program":
            await self._end(request, session)
        return json_reply({})

    @route(
        "POST",
        REGISTER_PATH,
        id="registerClient",
        tag=_TAG,
        summary="Register an MCP client",
        description=(
            "For clients that insist on a registration of their own (RFC 7591). Nothing is stored: the id has what the "
            "client says of itself, sealed."
        ),
        reply=None,
        other_replies={201: "RegisteredClient", 400: "OAuthError"},
        is_public=True,
        errors=("caller", "body"),
    )
    async def register(self, request: Request) -> Reply:
        """Return an id that has what a client says of itself."""
        try:
            settings, _ = self._require_settings(request)
            if not settings.registration:
                refuse_client("access_denied", "This gateway registers no clients.")
            said = request.json()
            client = self._clients.register(said if isinstance(said, dict) else {})
        except BadRequestError:
            return _build_error(OAuthError("invalid_client_metadata", "The body is not JSON."))
        except OAuthError as error:
            return _build_error(error)
        registered = {
            "client_id": client.id,
            "client_id_issued_at": int(time.time()),
            "client_name": client.name,
            "redirect_uris": client.redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        return json_reply(registered, 201, cache_control="no-store")

    def _require_settings(self, request: Request) -> tuple[MCPLogin, str]:
        """Return the settings, and the address of this gateway. Raises `APIError` where there is no such login."""
        current = self._configurations.current
        current.hosts.check(request.headers)
        endpoint = current.gateway.mcp_endpoint
        if endpoint.login is None or not endpoint.enabled:
            message = "MCP clients do not log in at this gateway: its file has no 'mcp_endpoint.login'."
            raise APIError(404, message, kind="not_found", code="unknown_url")
        return endpoint.login, find_base_url(endpoint.public_url, request.headers, request.scheme)

    async def _find_person(self, request: Request) -> StoredSession | None:
        """Return the session of the browser that sends a request."""
        secret = find_session_cookie(request.headers)
        return None if secret is None else await self._sessions.find_stored(secret)

    async def _end(self, request: Request, session: StoredSession | None) -> None:
        if session is not None and await self._sessions.end(session.id, session.caller_id):
            await self._record(request, session, is_end=True)

    async def _record(self, request: Request, session: StoredSession, *, is_end: bool) -> None:
        log.info("gateway.client_left" if is_end else "gateway.client_let_in", caller=session.caller_id)
        await self._persons.audit.record_session(
            caller=session.caller_id, request_id=request.id, session=session.id, about=session.about, is_end=is_end
        )

    def _new_renewal(self, session_id: str, client_id: str) -> str:
        content = {"id": session_id, "client_id": client_id, "nonce": secrets.token_urlsafe(_NONCE_BYTES)}
        return self._seal_text(_RENEWAL_PURPOSE, content)

    def _seal_text(self, purpose: str, content: Mapping[str, Any]) -> str:
        return self._seal.seal(purpose, orjson.dumps(content)).rstrip("=")

    def _open_text(self, purpose: str, text: str, error_name: str = "invalid_request") -> dict[str, Any]:
        """Return what was sealed, unless it has expired. Raises `OAuthError`."""
        try:
            content: dict[str, Any] = parse_json(self._seal.open(purpose, text + "=" * (-len(text) % 4)))
        except BrokenSealError:
            raise OAuthError(error_name, "This is not of this gateway, or was changed.") from None
        if content.get("expires_at", float("inf")) < time.time():
            refuse_client(error_name, "This came too late. Begin again.")
        return content


def _read_request(query: Mapping[str, str], base: str) -> str:
    """Return the path of the resource that a client wants to use. Raises `OAuthError`."""
    if query.get("response_type") != "code":
        refuse_client("unsupported_response_type", "There is only the response type 'code'.")
    challenge = query.get("code_challenge", "")
    if query.get("code_challenge_method") != "S256" or len(challenge) != _CHALLENGE_CHARS:
        refuse_client("invalid_request", "PKCE with 'S256' is required.")
    resource = query.get("resource", base + MCP_PATH).rstrip("/")
    path = resource.removeprefix(base)
    if not resource.startswith(base) or not is_mcp_path(path):
        refuse_client("invalid_target", f"The tokens of this gateway are for {base}{MCP_PATH}.")
    return path


def _read_form(request: Request) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(request.body.decode("ascii"), max_num_fields=32)
    except ValueError:
        raise OAuthError("invalid_request", "The body is not a form.") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        refuse_client("invalid_request", "A field is there twice.")
    return form


def _build_tokens(token: str, renewal: str, expires_at: float) -> Reply:
    tokens = {
        "access_token": token,
        "token_type": "Bearer",
        "expires_in": max(1, int(expires_at - time.time())),
        "refresh_token": renewal,
    }
    return json_reply(tokens, cache_control="no-store", pragma="no-cache")


def _build_error(error: OAuthError) -> Reply:
    return json_reply({"error": error.name, "error_description": str(error)}, 400, cache_control="no-store")


def _send_back(redirect_uri: str, answer: Mapping[str, str | None]) -> Reply:
    said = urlencode({name: value for name, value in answer.items() if value is not None})
    location = f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{said}"
    return Reply(status=302, headers={"location": location, "referrer-policy": "no-referrer", **_STORED_NOWHERE})
