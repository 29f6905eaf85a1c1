"""Erasing of everything that is stored of a caller, at every gateway of a database.

`CallerErasure.follow` is a task of the service. For each caller that is to be erased it waits until what ran for the
caller has ended here, forgets what is in memory, and deletes what is stored. Each gateway does all of it, since each
may store something until then; the caller is refused everywhere until the last of them has confirmed. An erasure that
a gateway leaves unfinished goes on at the others, or after its restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from holodeck.gateway.auth.caller_states import CallerStates
from holodeck.gateway.auth.open_requests import OpenRequests
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.background import Background
from holodeck.gateway.usage.meter import UsageMeter
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.storage.caller_states import CallerState
from holodeck.storage.store import ResponseStore

# Seconds between two looks at what has not ended yet, here or at another gateway.
_POLL_SECONDS = 0.1
# Seconds for unfinished responses to end at other gateways, which erase what they leave behind themselves.
_END_SECONDS = 10.0


class CallerErasure:
    """Erases callers at this gateway."""

    def __init__(
        self,
        states: CallerStates,
        store: ResponseStore,
        *,
        requests: OpenRequests,
        runs: ActiveRuns,
        background: Background,
        meter: UsageMeter,
        forgetters: Sequence[Callable[[str], None]],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """`forgetters`: each deletes what one component has in memory of a caller. `refresh`: reads the states."""
        self._states = states
        self._store = store
        self._requests = requests
        self._runs = runs
        self._background = background
        self._meter = meter
        self._forgetters = forgetters
        self._refresh = refresh
        self._seen: dict[str, float | None] = {}
        """When the data of callers was erased, as far as this gateway has seen it."""

    async def follow(self) -> None:
        """Erase whatever is to be erased. Runs until it is cancelled."""
        while True:
            states = self._states.list_all()
            await self._check_missed(states)
            erasing = [state for state in states if state.is_erasing]
            if not erasing:
                await self._states.wait_changed()
                continue
            try:
                for state in erasing:
                    await self._erase(state)
                await self._refresh()
            except StorageError as error:
                log.warning("gateway.storage_failed", error=error)
            await asyncio.sleep(_POLL_SECONDS)

    async def _erase(self, state: CallerState) -> None:
        caller_id = state.caller_id
        if self._seen.get(caller_id) != state.erased_at:
            # Cancelled when the caller was refused: each bounds its own end.
            while self._is_busy(caller_id):  # noqa: ASYNC110 - two registries, and no event for one caller
                await asyncio.sleep(_POLL_SECONDS)
            await self._end_responses(caller_id)
            for forget in self._forgetters:
                forget(caller_id)
            await self._meter.forget_caller(caller_id)
            await self._background.erase_caller(caller_id)
            await self._store.erase_caller(caller_id)
            await self._store.caller_states.confirm(state.change)
            self._seen[caller_id] = state.erased_at
            log.warning("caller.erased", name=caller_id, caller=state.changed_by)
        await self._store.caller_states.finish_erasing(caller_id)

    async def _end_responses(self, caller_id: str) -> None:
        """Cancel the unfinished responses of a caller at all gateways, and wait until they have ended. Bounded."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                while found := await self._store.find_unfinished_of(caller_id):
                    for response_id in found:
                        await self._background.cancel(response_id, caller_id)
                    await asyncio.sleep(_POLL_SECONDS)

    async def _check_missed(self, states: Sequence[CallerState]) -> None:
        """Erase a caller again that was erased while this gateway was cut off from the store, and served it."""
        for state in states:
            if state.is_erasing or self._seen.get(state.caller_id) == state.erased_at:
                continue
            self._seen[state.caller_id] = state.erased_at
            if self._is_busy(state.caller_id):
                await self._store.caller_states.start_erasing(state.caller_id, state.changed_by)

    def _is_busy(self, caller_id: str) -> bool:
        return self._requests.has_caller(caller_id) or self._runs.has_caller(caller_id)
