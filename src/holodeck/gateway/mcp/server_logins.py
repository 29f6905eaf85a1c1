"""Logins at MCP servers, from any browser, by any gateway of a database.

A login is a `StoredFlow`, which every gateway can read, cancel, and take the browser's answer for. The gateway at which
it began runs it: a task goes through the OAuth flow, which registers a client, gives the address of the login page, and
waits until the browser comes back, to this gateway or another one, with the `state` of this login. The state is good
for one answer, and the answer is given to the task through the storage. The tokens go to a `GatewayTokenStore`.

`ServerLogins` owns the tasks, and the stored flows of one gateway. There is one flow of each owner and server: a new
one replaces the one before. `close` cancels all tasks.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.callers import Callers, RevokedCallers
from holodeck.gateway.mcp.token_store import SHARED, GatewayTokenStore, LoginStorage
from holodeck.gateway.sealing import BrokenSealError, SealKeys, has_lasting_key
from holodeck.lib import log
from holodeck.lib.errors import MCPError, StorageError
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.models.gateway import GatewayFile
from holodeck.models.tool import MCPTool
from holodeck.storage.server_logins import StoredFlow
from holodeck.storage.store import ResponseStore
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.auth.redirect import LOGIN_TIMEOUT, Redirect, RedirectResult, late_login_error, read_redirect
from holodeck.tools.mcp.auth.token_store import TokenStore
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.server_tools import ServerTools

if TYPE_CHECKING:
    from holodeck.tools.mcp.auth.authorization_code import AuthorizationCode

# Seconds for the tasks of logins to end after they are cancelled: a request may be under way.
CLOSE_GRACE = 5.0
# Seconds between two looks for an answer that came to another gateway.
_ANSWER_POLL = 0.5
_ID_BYTES = 16

LoginStatus = Literal["waiting", "completed", "failed"]
Reconnect = Callable[[], Awaitable[None]]


@record
class LoginState:
    """A login as it is shown to its owner."""

    server: str
    status: LoginStatus
    redirect_uri: str
    expires_at: float
    authorization_url: str | None = None
    """The address of the login page; None before it is known, and once the login is over."""
    error: str | None = None


class _RunningLogin:
    """One login that this gateway runs. It is the `Redirect` of its flow."""

    def __init__(self, storage: LoginStorage, flow: StoredFlow, redirect_uri: str, audit: AuditLog) -> None:
        self._storage = storage
        self._audit = audit
        self.flow = flow
        self.error: MCPError | None = None
        self._uri = redirect_uri
        self._state = ""
        self._has_page = asyncio.Event()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._has_tokens = False
        self._is_over = False

    @property
    def uri(self) -> str:
        return self._uri

    @asynccontextmanager
    async def open(self, registered_uris: Sequence[str]) -> AsyncIterator[Redirect]:
        yield self

    async def show(self, url: str) -> None:
        """Accept the browser's answer from now on, at every gateway, and show the page."""
        content = _seal_state(self._storage, self.flow, self._uri, authorization_url=url)
        self.flow = replace(self.flow, expires_at=time.time() + LOGIN_TIMEOUT, content=content)
        if not await self._storage.store.show_flow(self.flow, digest_of(self._state)):
            raise self._over_error()
        self._has_page.set()

    def expect_state(self, state: str) -> None:
        self._state = state

    async def wait_result(self) -> RedirectResult:
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT):
                while (result := await self._read_result()) is None:
                    await self._wait_arrival()
        except TimeoutError:
            raise late_login_error(self.flow.server, LOGIN_TIMEOUT) from None
        return result

    def wake(self) -> None:
        """Look for the answer at once."""
        self._arrived.set()

    def run(self, tool: MCPTool, tasks: TaskSet, tokens: GatewayTokenStore | None, reconnect: Reconnect) -> None:
        """Start the login as a task of `tasks`."""
        from holodeck.tools.mcp.auth.factory import build_login_provider

        provider = build_login_provider(tool, show=self.show, open_redirect=self.open)
        provider.replace_store(lambda user: tokens or GatewayTokenStore(self._storage, tool.name, SHARED, user))

        async def log_in() -> None:
            try:
                await provider.login()
                self._has_tokens = True
                await reconnect()
                await self._finish(None)
            except MCPError as error:
                await self._finish(error)
            except StorageError as error:
                log.warning("gateway.storage_failed", error=error)
                await self._finish(auth_error(self.flow.server, "the storage of logins does not answer."))
            finally:
                self._report("failed", auth_error(self.flow.server, "the login was interrupted."))

        self._task = tasks.start(log_in(), name=f"log in to {self.flow.server}")

    async def wait_page(self) -> None:
        """Wait until the login page is known. Raises MCPError for a login that is over before."""
        await self._has_page.wait()
        if self.error is not None:
            raise self.error

    async def cancel(self, reason: str) -> None:
        """End a login that has no tokens yet. One that has them goes on to connect the server."""
        if self._task is not None and not self._is_over and not self._has_tokens:
            await self._finish(auth_error(self.flow.server, reason))
            self._task.cancel()

    def end_replaced(self) -> None:
        """End a login whose place another one has."""
        if self._task is not None and not self._is_over and not self._has_tokens:
            self._report("failed", self._over_error())
            self._task.cancel()

    async def _read_result(self) -> RedirectResult | None:
        try:
            status, sealed = await self._storage.store.read_result(self.flow)
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)
            return None
        if status != "waiting":
            raise self._over_error()
        if sealed is None:
            return None
        return RedirectResult(**self._storage.open(self.flow.caller_id, _purpose_of(self.flow), sealed))

    async def _wait_arrival(self) -> None:
        try:
            async with asyncio.timeout(_ANSWER_POLL):
                await self._arrived.wait()
        except TimeoutError:
            pass

    def _over_error(self) -> MCPError:
        return auth_error(self.flow.server, "the login was cancelled, or a later one has replaced it.")

    async def _finish(self, error: MCPError | None) -> None:
        status: LoginStatus = "completed" if error is None else "failed"
        text = None if error is None else str(error)
        content = _seal_state(self._storage, self.flow, self._uri, error=text)
        try:
            await self._storage.store.end_flow(self.flow, status, content)
        # It expires.
        except StorageError as failure:
            log.warning("gateway.storage_failed", error=failure)
        self._report(status, error)

    def _report(self, status: LoginStatus, error: MCPError | None) -> None:
        if self._is_over:
            return
        self._is_over, self.error = True, error
        self._has_page.set()
        server, caller = self.flow.server, self.flow.started_by
        self._audit.post_login(caller=caller, server=server, outcome=status)
        if error is None:
            log.info("mcp.login", server=server, status=status, caller=caller)
        else:
            log.warning("mcp.login", server=server, status=status, caller=caller, reason=error)


class ServerLogins:
    """The logins that a gateway runs, and its way to those of the others."""

    def __init__(self, storage: LoginStorage, audit: AuditLog) -> None:
        self._storage = storage
        self._audit = audit
        self._running: dict[tuple[str, str], _RunningLogin] = {}
        """By owner and server, the latest that this gateway has started."""
        self._tasks = TaskSet()

    def add_servers(self, servers: Iterable[ServerTools]) -> None:
        """Let servers use the logins that the gateways share."""
        for offer in servers:
            login = _find_login(offer.server)
            if login is not None:
                login.replace_store(partial(self._share, offer.server.name))

    async def start(self, tool: MCPTool, *, redirect_uri: str, caller_id: str, reconnect: Reconnect) -> LoginState:
        """Start a login for all callers in place of the one before, and wait for the address of its page.

        `reconnect` connects the server with the new tokens. Raises MCPError if the flow fails before the page is known.
        """
        flow = StoredFlow(
            id=secrets.token_hex(_ID_BYTES),
            caller_id=SHARED,
            server=tool.name,
            started_by=caller_id,
            status="waiting",
            expires_at=time.time() + LOGIN_TIMEOUT,
            content=b"",
        )
        flow = replace(flow, content=_seal_state(self._storage, flow, redirect_uri))
        await self._storage.store.start_flow(flow)
        login = self._run(flow, redirect_uri)
        login.run(tool, self._tasks, None, reconnect)
        await login.wait_page()
        return self._read_state(login.flow)

    async def find(self, server: str, caller_id: str = SHARED) -> LoginState | None:
        """Return the latest login of an owner at a server."""
        flow = await self._storage.store.find_flow(caller_id, server)
        return None if flow is None else self._read_state(flow)

    async def cancel(self, server: str, caller_id: str = SHARED) -> None:
        """Cancel the login at a server, if one is waiting, whichever gateway runs it."""
        flow = await self._storage.store.find_flow(caller_id, server)
        if flow is None or flow.status not in ("linked", "waiting"):
            return
        error = auth_error(server, "the login was cancelled.")
        running = self._running.get((caller_id, server))
        if running is not None and running.flow.id == flow.id:
            await running.cancel("the login was cancelled.")
        else:
            uri = self._read_state(flow).redirect_uri
            content = _seal_state(self._storage, flow, uri, error=str(error))
            await self._storage.store.end_flow(flow, "failed", content)

    def cancel_callers(self, revoked: RevokedCallers) -> None:
        """Cancel the logins here that callers have started whose credentials were withdrawn."""
        for login in self._running.values():
            if login.flow.started_by in revoked:
                reason = "the key of the caller that has started it was withdrawn."
                self._tasks.start(login.cancel(reason), name=f"cancel login at {login.flow.server}")

    async def accept(self, query: Mapping[str, str], browser: str = "") -> RedirectResult | None:
        """Give a redirect to the login that waits for its state. None if there is none, or not of this browser.

        `browser`: the secret of the browser's cookie, or empty.
        """
        digest = digest_of(query.get("state", ""))
        flow = await self._storage.store.find_flow_by_state(digest)
        if flow is None or not flow.is_alive:
            return None
        if flow.browser_digest is not None and not hmac.compare_digest(flow.browser_digest, digest_of(browser)):
            log.warning("mcp.login_of_another_browser", server=flow.server, caller=flow.caller_id)
            return None
        result = read_redirect(query)
        sealed = self._storage.seal(flow.caller_id, _purpose_of(flow), asdict(result))
        if not await self._storage.store.accept_result(flow, digest, sealed):
            return None
        running = self._running.get((flow.caller_id, flow.server))
        if running is not None:
            running.wake()
        return result

    async def close(self) -> None:
        await self._tasks.close(CLOSE_GRACE)

    def _share(self, server: str, user: TokenStore) -> TokenStore:
        if isinstance(user, GatewayTokenStore):
            return user
        return GatewayTokenStore(self._storage, server, SHARED, user)

    def _run(self, flow: StoredFlow, redirect_uri: str) -> _RunningLogin:
        """Build the login of a flow in place of the one before."""
        key = (flow.caller_id, flow.server)
        before = self._running.get(key)
        if before is not None:
            before.end_replaced()
        login = self._running[key] = _RunningLogin(self._storage, flow, redirect_uri, self._audit)
        return login

    def _read_state(self, flow: StoredFlow) -> LoginState:
        try:
            content = self._storage.open(flow.caller_id, _purpose_of(flow), flow.content)
        # Sealed with a key that is not there any more.
        except BrokenSealError:
            content = {}
        is_interrupted = flow.status == "waiting" and (not flow.is_alive or flow.expires_at < time.time())
        error = str(auth_error(flow.server, "the login was interrupted.")) if is_interrupted else content.get("error")
        return LoginState(
            server=flow.server,
            status="failed" if is_interrupted else "waiting" if flow.status == "linked" else flow.status,
            redirect_uri=content.get("redirect_uri", ""),
            expires_at=flow.expires_at,
            authorization_url=None if is_interrupted else content.get("authorization_url"),
            error=error,
        )


def build_logins(
    config: GatewayFile, folder: Path, store: ResponseStore, seal_keys: SealKeys, callers: Callers, audit: AuditLog
) -> ServerLogins:
    """Build the logins of a gateway. On a laptop without keys their tokens stay those of its user."""
    can_share = has_lasting_key(config, folder)
    has_server = not config.storage.url.startswith("sqlite")
    storage = LoginStorage(
        store=store.server_logins,
        seal_keys=seal_keys,
        is_shared=lambda: can_share and (has_server or not callers.has_no_auth),
    )
    return ServerLogins(storage, audit)


def has_login(server: MCPPlugin) -> bool:
    """Return whether the server sends, or would send, the login of a person."""
    return _find_login(server) is not None


async def use_new_login(server: MCPPlugin) -> None:
    """Send the login that is stored now with all further requests to the server."""
    login = _find_login(server)
    if login is not None:
        await login.use_stored()


def digest_of(secret: str) -> str:
    """Return the digest by which a secret of a browser is found: it has as many random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _seal_state(
    storage: LoginStorage,
    flow: StoredFlow,
    redirect_uri: str,
    *,
    authorization_url: str | None = None,
    error: str | None = None,
) -> bytes:
    content = {"redirect_uri": redirect_uri, "authorization_url": authorization_url, "error": error}
    return storage.seal(flow.caller_id, _purpose_of(flow), content)


def _purpose_of(flow: StoredFlow) -> str:
    return f"login flow {flow.id}"


def _find_login(server: MCPPlugin) -> AuthorizationCode | None:
    if server.auth is None:
        return None
    # Imports the HTTP client for tokens, which a gateway of servers without credentials does not need.
    from holodeck.tools.mcp.auth.factory import find_login

    return find_login(server.auth)
