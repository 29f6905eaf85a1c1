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
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
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
from holodeck.models.callers import KEY_CALLER_PREFIX
from holodeck.models.gateway import GatewayFile
from holodeck.models.tool import MCPTool
from holodeck.storage.server_logins import FlowStatus, StoredFlow
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
LINK_PATH = "/v1/mcp/login/begin"
"""The page of a link, on which a person begins a login."""
# Seconds that a link must be good for to be shown once more.
_LINK_LEEWAY = 120.0

LoginStatus = Literal["waiting", "completed", "failed"]
Reconnect = Callable[[], Awaitable[None]]


@record
class LoginState:
    """A login as it is shown to its owner."""

    id: str
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
        self._linking = asyncio.Lock()

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
        flow = self._build_flow(tool.name, SHARED, caller_id, "waiting")
        flow = replace(flow, content=_seal_state(self._storage, flow, redirect_uri))
        await self._storage.store.start_flow(flow)
        login = self._run(flow, redirect_uri)
        login.run(tool, self._tasks, None, reconnect)
        await login.wait_page()
        return self._read_state(login.flow)

    async def create_link(self, server: str, caller_id: str, base_url: str) -> LoginState:
        """Return the login of a caller at a server, with a link at this address that begins it.

        A link that was not followed yet is shown again: several calls at once get the same one. So is the login page of
        one that was followed, which no call may end.
        """
        async with self._linking:
            flow = await self._storage.store.find_flow(caller_id, server)
            state = None if flow is None else self._read_state(flow)
            if flow is not None and state is not None and _is_under_way(flow, state):
                return state
            link = secrets.token_urlsafe()
            flow = self._build_flow(server, caller_id, caller_id, "linked")
            url = f"{base_url}{LINK_PATH}?link={link}"
            flow = replace(flow, content=_seal_state(self._storage, flow, "", authorization_url=url))
            await self._storage.store.start_flow(flow, digest_of(link))
            return self._read_state(flow)

    async def find_link(self, link: str) -> StoredFlow | None:
        """Return the login that a link begins. None: it was followed or replaced, or is too late."""
        flow = await self._storage.store.find_flow_by_link(digest_of(link))
        return flow if flow is not None and flow.status == "linked" and flow.expires_at > time.time() else None

    async def follow_link(self, flow: StoredFlow, tool: MCPTool, redirect_uri: str, browser: str) -> LoginState | None:
        """Begin the login of a link in the browser with this secret, once. None: another browser has.

        Raises MCPError if the flow fails before the page is known.
        """
        if not await self._storage.store.follow_link(flow, digest_of(browser)):
            return None
        flow = replace(flow, status="waiting", browser_digest=digest_of(browser))
        login = self._run(flow, redirect_uri)
        login.run(tool, self._tasks, self.open_tokens(tool.name, flow.caller_id), _do_nothing)
        await login.wait_page()
        return self._read_state(login.flow)

    async def withdraw(self, tool: MCPTool, caller_id: str) -> None:
        """Log a caller out of a server, at all gateways, and cancel a login that waits."""
        from holodeck.tools.mcp.auth.factory import build_login_provider

        await self.cancel(tool.name, caller_id)
        tokens = self.open_tokens(tool.name, caller_id)
        await build_login_provider(tool, show=None, store=tokens).logout()
        self._audit.post_login(caller=caller_id, server=tool.name, outcome="withdrawn")

    def open_tokens(self, server: str, caller_id: str) -> GatewayTokenStore:
        """Return the token store of a caller's login."""
        return GatewayTokenStore(self._storage, server, caller_id)

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

    def end_callers(self, revoked: RevokedCallers, has_caller: Callable[[str], bool]) -> None:
        """Cancel the logins here that callers have started whose credentials were withdrawn.

        Those of keys that do not exist any more are deleted. The tokens of a caller that is paused, or whose key was
        changed, stay.
        """
        for login in self._running.values():
            if login.flow.started_by in revoked:
                reason = "the key of the caller that has started it was withdrawn."
                self._tasks.start(login.cancel(reason), name=f"cancel login at {login.flow.server}")
        gone = [name for name in revoked.names if name.startswith(KEY_CALLER_PREFIX) and not has_caller(name)]
        if gone:
            self._tasks.supervise(partial(self._delete_of, gone), name="delete logins")

    async def _delete_of(self, caller_ids: Collection[str]) -> None:
        try:
            deleted = await self._storage.store.delete_logins_of(caller_ids)
        except StorageError as error:
            # Nothing uses them: the ids are not given to other callers.
            log.warning("gateway.storage_failed", error=error)
            return
        for caller_id in deleted:
            self._audit.post_login(caller=caller_id, server="", outcome="withdrawn")

    async def accept(self, query: Mapping[str, str], cookies: Mapping[str, str]) -> RedirectResult | None:
        """Give a redirect to the login that waits for its state. None if there is none, or not of this browser."""
        digest = digest_of(query.get("state", ""))
        flow = await self._storage.store.find_flow_by_state(digest)
        if flow is None or not flow.is_alive:
            return None
        browser = digest_of(cookies.get(cookie_name_of(flow), ""))
        if flow.browser_digest is not None and not hmac.compare_digest(flow.browser_digest, browser):
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

    def _build_flow(self, server: str, caller_id: str, started_by: str, status: FlowStatus) -> StoredFlow:
        return StoredFlow(
            id=secrets.token_hex(_ID_BYTES),
            caller_id=caller_id,
            server=server,
            started_by=started_by,
            status=status,
            expires_at=time.time() + LOGIN_TIMEOUT,
            content=b"",
        )

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
        is_late = flow.expires_at < time.time()
        is_interrupted = (flow.status == "waiting" and not flow.is_alive) or (
            flow.status in ("linked", "waiting") and is_late
        )
        error = str(auth_error(flow.server, "the login was interrupted.")) if is_interrupted else content.get("error")
        return LoginState(
            id=flow.id,
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


def _is_under_way(flow: StoredFlow, state: LoginState) -> bool:
    """Return whether a login, or its link, can still be gone through."""
    is_open = state.status == "waiting" and state.authorization_url is not None
    return is_open and (flow.status == "waiting" or state.expires_at - time.time() > _LINK_LEEWAY)


async def _do_nothing() -> None:
    """Reconnect nothing: the connections of a caller look for its login themselves."""


def digest_of(secret: str) -> str:
    """Return the digest by which a secret of a browser is found: it has as many random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def cookie_name_of(flow: StoredFlow) -> str:
    """Return the name of the cookie that binds a login to one browser. Other sites and hosts cannot set it."""
    return f"__Host-holodeck-login-{flow.id}"


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
