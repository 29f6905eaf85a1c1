"""Calls that nobody has run yet, kept until a client answers, a person approves, or somebody goes on without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from holodeck.gateway.wire.approvals import digest_of
from holodeck.gateway.wire.ids import approval_id
from holodeck.gateway.wire.reading import Input
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, Item
from holodeck.models.items_codec import decode_items, encode_items

Places = Mapping[str, tuple[str, str]]
_NOTHING_WAITS = b'{"calls":"[]","asks":[],"listed":[],"places":{}}'


@record
class Waiting:
    """Calls that were not run, and the ids of those that a person must approve. Kept, not guessed."""

    calls: tuple[FunctionCall, ...] = ()
    asks: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    """The labels of servers whose tools the client has seen in this chain of responses."""
    places: Places = field(default_factory=dict)
    """The server and the tool of each call. A name alone may lead elsewhere when other servers are there as well."""
    own: frozenset[str] = frozenset()
    """The ids of calls for which the caller brought credentials of its own: they run with nobody else's."""
    turn: tuple[FunctionCall, ...] = ()
    """All calls of the turn that paused, in its order, the client's own among them."""
    brought: Mapping[str, bytes] = field(default_factory=dict)
    """Digests, by their ids, of requests for approval that the client has sent along. Never kept."""

    @property
    def hidden(self) -> tuple[FunctionCall, ...]:
        """Those that the client has not seen in any form."""
        return tuple(call for call in self.calls if call.call_id not in self.asks)

    def encode(self) -> bytes:
        if not (self.calls or self.listed or self.places):
            return _NOTHING_WAITS
        plain: dict[str, Any] = {
            "calls": encode_items(self.calls).decode(),
            "asks": sorted(self.asks),
            "listed": sorted(self.listed),
            "places": dict(self.places),
        }
        if self.own:
            plain["own"] = sorted(self.own)
        if self.turn:
            plain["turn"] = encode_items(self.turn).decode()
        return orjson.dumps(plain)

    @classmethod
    def decode(cls, data: bytes) -> Waiting:
        plain: Any = orjson.loads(data)
        if not isinstance(plain, dict):
            return cls()
        return cls(
            calls=_calls(decode_items(plain["calls"].encode())),
            asks=frozenset(plain["asks"]),
            listed=frozenset(plain["listed"]),
            places=places_of(plain.get("places", {})),
            own=frozenset(plain.get("own", ())),
            turn=_calls(decode_items(plain.get("turn", "[]").encode())),
        )


def waiting_in(read: Input) -> Waiting:
    """The calls whose requests for approval were read, and have no answer yet."""
    asks = frozenset(call.call_id for call in read.waiting)
    return Waiting(
        calls=tuple(read.waiting),
        asks=asks,
        listed=frozenset(read.listed),
        places=dict(read.places),
        brought={approval_id(call): digest_of(read.places[call.call_id], call) for call in read.waiting},
    )


def places_of(plain: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """From JSON, which has lists for pairs."""
    return {call_id: (label, tool) for call_id, (label, tool) in plain.items()}


def _calls(items: list[Item] | tuple[Item, ...]) -> tuple[FunctionCall, ...]:
    return tuple(item for item in items if isinstance(item, FunctionCall))
