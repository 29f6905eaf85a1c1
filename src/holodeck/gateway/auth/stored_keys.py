"""The keys of callers in the store, known in memory at every gateway.

`StoredKeys` is one of the providers of `Callers`. `refresh` compares the number of the last change with the store, and
reads what has changed. `KeyWatch` calls it a few times a second, so that a change at one gateway is in force at every
other within a second; the gateway that makes a change calls it before it replies. A request never asks the store.

A gateway that cannot reach the store for `KNOWN_SECONDS` does not know any more which keys are in force, and refuses
all of them until it knows again. Keys of the file stay accepted.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import pydantic

from holodeck.gateway.auth.callers import (
    APIKeys,
    Caller,
    ClaimValues,
    KeyRefusal,
    RevokedCallers,
)
from holodeck.gateway.auth.groups import Groups
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.models.callers import Budget, CallerKey
from holodeck.storage.caller_keys import REVOKED_SECONDS, CallerKeyStore, StoredKey

KNOWN_SECONDS = 10.0
"""Seconds without an answer of the store after which keys in it are refused."""
# A gateway that was cut off for so long may have missed changes whose traces are deleted.
_MISSED_SECONDS = REVOKED_SECONDS / 2

ChangeListener = Callable[[RevokedCallers], None]


@record
class KnownKey:
    """A key of the store as this gateway knows it."""

    key: CallerKey
    entry: Mapping[str, object]
    """As it is stored."""
    made_at: float
    made_by: str


class StoredKeys(APIKeys):
    """Authenticates keys that are in the store."""

    def __init__(
        self, store: CallerKeyStore, *, groups: Groups | None = None, known_seconds: float = KNOWN_SECONDS
    ) -> None:
        """`known_seconds`: after so long without an answer of the store, its keys are refused."""
        super().__init__(groups=groups)
        self._store = store
        self._known_seconds = known_seconds
        self._known: dict[str, KnownKey] = {}
        """By name."""
        self._sorted: Sequence[KnownKey] | None = None
        """In the order of their names; None after a change."""
        self._number = 0
        self._known_at = -math.inf
        """When the store was last asked with success, by the monotonic clock."""
        self._is_known = False
        self._lock = asyncio.Lock()
        self._listeners: list[ChangeListener] = []

    def add_change_listener(self, listener: ChangeListener) -> None:
        """Call `listener` after each change of the keys, with the callers that are revoked by it. It must not wait."""
        self._listeners.append(listener)

    def replace_groups(self, groups: Groups) -> None:
        """Take the scopes and accounts of keys from these groups from now on. A key without its group is revoked."""
        keys = [known.key for known in self._known.values()]
        before = {key.caller_id: self.find_accepted_hashes(key) for key in keys}
        self._groups = groups
        for key in keys:
            if key.group is not None:
                self.remove_key(key)
                self.add_key(key)
        lost = [key.caller_id for key in keys if not before[key.caller_id] <= self.find_accepted_hashes(key)]
        self._announce(RevokedCallers(names=frozenset(lost)))

    @property
    def number(self) -> int:
        """The number of the last change that is known, of a key or of the state of a caller."""
        return self._number

    def find_key(self, name: str) -> KnownKey | None:
        return self._known.get(name)

    def list_keys(self) -> Sequence[KnownKey]:
        """Return all keys in the order of their names."""
        if self._sorted is None:
            self._sorted = [self._known[name] for name in sorted(self._known)]
        return self._sorted

    def list_budgets(self) -> Mapping[str, Budget]:
        """Return the budgets of the callers that have one of their own, by their ids."""
        keys = (known.key for known in self._known.values())
        return {key.caller_id: key.budget for key in keys if key.budget is not None}

    async def authenticate(self, token: str) -> Caller | None:
        return await super().authenticate(token) if self._is_known else None

    def find_caller(self, caller_id: str, issuer: str, claim_values: ClaimValues) -> Caller | None:
        if not self._is_known:
            raise StorageError("The store does not answer, so it is not known which keys are in force.")
        return super().find_caller(caller_id, issuer, claim_values)

    def explain_refusal(self, token: str) -> KeyRefusal | None:
        return super().explain_refusal(token) if self._is_known else "unknown"

    def stay_known(self) -> None:
        """Take the keys for known at this moment if they were: no request needs them."""
        if self._is_known:
            self._known_at = time.monotonic()

    def refuse_unknown(self) -> None:
        """Refuse all keys of the store from now on, if it has not answered for too long."""
        if self._is_known and time.monotonic() - self._known_at > self._known_seconds:
            self._is_known = False
            log.error("gateway.keys_unknown", seconds=self._known_seconds)
            self._announce(RevokedCallers(names=frozenset()))

    async def refresh(self) -> None:
        """Read what has changed, and apply it. Nothing is awaited after that. Raises `StorageError`."""
        async with self._lock:
            asked_at = time.monotonic()
            number = await self._store.read_change_number()
            # A smaller number is that of a database that was restored.
            is_whole = number < self._number or asked_at - self._known_at > _MISSED_SECONDS
            if is_whole or number != self._number:
                rows = await self._store.read_changed(0 if is_whole else self._number)
                self._apply(rows, is_whole=is_whole)
                self._number = max((row.change for row in rows), default=number)
            # Not at the first time, which every start has.
            if not self._is_known and math.isfinite(self._known_at):
                log.info("gateway.keys_known", keys=len(self._known))
            self._known_at, self._is_known = asked_at, True

    def _apply(self, rows: Iterable[StoredKey], *, is_whole: bool) -> None:
        read = {row.name: _parse(row) for row in rows}
        if is_whole:
            read = {name: read.get(name) for name in (*self._known, *read)}
        revoked: set[str] = set()
        for name, now in read.items():
            before = self._known.pop(name, None)
            if before is not None:
                self.remove_key(before.key)
                if not self.find_accepted_hashes(before.key) <= self._find_hashes_now(now, before.key):
                    revoked.add(before.key.caller_id)
            if now is not None:
                self._known[name] = now
                self.add_key(now.key)
        self._sorted = None
        self._announce(RevokedCallers(names=frozenset(revoked)))

    def _find_hashes_now(self, known: KnownKey | None, before: CallerKey) -> frozenset[str]:
        """Return the hashes with which the caller of an earlier key is accepted now."""
        is_same = known is not None and known.key.caller_id == before.caller_id
        return self.find_accepted_hashes(known.key) if known is not None and is_same else frozenset()

    def _announce(self, revoked: RevokedCallers) -> None:
        for listener in self._listeners:
            listener(revoked)


def _parse(row: StoredKey) -> KnownKey | None:
    """Return a key as it was read. None: it is revoked, or of a form that this version does not know."""
    if row.entry is None:
        return None
    entry = parse_json(row.entry)
    try:
        key = CallerKey.model_validate(entry)
    except pydantic.ValidationError:
        log.error("gateway.key_unreadable", name=row.name)
        return None
    return KnownKey(key=key, entry=entry, made_at=row.made_at, made_by=row.made_by)
