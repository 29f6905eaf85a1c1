"""`/v1/mcp/servers/{name}/login`, `/v1/mcp/logins/{name}`: people log in to MCP servers, from any browser.

The operator starts a login and opens its page. The authorization server sends the browser back to `CALLBACK_PATH`,
which needs no key: the browser has none, and the `state` of the login, which only the operator has seen, stands for it.

A caller that calls a server with a login of its own begins at a link, whose page says whose login it is. The browser
that goes on from there has a cookie, without which nothing comes back.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from holodeck.gateway.api import examples
from holodeck.gateway.api.models.other_bodies import CALLBACK_PATH, StartLogin
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.hosts import is_own_address
from holodeck.gateway.configuration import ConfigurationHolder
from holodeck.gateway.endpoints.servers import require_servers
from holodeck.gateway.http.asgi import find_base_url
from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.pages import build_departure_page, build_page, build_question_page
from holodeck.gateway.http.parameters import TextParameter
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.mcp.caller_logins import CallerLogins
from holodeck.gateway.mcp.server_logins import (
    LINK_PATH,
    LoginState,
    ServerLogins,
    cookie_name_of,
    has_login,
    use_new_login,
)
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.models.auth import OAuthAuthorizationCode
from holodeck.models.tool import MCPTool
from holodeck.models.url import BadURLError, parse_endpoint
from holodeck.storage.server_logins import StoredFlow
from holodeck.tools.mcp.callers_plugin import is_per_caller

# As OAuth has them; a login reads them from the query itself.
_REDIRECT_QUERY = (
    TextParameter(name="state", about="Of the login, as its page got it."),
    TextParameter(name="code", about="The permission, which the gateway exchanges for tokens."),
    TextParameter(name="iss", about="The authorization server."),
    TextParameter(name="error", about="Why there is no permission."),
    TextParameter(name="error_description", about="The same in words."),
)
_LINK_PARAMETER = TextParameter(name="link", about="The secret of the link.")
_caller_route = partial(route, tag="MCP servers", is_counted=False)
_operator_route = partial(route, tag="MCP servers", roles=("operator",), is_counted=False)


def _build_consent(flow: StoredFlow) -> Reply:
    """Build the page behind a link: whose login it is, and a button to go on."""
    text = (
        f"The caller '{flow.caller_id}' of this gateway will act with your account at the MCP server '{flow.server}'. "
        "Go on only if that is you, and you have asked for it. If another person has sent you this address, close the "
        "window."
    )
    return build_question_page("Log in", (text,), choices={"go": "Go on to the login"})


_LATE_LINK = build_page(
    "Too late",
    "This link was followed before, replaced or cancelled, or is too old. Call the tool again for a new one.",
    status=400,
)
_FOREIGN_FORM = build_page(
    "Not from here",
    "A page of another site has sent you here. If you have asked for a login, open its link yourself.",
    status=403,
)
_NO_PAGE = build_page(
    "No login",
    "The authorization server does not answer as it should. The log of the gateway has the details.",
    status=502,
)
_DONE = build_page(
    "You can close this window", "HoloDeck has the answer of the login. The console says what came of it."
)
_DENIED = build_page(
    "No login", "The authorization server refused. The console has the details. You can close this window."
)
_UNEXPECTED = build_page(
    "Not for HoloDeck",
    "This answer belongs to no login that is under way: it was used, replaced or cancelled, or is too late. "
    "Log in again from the console.",
    status=400,
)


class LoginEndpoints:
    """Routes of logins at MCP servers. A server out of the caller's scope is as one that does not exist."""

    def __init__(self, configurations: ConfigurationHolder, logins: ServerLogins, callers: CallerLogins) -> None:
        self._configurations = configurations
        self._logins = logins
        self._callers = callers

    @_operator_route(
        "POST",
        "/v1/mcp/servers/{name}/login",
        id="startLogin",
        summary="Log in to a server",
        description=(
            "For a server with `auth` of type `oauth_authorization_code`. Replies once the address of the login page "
            "is known, which a person then opens in any browser. There is one login of a server at a time: this one "
            "cancels the one before. After the login the server is connected anew."
        ),
        body="StartLogin",
        is_body_required=False,
        example_body={"redirect_uri": examples.REDIRECT_URI},
        reply="MCPLogin",
        example=examples.LOGIN,
        errors=("lookup", "fields", "login"),
    )
    async def start(self, request: Request) -> Reply:
        """Start a login in place of the one before, and reply once the address of its page is known."""
        offers = require_servers(self._configurations.current, request)
        name = request.path_params["name"]
        offer = next((offer for offer in offers if has_login(offer.server)), None)
        if offer is None:
            raise APIError(409, _explain_no_login(offers[0].server.config), kind="invalid_request", code="no_login")
        redirect_uri = self._choose_redirect_uri(request)
        try:
            login = await self._logins.start(
                offer.server.config,
                redirect_uri=redirect_uri,
                caller_id=request.caller.id,
                reconnect=lambda: self._reconnect(name),
            )
        except MCPError as error:
            raise APIError(503, str(error), kind="server_error", code="server_unavailable") from None
        log.info("mcp.login", server=name, status=login.status, caller=request.caller.id)
        return json_reply(_login_resource_of(login))

    @_operator_route(
        "GET",
        "/v1/mcp/servers/{name}/login",
        id="getLogin",
        summary="Get the latest login of a server",
        description="Whether it still waits for a person, is completed, or has failed. 404 if none was started.",
        reply="MCPLogin",
        example={**examples.LOGIN_OVER, "status": "completed"},
        errors=("lookup",),
        is_plain_read=True,
    )
    async def get(self, request: Request) -> Reply:
        return json_reply(_login_resource_of(await self._require_login(request)))

    @_operator_route(
        "DELETE",
        "/v1/mcp/servers/{name}/login",
        id="cancelLogin",
        summary="Cancel the login of a server",
        description="Its page leads nowhere any more. A login that is over stays as it is.",
        reply="MCPLogin",
        example={
            **examples.LOGIN_OVER,
            "status": "failed",
            "error": "Server 'tickets' (authorize): the login was cancelled.",
        },
        errors=("lookup",),
    )
    async def cancel(self, request: Request) -> Reply:
        """Cancel a login that is waiting. One that is over stays as it is."""
        login = await self._require_login(request)
        await self._logins.cancel(login.server)
        return json_reply(_login_resource_of(await self._require_login(request)))

    @route(
        "GET",
        CALLBACK_PATH,
        id="receiveLogin",
        tag="MCP servers",
        summary="Come back from a login page",
        description=(
            "The redirect URI of logins, for the browser of the person that logs in. It needs no key: `state` says "
            "which login it belongs to, and is accepted once."
        ),
        query=_REDIRECT_QUERY,
        reply={"type": "string"},
        media_type="text/html",
        error_pages={400: "no login waits for this `state`."},
        is_public=True,
    )
    async def receive_redirect(self, request: Request) -> Reply:
        """Take what the authorization server says through the browser. The page repeats nothing of it."""
        result = await self._logins.accept(request.query, _read_cookies(request))
        if result is None:
            return _UNEXPECTED
        return _DONE if result.is_granted else _DENIED

    @_caller_route(
        "POST",
        "/v1/mcp/logins/{name}",
        id="startOwnLogin",
        summary="Log in to a server as yourself",
        description=(
            "For a server with `per: caller`. Replies with the login and the link that begins it, in "
            "`authorization_url`: a person opens it in a browser, which goes through the whole login."
        ),
        reply="MCPLogin",
        example=examples.LOGIN,
        errors=("lookup", "login"),
    )
    async def start_own(self, request: Request) -> Reply:
        tool = self._require_caller_server(request)
        return json_reply(_login_resource_of(await self._callers.create_link(tool.name, request.caller.id)))

    @_caller_route(
        "GET",
        "/v1/mcp/logins/{name}",
        id="getOwnLogin",
        summary="Get your latest login at a server",
        description="Whether it still waits for a person, is completed, or has failed. 404 if none was started.",
        reply="MCPLogin",
        example={**examples.LOGIN_OVER, "status": "completed"},
        errors=("lookup",),
        is_plain_read=True,
    )
    async def get_own(self, request: Request) -> Reply:
        name = self._require_caller_server(request).name
        return json_reply(_login_resource_of(await self._require_login_of(name, request.caller.id)))

    @_caller_route(
        "DELETE",
        "/v1/mcp/logins/{name}",
        id="endOwnLogin",
        summary="Log out of a server",
        description="Deletes your tokens for the server at all gateways, and cancels a login that waits.",
        reply="DeletedLogin",
        example={"object": "mcp_login.deleted", "server": "tickets", "deleted": True},
        errors=("lookup",),
    )
    async def end_own(self, request: Request) -> Reply:
        tool = self._require_caller_server(request)
        await self._logins.withdraw(tool, request.caller.id)
        self._configurations.current.pool.close_login(request.caller.id, tool.name)
        return json_reply({"object": "mcp_login.deleted", "server": tool.name, "deleted": True})

    @route(
        "GET",
        LINK_PATH,
        id="openLoginLink",
        tag="MCP servers",
        summary="Open the link of a login",
        description="Shows whose login it is and where, and changes nothing. It needs no key: the link is the secret.",
        query=(_LINK_PARAMETER,),
        reply={"type": "string"},
        media_type="text/html",
        error_pages={400: "the link was followed before, or is too late."},
        is_public=True,
    )
    async def open_link(self, request: Request) -> Reply:
        flow = await self._logins.find_link(request.query.get("link", ""))
        if flow is None or self._find_caller_server(flow.server) is None:
            return _LATE_LINK
        return _build_consent(flow)

    @route(
        "POST",
        LINK_PATH,
        id="followLoginLink",
        tag="MCP servers",
        summary="Begin the login of a link",
        description="The form of the page behind the link. Binds the login to the browser, by a cookie.",
        query=(_LINK_PARAMETER,),
        reply={"type": "string"},
        media_type="text/html",
        error_pages={
            400: "the link was followed before, or is too late.",
            403: "the form was sent by a page of another site.",
            502: "the authorization server does not answer as it should.",
        },
        is_public=True,
        takes_form=True,
    )
    async def follow_link(self, request: Request) -> Reply:
        try:
            # Else a caller could send its own link through the browser of another person, and get the tokens of that.
            self._configurations.current.hosts.check_same_origin(request.headers)
        except APIError:
            return _FOREIGN_FORM
        flow = await self._logins.find_link(request.query.get("link", ""))
        tool = None if flow is None else self._find_caller_server(flow.server)
        if flow is None or tool is None:
            return _LATE_LINK
        public_url = self._configurations.current.gateway.mcp_endpoint.public_url
        redirect_uri = find_base_url(public_url, request.headers, request.scheme) + CALLBACK_PATH
        browser = secrets.token_urlsafe()
        try:
            login = await self._logins.follow_link(flow, tool, redirect_uri, browser)
        except MCPError:
            return _NO_PAGE
        if login is None or login.authorization_url is None:
            return _LATE_LINK
        cookie = f"{cookie_name_of(flow)}={browser}; Path=/; Max-Age=600; Secure; HttpOnly; SameSite=Lax"
        where = f"The login is at {urlsplit(login.authorization_url).netloc}."
        reply = build_departure_page("Log in", where, login.authorization_url)
        return replace(reply, headers={**reply.headers, "set-cookie": cookie})

    def _require_caller_server(self, request: Request) -> MCPTool:
        """Return the server of a request, if callers log in there themselves."""
        name = require_servers(self._configurations.current, request)[0].server.name
        tool = self._find_caller_server(name)
        if tool is None:
            message = (
                f"Callers do not log in to the MCP server '{name}' themselves: it has no 'auth' with 'per: caller'."
            )
            raise APIError(409, message, kind="invalid_request", code="no_login")
        return tool

    def _find_caller_server(self, name: str) -> MCPTool | None:
        offers = (offer.server.config for offer in self._configurations.current.server_tools)
        return next((tool for tool in offers if tool.name == name and is_per_caller(tool)), None)

    async def _require_login_of(self, name: str, caller_id: str) -> LoginState:
        login = await self._logins.find(name, caller_id)
        if login is None:
            raise APIError(404, f"You have begun no login at '{name}' lately.", kind="not_found", code="not_found")
        return login

    async def _require_login(self, request: Request) -> LoginState:
        name = require_servers(self._configurations.current, request)[0].server.name
        login = await self._logins.find(name)
        if login is None:
            message = f"No login of the MCP server '{name}' was started lately."
            raise APIError(404, message, kind="not_found", code="not_found")
        return login

    def _choose_redirect_uri(self, request: Request) -> str:
        """Return the configured address of the gateway, or that of the operator's page, with the callback's path."""
        sent = read_body(StartLogin, request.json() if request.body else {}).redirect_uri
        public_url = self._configurations.current.gateway.mcp_endpoint.public_url
        if sent is not None and public_url is None:
            _check_redirect_uri(sent, request)
            return sent
        return find_base_url(public_url, request.headers, request.scheme) + CALLBACK_PATH

    async def _reconnect(self, name: str) -> None:
        """Connect every server of the name with the login that is stored now."""
        current = self._configurations.current
        with current.uses:
            for offer in current.server_tools:
                if offer.server.name == name:
                    await use_new_login(offer.server)
                    # The error is in the resource of the server.
                    with suppress(MCPError):
                        await offer.refresh()


def _check_redirect_uri(uri: str, request: Request) -> None:
    """Refuse a redirect to another site than the one that the operator uses: it would get the codes of logins."""
    param = "redirect_uri"
    try:
        parse_endpoint(uri)
    except BadURLError as error:
        refuse(str(error).replace("'url'", f"'{param}'"), param, "invalid_url")
    if not is_own_address(uri, request.headers):
        refuse(f"'{param}' must have the origin of this gateway, as your browser has it.", param, "invalid_url")
    if not urlsplit(uri).path.endswith(CALLBACK_PATH) or not uri.endswith(CALLBACK_PATH):
        refuse(f"'{param}' must end in {CALLBACK_PATH}.", param, "invalid_url")


def _explain_no_login(tool: MCPTool) -> str:
    where = f"The MCP server '{tool.name}' has no login:"
    if not tool.url:
        return f"{where} it is a process that the gateway starts, and gets its credentials by 'env'."
    if tool.auth is not None and not isinstance(tool.auth, OAuthAuthorizationCode):
        return f"{where} its 'auth' is of type '{tool.auth.type}', which needs no person."
    if "authorization" in {name.lower() for name in tool.headers}:
        return f"{where} its 'headers' have an Authorization."
    return f"{where} write 'auth: {{type: oauth_authorization_code}}' into its definition, and log in then."


def _login_resource_of(login: LoginState) -> dict[str, Any]:
    return {
        "object": "mcp_login",
        "server": login.server,
        "status": login.status,
        "authorization_url": login.authorization_url,
        "redirect_uri": login.redirect_uri,
        "expires_at": int(login.expires_at),
        "error": login.error,
    }


def _read_cookies(request: Request) -> dict[str, str]:
    pairs = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
    return {name: value for name, _, value in pairs}
