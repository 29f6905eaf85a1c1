"""The official SDK's OAuth flow, driven by hand: it decides, our door asks, and no MCP call waits for its lock."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from holodeck.lib.errors import MCPError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.secret import MASK
from holodeck.models.url import url_problem
from holodeck.tools.mcp.auth.challenge import with_scopes
from holodeck.tools.mcp.auth.door import Door, shown
from holodeck.tools.mcp.auth.login_record import LoginRecord
from holodeck.tools.mcp.auth.provider import Refusal, auth_error
from holodeck.tools.mcp.auth.redirect import Arrival, LoopbackRedirect

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider

Show = Callable[[str], Awaitable[None]]
"""Brings the address of the login page to the person: opens a browser, or prints it."""

_EXPIRED = 1.0  # any time long ago: makes the SDK try the refresh token first
_DECODED = {"content-encoding", "content-length", "transfer-encoding"}
_OURS = {"host", "content-length"}


class LoginFlow:
    """One run. `record` is what is known before, and afterwards."""

    def __init__(
        self, record: LoginRecord, *, door: Door, redirect: LoopbackRedirect | None, show: Show | None
    ) -> None:
        self._record = record
        self._login = record.login
        self._door = door
        self._redirect = redirect
        self._show = show
        self._sdk: OAuthClientProvider | None = None

    async def run(self, refusal: Refusal | None, *, refresh: bool) -> bool:
        """True when there is a new token. Without a refusal only the refresh token is tried."""
        # 0.7 s of imports must not stop the event loop.
        await asyncio.to_thread(importlib.import_module, "mcp.client.auth")
        try:
            return await self._drive(refusal, refresh=refresh)
        except MCPError:
            raise
        except Exception as error:
            raise auth_error(self._login.server, f"the login failed: {self._words(error)}.") from None
        finally:
            if self._sdk is not None:
                self._record.remember(self._sdk.context)

    async def _drive(self, refusal: Refusal | None, *, refresh: bool) -> bool:
        import httpx2

        self._sdk = sdk = self._provider()
        before = self._record.tokens
        if refresh:
            sdk.context.token_expiry_time = _EXPIRED
        request = httpx2.Request("POST", self._login.url)
        flow = sdk.async_auth_flow(request)
        answered = False
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request:
                    response = await self._send(outgoing)
                elif answered or (refresh and self._record.tokens != before):
                    return True
                elif refusal is None:
                    return False
                elif self._show is None:
                    raise login_needed(self._login.server)
                else:
                    response, answered = self._refused(refusal, request), True
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return False
        finally:
            await flow.aclose()

    def _provider(self) -> OAuthClientProvider:
        from mcp.client.auth import OAuthClientProvider

        _hush()
        sdk = OAuthClientProvider(
            server_url=self._login.url,
            client_metadata=self._record.client_metadata(),
            storage=self._record,
            redirect_handler=self._to_browser,
            callback_handler=self._from_browser,
            client_metadata_url=self._login.client_metadata_url,
        )
        self._record.restore(sdk.context)
        return sdk

    # The person.

    async def _to_browser(self, url: str) -> None:
        if self._show is None or self._redirect is None:
            raise login_needed(self._login.server)
        problem = url_problem(url, websocket=False, allow_insecure_hosts=self._login.allow_insecure_hosts)
        if problem:
            why = problem.replace("'url'", "it")
            raise auth_error(self._login.server, f"the login page {shown(url)} is refused: {why}.")
        self._check_pin()
        self._fit_client_auth()
        self._redirect.expect(parse_qs(urlsplit(url).query).get("state", [""])[0])
        await self._show(url)

    async def _from_browser(self) -> AuthorizationCodeResult:
        from mcp.client.auth import AuthorizationCodeResult

        arrival = await self._redirect.arrival() if self._redirect else Arrival()
        if arrival.error:
            said = _clean(": ".join(word for word in (arrival.error, arrival.description) if word))
            raise auth_error(self._login.server, f"the authorization server gave no permission ({said}).")
        return AuthorizationCodeResult(code=arrival.code, state=arrival.state, iss=arrival.iss)

    # The network.

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        import httpx2

        if request.method != "GET":
            self._check_pin()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OURS}
        answer = await self._door(request.method, str(request.url), headers=headers, body=await request.aread())
        content = self._pinned(answer.json()) if request.method == "GET" else None
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _DECODED}
        if content is not None:
            return httpx2.Response(answer.status, json=content, request=request)
        return httpx2.Response(answer.status, headers=kept, content=answer.body, request=request)

    def _refused(self, refusal: Refusal, request: httpx2.Request) -> httpx2.Response:
        import httpx2

        challenge = with_scopes(refusal.www_authenticate, self._login.scopes)
        headers = {"WWW-Authenticate": challenge} if challenge else {}
        return httpx2.Response(refusal.status, headers=headers, content=refusal.body, request=request)

    def _pinned(self, content: dict[str, Any] | None) -> dict[str, Any] | None:
        """A resource's metadata with only the pinned authorization server in it; None for other documents."""
        offered = content.get("authorization_servers") if content else None
        if self._login.issuer is None or content is None or not isinstance(offered, list):
            return None
        if self._login.issuer not in offered:
            named = ", ".join(shown(str(each)) for each in offered)
            raise auth_error(
                self._login.server,
                f"it names the authorization server {_clean(named)}, but {self._login.issuer} is pinned.",
            )
        return {**content, "authorization_servers": [self._login.issuer]}

    def _check_pin(self) -> None:
        """Nothing of ours goes to an authorization server that was not named in the file, if one was."""
        if self._login.issuer is None:
            return
        known = self._sdk.context.oauth_metadata if self._sdk else None
        if known is None or str(known.issuer) != self._login.issuer:
            raise auth_error(
                self._login.server,
                f"the pinned authorization server {shown(self._login.issuer)} publishes no metadata.",
            )

    def _fit_client_auth(self) -> None:
        """A client from the file authenticates as this authorization server accepts it."""
        context = self._sdk.context if self._sdk else None
        if (
            context is None
            or context.client_info is None
            or context.oauth_metadata is None
            or not self._login.client_secret
        ):
            return
        accepted = context.oauth_metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        if "client_secret_basic" not in accepted and "client_secret_post" in accepted:
            context.client_info.token_endpoint_auth_method = "client_secret_post"  # noqa: S105

    def _words(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        for secret in self._record.secrets():
            text = text.replace(secret, MASK)
        return _clean(text).rstrip(".")


def login_needed(server: str) -> MCPError:
    return auth_error(server, f"it wants a person to log in. Run: holodeck mcp login {server}", login=True)


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[: 4 * MAX_SHOWN_CHARS]


def _hush() -> None:
    """The SDK logs each failed flow with a traceback, and then raises it to us anyway."""
    logging.getLogger("mcp.client.auth.oauth2").setLevel(logging.CRITICAL)
