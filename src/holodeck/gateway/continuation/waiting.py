"""Calls that nobody has run yet, kept until a client answers, a person approves, or somebody goes on without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from holodeck.gateway.continuation.approvals import call_digest
from holodeck.gateway.wire.item_ids import approval_id
from holodeck.gateway.wire.request.parsed_input import Input
from holodeck.lib.types import record
from holodeck.models.items import FunctionCall, Item
from holodeck.models.items_json import decode_items, encode_items

CallTargets = Mapping[str, tuple[str, str]]
_NO_PENDING_CALLS = b'{"calls":"[]","asks":[],"listed":[],"places":{}}'


@record
class PendingCalls:
    """Calls that were not run, and the ids of those that a person must approve. Kept, not guessed."""

    calls: tuple[FunctionCall, ...] = ()
    needs_approval: frozenset[str] = frozenset()
    listed_servers: frozenset[str] = frozenset()
    """The labels of servers whose tools the client has seen in this chain of responses."""
    targets: CallTargets = field(default_factory=dict)
    """The server and the tool of each call. A name alone may lead elsewhere when other servers are there as well."""
    calls_with_caller_credentials: frozenset[str] = frozenset()
    """The ids of calls for which the caller brought credentials of its own: they run with nobody else's."""
    paused_calls: tuple[FunctionCall, ...] = ()
    """All calls of the turn that paused, in its order, the client's own among them."""
    client_digests: Mapping[str, bytes] = field(default_factory=dict)
    """Digests, by their ids, of requests for approval that the client has sent along. Never kept."""

    @property
    def unseen_calls(self) -> tuple[FunctionCall, ...]:
        """Those that the client has not seen in any form."""
        return tuple(call for call in self.calls if call.call_id not in self.needs_approval)

    def encode(self) -> bytes:
        if not (self.calls or self.listed_servers or self.targets):
            return _NO_PENDING_CALLS
        plain: dict[str, Any] = {
            "calls": encode_items(self.calls).decode(),
            "asks": sorted(self.needs_approval),
            "listed": sorted(self.listed_servers),
            "places": dict(self.targets),
        }
        if self.calls_with_caller_credentials:
            plain["own"] = sorted(self.calls_with_caller_credentials)
        if self.paused_calls:
            plain["turn"] = encode_items(self.paused_calls).decode()
        return orjson.dumps(plain)

    @classmethod
    def decode(cls, data: bytes) -> PendingCalls:
        plain: Any = orjson.loads(data)
        if not isinstance(plain, dict):
            return cls()
        return cls(
            calls=_only_calls(decode_items(plain["calls"].encode())),
            needs_approval=frozenset(plain["asks"]),
            listed_servers=frozenset(plain["listed"]),
            targets=targets_from_json(plain.get("places", {})),
            calls_with_caller_credentials=frozenset(plain.get("own", ())),
            paused_calls=_only_calls(decode_items(plain.get("turn", "[]").encode())),
        )


def pending_calls_of(read: Input) -> PendingCalls:
    """The calls whose requests for approval were read, and have no answer yet."""
    asks = frozenset(call.call_id for call in read.pending_calls)
    return PendingCalls(
        calls=tuple(read.pending_calls),
        needs_approval=asks,
        listed_servers=frozenset(read.tool_lists),
        targets=dict(read.targets),
        client_digests={
            approval_id(call): call_digest(read.targets[call.call_id], call) for call in read.pending_calls
        },
    )


def targets_from_json(data: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """From JSON, which has lists for pairs."""
    return {call_id: (label, tool) for call_id, (label, tool) in data.items()}


def _only_calls(items: list[Item] | tuple[Item, ...]) -> tuple[FunctionCall, ...]:
    return tuple(item for item in items if isinstance(item, FunctionCall))
