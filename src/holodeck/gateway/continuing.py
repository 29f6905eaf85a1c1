"""How a request goes on from an earlier response: its items, the calls that waited, what a person said of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from holodeck.gateway.callers import Caller
from holodeck.gateway.problems import WireError, not_found
from holodeck.gateway.wire.approvals import Decided, decide
from holodeck.gateway.wire.context import check_answered
from holodeck.gateway.wire.input import references
from holodeck.gateway.wire.reading import Find
from holodeck.gateway.wire.request import ResponseRequest, read_request
from holodeck.gateway.wire.seal import Seal
from holodeck.lib.limits import MAX_RECENT_RESPONSES, MAX_REFERENCES
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.items_codec import decode_item, decode_items, encode_item, encode_items
from holodeck.storage.store import UNFINISHED, ConversationItem, ResponseStore

_MAX_CONVERSATION = 10_000


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Calls that were not run, and the ids of those that a person must approve. Kept with the response, not guessed."""

    calls: tuple[FunctionCall, ...] = ()
    asks: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    """The labels of servers whose tools the client has seen in this chain of responses."""

    def encode(self) -> bytes:
        plain = {"calls": encode_items(self.calls).decode(), "asks": sorted(self.asks), "listed": sorted(self.listed)}
        return orjson.dumps(plain)

    @classmethod
    def decode(cls, data: bytes) -> Waiting:
        plain: Any = orjson.loads(data)
        if not isinstance(plain, dict):
            return cls()
        calls = decode_items(plain["calls"].encode())
        return cls(
            calls=tuple(call for call in calls if isinstance(call, FunctionCall)),
            asks=frozenset(plain["asks"]),
            listed=frozenset(plain["listed"]),
        )


@dataclass(frozen=True, kw_only=True)
class Continued:
    """Where a request starts from."""

    items: tuple[Item, ...]
    decided: Decided
    listed: frozenset[str]
    is_stored: bool = True
    """False when the previous response is only in the memory of a connection."""

    def plain(self) -> dict[str, Any]:
        """All of it as JSON can say it."""
        return {
            "items": [encode_item(item) for item in self.items],
            "run": [encode_item(call) for call in self.decided.run],
            "approved": sorted(self.decided.approved),
            "refused": [encode_item(output) for output in self.decided.refused],
            "listed": sorted(self.listed),
        }

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Continued:
        """The other way round."""
        run = (decode_item(entry) for entry in plain["run"])
        refused = (decode_item(entry) for entry in plain["refused"])
        decided = Decided(
            run=tuple(call for call in run if isinstance(call, FunctionCall)),
            approved=frozenset(plain["approved"]),
            refused=tuple(output for output in refused if isinstance(output, FunctionCallOutput)),
        )
        items = tuple(decode_item(entry) for entry in plain["items"])
        return cls(items=items, decided=decided, listed=frozenset(plain["listed"]))


class Recent:
    """What one connection remembers of its own latest responses, those that nobody stores included."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[Item, ...], Waiting, bool]] = {}

    def keep(self, response_id: str, items: tuple[Item, ...], waiting: Waiting, *, is_stored: bool) -> None:
        self._kept[response_id] = (items, waiting, is_stored)
        while len(self._kept) > MAX_RECENT_RESPONSES:
            self._kept.pop(next(iter(self._kept)))

    def get(self, response_id: str) -> tuple[tuple[Item, ...], Waiting, bool] | None:
        return self._kept.get(response_id)

    def forget(self, response_id: str) -> None:
        self._kept.pop(response_id, None)


class Continuing:
    """Finds what a request refers to, as its own caller."""

    def __init__(self, store: ResponseStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal

    async def before(self, request: ResponseRequest, caller: Caller, recent: Recent | None = None) -> Continued:
        """The context of a request. Raises when it does not exist, is not finished, or is not answered."""
        items: tuple[Item, ...] = ()
        waiting = Waiting(calls=tuple(request.input.waiting), asks=frozenset(c.call_id for c in request.input.waiting))
        is_stored = True
        known = recent.get(request.previous_response_id or "") if recent is not None else None
        if known is not None:
            items, waiting, is_stored = known
        elif request.previous_response_id is not None:
            items, waiting = await self.response(request.previous_response_id, caller)
        elif request.conversation_id is not None:
            items = await self._conversation(request.conversation_id, caller)
        decided = decide(waiting.calls, waiting.asks, request.input.approvals)
        settled = (*items, *decided.refused, *request.input.items)
        check_answered(settled, pending=decided.run)
        listed = waiting.listed | set(request.input.listed)
        return Continued(items=(*items, *decided.refused), decided=decided, listed=listed, is_stored=is_stored)

    async def found(self, body: object, caller: Caller) -> Find:
        """Finds the items that a body only refers to, in what its caller has stored."""
        ids = set(references(body.get("input"))) if isinstance(body, dict) else set()
        if len(ids) > MAX_REFERENCES:
            message = f"Invalid 'input': at most {MAX_REFERENCES} items may be referred to."
            raise WireError(400, message, kind="invalid_request", code="array_above_max_length", param="input")
        items = {item_id: await self._item(item_id, caller) for item_id in ids}
        return items.get

    async def _item(self, item_id: str, caller: Caller) -> dict[str, Any] | None:
        record = await self._store.mentioning(b'"id":%b' % orjson.dumps(item_id), caller.id)
        if record is None:
            return None
        items = [*orjson.loads(record.resource)["output"], *orjson.loads(record.input_items)]
        return next((item for item in items if item.get("id") == item_id), None)

    async def extend(self, request: ResponseRequest, output: list[dict[str, Any]], caller: Caller) -> None:
        """Add a finished response to its conversation, once."""
        shown = [*request.input.shown, *output]
        if shown and await self._store.item(str(request.conversation_id), caller.id, shown[-1]["id"]) is not None:
            return
        items = [ConversationItem(id=item["id"], data=orjson.dumps(item)) for item in shown]
        await self._store.add_items(str(request.conversation_id), caller.id, items)

    async def response(self, response_id: str, caller: Caller) -> tuple[tuple[Item, ...], Waiting]:
        """The conversation up to a stored response, and what waits in it. Raises when it is not there."""
        record = await self._store.get(response_id, caller.id)
        if record is None:
            message = f"Previous response with id '{response_id}' not found."
            code, param = "previous_response_not_found", "previous_response_id"
            raise WireError(400, message, kind="invalid_request", code=code, param=param)
        if record.status in UNFINISHED:
            message = "The previous response has not ended yet."
            raise WireError(400, message, kind="invalid_request", param="previous_response_id")
        chain = await self._store.context(response_id, caller.id) or []
        return tuple(item for part in chain for item in decode_items(part)), Waiting.decode(record.pending)

    async def _conversation(self, conversation_id: str, caller: Caller) -> tuple[Item, ...]:
        listed = await self._store.items(conversation_id, caller.id, limit=_MAX_CONVERSATION)
        if listed is None:
            raise not_found("Conversation", conversation_id)
        if not listed:
            return ()
        body = {"input": [orjson.loads(item.data) for item in listed]}
        return tuple(read_request(body, seal=self._seal).input.items)
