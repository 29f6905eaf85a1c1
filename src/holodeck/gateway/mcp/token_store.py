"""Token stores of a gateway: logins at MCP servers in the storage that all gateways of a database share.

A `GatewayTokenStore` has the logins of one caller, or those of the operator for all callers, and belongs to one
provider.
Records are sealed for their owner and key. `lock` is a claim in the storage, so that one gateway renews a token for
all of them; nothing is stored without it. A provider looks again for what another gateway has stored, or deleted, after
`RELOAD_SECONDS`.

An operator's logins are shared where a gateway has callers with keys or a database server, and a seal key that lasts.
Elsewhere, as on a laptop, they are in the token store of the user, as those of the command line. Never in both: a
refresh token that two of them use is taken for a stolen one.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson

from holodeck.gateway.sealing import BrokenSealError, SealKeys
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.storage.server_logins import CLAIM_SECONDS, ServerLoginStore
from holodeck.tools.mcp.auth.provider import auth_error
from holodeck.tools.mcp.auth.token_store import LoginRecord, TokenStore

SHARED = ""
"""The caller id of the logins of an operator, which the requests of all callers use."""
# Seconds after which a login that was deleted at one gateway is not used at another one.
RELOAD_SECONDS = 1.0
# Seconds between two attempts to claim a login that another gateway renews.
_CLAIM_POLL = 0.1


@record
class LoginStorage:
    """The storage of the logins of a gateway, and the keys that seal them."""

    store: ServerLoginStore
    seal_keys: SealKeys
    is_shared: Callable[[], bool]
    """Whether an operator's logins belong into the storage, and not to the user that runs this gateway."""

    def seal(self, caller_id: str, purpose: str, content: Mapping[str, Any]) -> bytes:
        return self.seal_keys.for_caller(caller_id).seal(purpose, orjson.dumps(dict(content))).encode()

    def open(self, caller_id: str, purpose: str, sealed: bytes) -> dict[str, Any]:
        """Return what was sealed. Raises `BrokenSealError`, also for a key that is not there any more."""
        content = parse_json(self.seal_keys.for_caller(caller_id).open(purpose, sealed.decode()))
        return content if isinstance(content, dict) else {}


class GatewayTokenStore:
    """The logins of one caller, for one provider. `user`: the token store of the user, for an operator's logins."""

    def __init__(self, storage: LoginStorage, server: str, caller_id: str, user: TokenStore | None = None) -> None:
        self._storage = storage
        self._server = server
        self._caller_id = caller_id
        self._user = user
        self._claim = ""
        """The claim that this provider has; empty: none."""

    @property
    def reload_seconds(self) -> float:
        return RELOAD_SECONDS if self._find_user() is None else math.inf

    @property
    def login_advice(self) -> str:
        user = self._find_user()
        return "Log in from the console of the gateway." if user is None else user.login_advice

    async def load(self, key: str) -> LoginRecord | None:
        user = self._find_user()
        return await self._load_shared(key) if user is None else await user.load(key)

    async def save(self, key: str, content: Mapping[str, Any]) -> None:
        """Store a record. Raises `MCPConnectionError` if it was deleted since it was claimed."""
        user = self._find_user()
        if user is not None:
            await user.save(key, content)
            return
        sealed = self._storage.seal(self._caller_id, _purpose_of(key), content)
        try:
            is_stored = await self._storage.store.save_login(self._caller_id, key, self._claim, sealed)
        except StorageError as error:
            # The token is usable in this process, as one that cannot be written to a file.
            log.warning("mcp.login_not_stored", server=self._server, reason=error)
            return
        if not is_stored:
            raise auth_error(self._server, "the login was withdrawn in the meantime.", login=True)

    async def delete(self, key: str) -> None:
        user = self._find_user()
        if user is None:
            await self._storage.store.delete_login(self._caller_id, key)
        else:
            await user.delete(key)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Claim the login. Raises `MCPConnectionError` if another gateway does not end its claim.

        Without a claim nothing is renewed.
        """
        user = self._find_user()
        return self._hold_claim(key) if user is None else user.lock(key)

    def _find_user(self) -> TokenStore | None:
        """Return the token store of the user, if the login is there."""
        return None if self._user is None or self._storage.is_shared() else self._user

    async def _load_shared(self, key: str) -> LoginRecord | None:
        try:
            sealed = await self._storage.store.read_login(self._caller_id, key)
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)
            raise auth_error(self._server, "the storage of logins does not answer.") from None
        if sealed is None:
            return None
        try:
            return self._storage.open(self._caller_id, _purpose_of(key), sealed)
        except BrokenSealError:
            log.warning("mcp.login_unreadable", server=self._server, fix="log in again, or put its seal key back")
            return None

    @asynccontextmanager
    async def _hold_claim(self, key: str) -> AsyncIterator[None]:
        store, claim = self._storage.store, secrets.token_hex(8)
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                while not await store.claim_login(self._caller_id, key, claim):  # noqa: ASYNC110
                    # The claim may be another process's, which tells nobody when it ends.
                    await asyncio.sleep(_CLAIM_POLL)
        except TimeoutError:
            raise auth_error(self._server, "another gateway renews its token, and does not end.") from None
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)
            raise auth_error(self._server, "the storage of logins does not answer.") from None
        self._claim = claim
        try:
            yield
        finally:
            self._claim = ""
            try:
                await store.free_login(self._caller_id, key, claim)
            # It ends with its time.
            except StorageError as error:
                log.debug("gateway.storage_failed", error=error)


def _purpose_of(key: str) -> str:
    return f"login at {key}"
