"""Logins at MCP servers by operators, from any browser.

A `ServerLogin` is one login: a task runs the OAuth flow, which registers a client, gives the address of the login page
to the operator, and waits until the browser comes back to the gateway with the `state` of this login. The tokens go to
the token store of the user that runs the gateway, which the providers of its servers read.

`ServerLogins` owns the logins and their tasks, one for each server name: a new one replaces the one before. What a
login came to is known until then. `close` cancels all tasks.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.lib.tasks import TaskSet
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.auth.redirect import LOGIN_TIMEOUT, Redirect, RedirectResult, late_login_error, read_redirect
from holodeck.tools.mcp.plugin import MCPPlugin

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.authorization_code import AuthorizationCode

# Seconds for the tasks of logins to end after they are cancelled: a request may be under way.
CLOSE_GRACE = 5.0

LoginStatus = Literal["waiting", "completed", "failed"]


class ServerLogin:
    """One login. It is the `Redirect` of its flow."""

    def __init__(self, server: str, redirect_uri: str, caller_id: str, audit: AuditLog) -> None:
        """`caller_id`: the operator that has started it."""
        self._audit = audit
        self.server = server
        self.caller_id = caller_id
        self.status: LoginStatus = "waiting"
        self.authorization_url: str | None = None
        """The address of the login page; None before it is known, and once the login is over."""
        self.expires_at = time.time() + LOGIN_TIMEOUT
        self.error: MCPError | None = None
        self._uri = redirect_uri
        self._state: str | None = None
        self._has_page = asyncio.Event()
        self._arrived = asyncio.Event()
        self._result = RedirectResult()
        self._task: asyncio.Task[None] | None = None
        self._has_tokens = False

    @property
    def uri(self) -> str:
        return self._uri

    @asynccontextmanager
    async def open(self, registered_uris: Sequence[str]) -> AsyncIterator[Redirect]:
        """Accept the redirect while the block runs."""
        try:
            yield self
        finally:
            self._state = None

    async def show(self, url: str) -> None:
        self.expires_at = time.time() + LOGIN_TIMEOUT
        self.authorization_url = url
        self._has_page.set()

    def expect_state(self, state: str) -> None:
        self._state = state

    async def wait_result(self) -> RedirectResult:
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT):
                await self._arrived.wait()
        except TimeoutError:
            raise late_login_error(self.server, LOGIN_TIMEOUT) from None
        return self._result

    def accept(self, query: Mapping[str, str]) -> RedirectResult | None:
        """Take the redirect with the expected state, once. None for any other one."""
        expected, sent = self._state, query.get("state", "")
        if expected is None or not hmac.compare_digest(expected.encode(), sent.encode()):
            return None
        self._state = None
        self._result = read_redirect(query)
        self._arrived.set()
        return self._result

    def run(self, tool: MCPTool, tasks: TaskSet, reconnect: Callable[[], Awaitable[None]]) -> None:
        """Start the login as a task of `tasks`."""
        from holodeck.tools.mcp.auth.factory import build_login_provider

        provider = build_login_provider(tool, show=self.show, open_redirect=self.open)

        async def log_in() -> None:
            try:
                await provider.login()
                self._has_tokens = True
                await reconnect()
                self._finish("completed")
            except MCPError as error:
                self._finish("failed", error)
            finally:
                # Cancelled with the gateway.
                self._finish("failed", auth_error(self.server, "the login was interrupted."))

        self._task = tasks.start(log_in(), name=f"log in to {self.server}")

    async def wait_page(self) -> None:
        """Wait until the login page is known. Raises MCPError for a login that is over before."""
        await self._has_page.wait()
        if self.error is not None:
            raise self.error

    def cancel(self, reason: str) -> None:
        """End a login that has no tokens yet. One that has them goes on to connect the server."""
        if self._task is not None and not self._has_tokens:
            self._finish("failed", auth_error(self.server, reason))
            self._task.cancel()

    def _finish(self, status: LoginStatus, error: MCPError | None = None) -> None:
        if self.status != "waiting":
            return
        self.status, self.error, self.authorization_url = status, error, None
        self._has_page.set()
        self._audit.post_login(caller=self.caller_id, server=self.server, outcome=status)
        if error is None:
            log.info("mcp.login", server=self.server, status=status, caller=self.caller_id)
        else:
            log.warning("mcp.login", server=self.server, status=status, caller=self.caller_id, reason=error)


class ServerLogins:
    """The logins of a gateway, the latest of each server."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._logins: dict[str, ServerLogin] = {}
        self._tasks = TaskSet()

    async def start(
        self, tool: MCPTool, *, redirect_uri: str, caller_id: str, reconnect: Callable[[], Awaitable[None]]
    ) -> ServerLogin:
        """Start a login in place of the one before, and wait for the address of its page.

        `reconnect` connects the server with the new tokens. Raises MCPError if the flow fails before the page is known.
        """
        self.cancel(tool.name, "a later login has replaced it.")
        login = ServerLogin(tool.name, redirect_uri, caller_id, self._audit)
        login.run(tool, self._tasks, reconnect)
        self._logins[tool.name] = login
        await login.wait_page()
        return login

    def find(self, server: str) -> ServerLogin | None:
        return self._logins.get(server)

    def cancel(self, server: str, reason: str = "the login was cancelled.") -> None:
        """Cancel the login of a server, if one is waiting."""
        login = self._logins.get(server)
        if login is not None:
            login.cancel(reason)

    def cancel_callers(self, revoked: RevokedCallers) -> None:
        """Cancel the logins of operators whose credentials were withdrawn."""
        for login in self._logins.values():
            if login.caller_id in revoked:
                login.cancel("the key of the operator that has started it was withdrawn.")

    def accept(self, query: Mapping[str, str]) -> RedirectResult | None:
        """Give a redirect to the login that waits for it. None if there is none."""
        # All are compared, so that the time does not depend on which one it is.
        found = [result for login in self._logins.values() if (result := login.accept(query)) is not None]
        return found[0] if found else None

    async def close(self) -> None:
        await self._tasks.close(CLOSE_GRACE)


def has_login(server: MCPPlugin) -> bool:
    """Return whether the server sends, or would send, the login of a person."""
    return _find_login(server) is not None


async def use_new_login(server: MCPPlugin) -> None:
    """Send the login that is stored now with all further requests to the server."""
    login = _find_login(server)
    if login is not None:
        await login.use_stored()


def _find_login(server: MCPPlugin) -> AuthorizationCode | None:
    if server.auth is None:
        return None
    # Imports the HTTP client for tokens, which a gateway of servers without credentials does not need.
    from holodeck.tools.mcp.auth.factory import find_login

    return find_login(server.auth)
