"""Calls of MCP servers with the login of each caller: `auth` of type `oauth_authorization_code`, `per: caller`.

The plugin of such a server lists its tools with the login of an operator. Each call goes through a connection of its
caller, from the `CallerConnectionPool`, with the tokens of that caller. A caller without a login gets a link: as a
question of the server, where the client in front can be asked to open a page, and the call goes on after the login;
otherwise as the error of the call, which can be repeated then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from holodeck.gateway.auth.callers import Callers
from holodeck.gateway.mcp.connection_pool import CallerConnectionPool
from holodeck.gateway.mcp.server_logins import LoginState, ServerLogins
from holodeck.lib.errors import MCPError, MCPProtocolError, StorageError
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.callers_plugin import CallersPlugin, OpenConnection
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.peer import ELICITATION_METHOD, Peer, RefusalError
from holodeck.tools.mcp.server_tools import ServerTools

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.authorization_code import AuthorizationCode

# Of the protocol: the client shall open a page, and repeat its request.
URL_ELICITATION_REQUIRED = -32042
# Seconds between two looks whether the person has logged in, perhaps by another gateway.
_LOGIN_POLL = 0.5


class CallerLogins:
    """The connections of callers with logins of their own."""

    def __init__(
        self,
        logins: ServerLogins,
        callers: Callers,
        *,
        get_pool: Callable[[], CallerConnectionPool],
        get_public_url: Callable[[], str | None],
    ) -> None:
        """`get_pool`, `get_public_url`: of the configuration of this moment."""
        self._logins = logins
        self._callers = callers
        self._get_pool = get_pool
        self._get_public_url = get_public_url
        self.local_url = ""
        """The address of the gateway on its own machine, for links where the file has no `public_url`."""

    def add_servers(self, servers: Iterable[ServerTools]) -> None:
        """Let the calls of servers be made with the logins of their callers, if their definitions say so."""
        for offer in servers:
            if isinstance(offer.server, CallersPlugin):
                offer.server.use_caller_connections(partial(self._find_connections, offer.server))

    def _find_connections(self, server: MCPPlugin) -> OpenConnection | None:
        # On a laptop without keys the tokens are those of the user, as in the terminal.
        return None if self._callers.has_no_auth else partial(self._open, server)

    async def create_link(self, server: str, caller_id: str) -> LoginState:
        """Return the login of a caller, with a link that begins it."""
        base_url = self._get_public_url() or self.local_url
        return await self._logins.create_link(server, caller_id, base_url.rstrip("/"))

    @asynccontextmanager
    async def _open(self, server: MCPPlugin, caller_id: str, peer: Peer | None) -> AsyncIterator[MCPPlugin]:
        with self._get_pool().acquire_login(caller_id, server, partial(self._build, server, caller_id)) as own:
            login = _require_login(own)
            try:
                if not await login.has_login():
                    await self._request_login(server.name, caller_id, peer, login)
            except StorageError:
                raise auth_error(server.name, "the storage of logins does not answer. Try again.") from None
            yield own

    def _build(self, server: MCPPlugin, caller_id: str) -> MCPPlugin:
        from holodeck.tools.mcp.auth.factory import build_auth_provider

        tokens = self._logins.open_tokens(server.name, caller_id)
        return server.with_auth(build_auth_provider(server.config, base_dir=server.base_dir, store=tokens))

    async def _request_login(self, server: str, caller_id: str, peer: Peer | None, login: AuthorizationCode) -> None:
        """Let the person log in, and return after that. Raises MCPError with the link where nothing can wait."""
        state = await self.create_link(server, caller_id)
        url = state.authorization_url or ""
        text = f"you are not logged in. Log in at {url} and call the tool again."
        params = {
            "mode": "url",
            "message": f"Log in to the MCP server '{server}'.",
            "url": url,
            "elicitationId": state.id,
        }
        if peer is None or not peer.can_answer(ELICITATION_METHOD, params):
            raise auth_error(server, text, login=True, is_public=True)
        try:
            answer = await peer.ask(ELICITATION_METHOD, params)
        except RefusalError:
            answer = {}
        if answer.get("action") == "accept" and await self._wait_login(state, caller_id, login):
            return
        if answer.get("action") in ("decline", "cancel"):
            raise auth_error(server, text, login=True, is_public=True)
        # The client is able to show the link, but nothing waits any more.
        raise MCPProtocolError(
            f"Server '{server}' (authorize): {text}",
            server=server,
            phase="authorize",
            details={"code": URL_ELICITATION_REQUIRED, "data": {"elicitations": [params]}, "is_public": True},
        )

    async def _wait_login(self, state: LoginState, caller_id: str, login: AuthorizationCode) -> bool:
        """Wait until the caller has logged in. False: the login has failed, or is too late."""
        while time.time() < state.expires_at:
            if await login.has_login():
                return True
            found = await self._logins.find(state.server, caller_id)
            if found is None or found.id != state.id or found.status == "failed":
                return False
            await asyncio.sleep(_LOGIN_POLL)
        return False


def _require_login(server: MCPPlugin) -> AuthorizationCode:
    from holodeck.tools.mcp.auth.factory import find_login

    login = None if server.auth is None else find_login(server.auth)
    if login is None:
        raise MCPError(f"Server '{server.name}' has no login.", server=server.name, phase="authorize", details={})
    return login
