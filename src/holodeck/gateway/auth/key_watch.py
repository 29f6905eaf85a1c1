"""Background work for callers: what has changed in the store, what has expired, and when callers were seen.

`follow` and `watch` are tasks of the service. `watch` also runs while `follow` waits for a store that does not answer.
"""

from __future__ import annotations

import asyncio
import time

from holodeck.gateway.auth.caller_states import CallerStates
from holodeck.gateway.auth.callers import Callers
from holodeck.gateway.auth.stored_keys import StoredKeys
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.storage.caller_keys import CallerKeyStore

# Seconds between two looks at the store: a change is in force elsewhere after one of them and a reading.
_FOLLOW_SECONDS = 0.25
# Seconds between two checks whether the keys are still known, and of what has expired.
_WATCH_SECONDS = 0.5
# Seconds between two writings of when callers were seen, unless a list of keys is asked for.
_USES_SECONDS = 60.0


class KeyWatch:
    """Keeps the callers of a gateway current."""

    def __init__(self, callers: Callers, keys: StoredKeys, states: CallerStates, store: CallerKeyStore) -> None:
        self._callers = callers
        self._keys = keys
        self._states = states
        self._store = store

    async def follow(self) -> None:
        """Read the keys and the states of callers whenever they have changed. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_FOLLOW_SECONDS)
            if self._callers.has_no_auth:
                # It accepts every request of its machine, and asks the store again once that ends.
                self._keys.stay_known()
            else:
                await self.load()

    async def refresh(self) -> None:
        """Read the keys and the states of callers, if they have changed. Raises `StorageError`."""
        await self._keys.refresh()
        await self._states.refresh(self._keys.number)

    async def load(self) -> None:
        """Read the keys and the states of callers, if they have changed. Errors are logged."""
        try:
            await self.refresh()
        except StorageError as error:
            log.debug("gateway.storage_failed", error=error)

    async def watch(self) -> None:
        """Refuse keys that are not known any more, or have expired, and store when keys were used.

        Runs until it is cancelled.
        """
        stored_at = time.monotonic()
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self._keys.refuse_unknown()
            self._callers.revoke_expired()
            if time.monotonic() - stored_at >= _USES_SECONDS:
                stored_at = time.monotonic()
                await self.store_uses()

    async def store_uses(self) -> None:
        """Store which callers were seen since the last call. What cannot be stored is lost: it is soon seen again."""
        used = self._callers.take_used()
        if used:
            try:
                await self._store.record_uses(used, time.time())
            except StorageError as error:
                log.debug("gateway.storage_failed", error=error)
