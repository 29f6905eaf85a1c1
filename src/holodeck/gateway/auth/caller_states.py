"""The callers that operators have paused, or whose data is being erased, known in memory at every gateway.

`refresh` reads them whenever the keys of the store have a new number: `KeyWatch` calls both. `Callers` refuses them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holodeck.gateway.auth.callers import Callers, KeyRefusal
from holodeck.storage.caller_states import CallerState, CallerStateStore


class CallerStates:
    """The states of callers, as far as this gateway knows them."""

    def __init__(self, store: CallerStateStore, callers: Callers) -> None:
        self._store = store
        self._callers = callers
        self._states: dict[str, CallerState] = {}
        self._number: int | None = None
        self._changed = asyncio.Event()

    def find(self, caller_id: str) -> CallerState | None:
        return self._states.get(caller_id)

    def list_all(self) -> Sequence[CallerState]:
        """Return all states, in the order of their changes."""
        return list(self._states.values())

    async def wait_changed(self) -> None:
        """Wait until a state has changed."""
        await self._changed.wait()

    async def refresh(self, number: int) -> None:
        """Read the states if they may have changed: `number` is that of the last change. Raises `StorageError`."""
        if number == self._number:
            return
        states = {state.caller_id: state for state in await self._store.read_states()}
        is_first, self._number = self._number is None, number
        if is_first:
            # Nothing of any caller is in memory yet. What is to be erased, this gateway erases, too.
            await self._store.confirm(0 if any(state.is_erasing for state in states.values()) else number)
        if states == self._states:
            return
        self._states = states
        self._callers.replace_refusals(
            {state.caller_id: _refusal_of(state) for state in states.values() if state.is_paused or state.is_erasing}
        )
        self._changed.set()
        self._changed = asyncio.Event()


def _refusal_of(state: CallerState) -> KeyRefusal:
    return "erasing" if state.is_erasing else "caller_paused"
