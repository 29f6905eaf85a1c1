"""How a request goes on from an earlier response: its items, the calls that waited, what a person said of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from holodeck.gateway.callers import Caller
from holodeck.gateway.problems import WireError, not_found
from holodeck.gateway.unseen import is_unseen, unseen, waiting_last
from holodeck.gateway.wire.approvals import Decided, answer_in_place, close_past, decide
from holodeck.gateway.wire.context import check_answered
from holodeck.gateway.wire.fields import refuse
from holodeck.gateway.wire.input import read_input, references
from holodeck.gateway.wire.reading import Find, Input
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.seal import Seal
from holodeck.lib.limits import MAX_CONTEXT_DEPTH, MAX_RECENT_RESPONSES, MAX_REFERENCES
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.items_codec import decode_item, decode_items, encode_item, encode_items
from holodeck.storage.store import UNFINISHED, ConversationItem, ResponseStore, StoredResponse

_MAX_CONVERSATION = 10_000
_NOTHING_WAITS = b'{"calls":"[]","asks":[],"listed":[],"places":{}}'


@record
class Waiting:
    """Calls that were not run, and the ids of those that a person must approve. Kept with the response, not guessed."""

    calls: tuple[FunctionCall, ...] = ()
    asks: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    """The labels of servers whose tools the client has seen in this chain of responses."""
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The server and the tool of each call. A name alone may lead elsewhere when other servers are there as well."""

    @property
    def unasked(self) -> tuple[FunctionCall, ...]:
        """Those that wait only because others of their turn do."""
        return tuple(call for call in self.calls if call.call_id not in self.asks)

    def encode(self) -> bytes:
        if not (self.calls or self.listed or self.places):
            return _NOTHING_WAITS
        plain = {
            "calls": encode_items(self.calls).decode(),
            "asks": sorted(self.asks),
            "listed": sorted(self.listed),
            "places": dict(self.places),
        }
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
            places=_places(plain.get("places", {})),
        )


@record
class Continued:
    """Where a request starts from."""

    items: tuple[Item, ...]
    decided: Decided
    listed: frozenset[str]
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The server and the tool of each call that waited."""
    in_place: tuple[FunctionCallOutput, ...] = ()
    """What the model is told of calls that stand in the input of the request itself: see `Continued.complete`."""
    is_stored: bool = True
    """False when what came before is in no chain of responses: it is a conversation's, or a connection remembers it."""

    def complete(self, request: ResponseRequest) -> None:
        """Put what was decided about calls of the request's own input behind them."""
        answer_in_place(request.input, self.in_place)

    def plain(self) -> dict[str, Any]:
        """All of it as JSON can say it."""
        return {
            "items": [encode_item(item) for item in self.items],
            "run": [encode_item(call) for call in self.decided.run],
            "approved": sorted(self.decided.approved),
            "refused": [encode_item(output) for output in self.decided.refused],
            "in_place": [encode_item(output) for output in self.in_place],
            "listed": sorted(self.listed),
            "places": dict(self.places),
            "is_stored": self.is_stored,
        }

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Continued:
        """The other way round."""
        run = (decode_item(entry) for entry in plain["run"])
        decided = Decided(
            run=tuple(call for call in run if isinstance(call, FunctionCall)),
            approved=frozenset(plain["approved"]),
            refused=_outputs(plain["refused"]),
        )
        return cls(
            items=tuple(decode_item(entry) for entry in plain["items"]),
            decided=decided,
            listed=frozenset(plain["listed"]),
            places=_places(plain["places"]),
            in_place=_outputs(plain["in_place"]),
            is_stored=plain.get("is_stored", True),
        )


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
        waiting, is_stored = _waiting_in(request.input), True
        known = recent.get(request.previous_response_id or "") if recent is not None else None
        if known is not None:
            items, waiting, is_stored = known
        elif request.previous_response_id is not None:
            items, waiting, is_stored = await self.response(request.previous_response_id, caller)
        elif request.conversation_id is not None:
            items, waiting = await self._conversation(request.conversation_id, caller, request.input)
        decided = decide(waiting.calls, waiting.asks, request.input.approvals)
        in_place: tuple[FunctionCallOutput, ...] = ()
        if decided.refused and waiting.calls == tuple(request.input.waiting):
            in_place, decided = decided.refused, replace(decided, refused=())
        before = Continued(
            items=(*items, *decided.refused),
            decided=decided,
            listed=waiting.listed | set(request.input.listed),
            places=waiting.places,
            in_place=in_place,
            is_stored=is_stored,
        )
        before.complete(request)
        check_answered((*before.items, *request.input.items), pending=decided.run)
        return before

    async def found(self, body: object, caller: Caller) -> Find:
        """Finds the items that a body only refers to, in what its caller has stored."""
        ids = set(references(body.get("input"))) if isinstance(body, dict) else set()
        if len(ids) > MAX_REFERENCES:
            message = f"Invalid 'input': at most {MAX_REFERENCES} items may be referred to."
            raise WireError(400, message, kind="invalid_request", code="array_above_max_length", param="input")
        items = {item_id: await self._item(item_id, caller) for item_id in ids}
        return items.get

    async def _item(self, item_id: str, caller: Caller) -> dict[str, Any] | None:
        kept = await self._store.find_item(item_id, caller.id)
        if kept is not None and not is_unseen(kept):
            found: dict[str, Any] = orjson.loads(kept.data)
            return found
        record = await self._store.mentioning(b'"id":%b' % orjson.dumps(item_id), caller.id)
        if record is None:
            return None
        items = [*orjson.loads(record.resource)["output"], *orjson.loads(record.input_items)]
        return next((item for item in items if item.get("id") == item_id), None)

    async def extend(
        self, request: ResponseRequest, output: list[dict[str, Any]], record: StoredResponse, caller: Caller
    ) -> None:
        """Add a finished response to its conversation, once."""
        shown = [*request.input.shown, *output]
        items = [ConversationItem(id=item["id"], data=orjson.dumps(item)) for item in shown]
        if Waiting.decode(record.pending).unasked:
            items.append(unseen(record.id, record.pending))
        if items and await self._store.item(str(request.conversation_id), caller.id, items[-1].id) is not None:
            return
        await self._store.add_items(str(request.conversation_id), caller.id, items)

    async def response(self, response_id: str, caller: Caller) -> tuple[tuple[Item, ...], Waiting, bool]:
        """All up to a stored response, what waits in it, and whether it is a chain. Raises when it is not there."""
        record = await self._store.get(response_id, caller.id)
        if record is None:
            message = f"Previous response with id '{response_id}' not found."
            code, param = "previous_response_not_found", "previous_response_id"
            raise WireError(400, message, kind="invalid_request", code=code, param=param)
        if record.status in UNFINISHED:
            message = "The previous response has not ended yet."
            raise WireError(400, message, kind="invalid_request", param="previous_response_id")
        chain = await self._store.context(response_id, caller.id) or []
        if len(chain) > MAX_CONTEXT_DEPTH:
            raise _too_long(f"more than {MAX_CONTEXT_DEPTH} responses come before", "previous_response_id")
        earlier = await self._earlier(record, caller) if record.conversation_id is not None else ()
        items = (*earlier, *(item for part in chain for item in decode_items(part)))
        return items, Waiting.decode(record.pending), record.conversation_id is None

    async def _earlier(self, record: StoredResponse, caller: Caller) -> Sequence[Item]:
        """What was in the conversation of a response before it, as far as it still is."""
        listed = await self._store.items(str(record.conversation_id), caller.id, limit=_MAX_CONVERSATION) or []
        own = {item["id"] for item in (*orjson.loads(record.input_items), *orjson.loads(record.resource)["output"])}
        first = next((index for index, item in enumerate(listed) if item.id in own), 0)
        return self._read(listed[:first])[0]

    async def _conversation(
        self, conversation_id: str, caller: Caller, given: Input
    ) -> tuple[tuple[Item, ...], Waiting]:
        """Its items, and what waits in it. Raises when it has one of the given items already."""
        listed = await self._store.items(conversation_id, caller.id, limit=_MAX_CONVERSATION + 1)
        if listed is None:
            raise not_found("Conversation", conversation_id)
        if len(listed) > _MAX_CONVERSATION:
            raise _too_long(f"the conversation has more than {_MAX_CONVERSATION} items", "conversation")
        check_new(given.shown, {item.id for item in listed})
        return self._read(listed)

    def _read(self, listed: Sequence[ConversationItem]) -> tuple[tuple[Item, ...], Waiting]:
        if not listed:
            return (), Waiting()
        read = read_input([orjson.loads(item.data) for item in listed if not is_unseen(item)], seal=self._seal)
        close_past(read)
        waiting = _waiting_in(read)
        unseen_last = waiting_last(listed)
        if unseen_last is not None:
            waiting = _joined(read, waiting, Waiting.decode(unseen_last))
        return tuple(read.items), waiting


def check_new(given: Iterable[Mapping[str, Any]], known: Collection[str], path: str = "input") -> None:
    """Refuse an item that a conversation has already, or that is given twice: its id would name two of them."""
    seen = set(known)
    for index, item in enumerate(given):
        if item["id"] in seen:
            message = f"Duplicate item with id '{item['id']}': the conversation has it already. Leave it out."
            refuse(message, f"{path}[{index}].id", "duplicate_item")
        seen.add(item["id"])


def _too_long(reason: str, param: str) -> WireError:
    """Nothing is ever left out of a context in silence."""
    message = f"The context is too long: {reason}. Fold an earlier part of it with /v1/responses/compact."
    return WireError(400, message, kind="invalid_request", code="context_too_long", param=param)


def _joined(read: Input, seen: Waiting, unseen: Waiting) -> Waiting:
    """What waits for a person, and behind it what waits for the client. The calls of one turn stand together."""
    places = [index for index, item in enumerate(read.items) if isinstance(item, FunctionCall)]
    behind = places[-1] + 1 if places else len(read.items)
    read.items[behind:behind] = unseen.unasked
    return replace(seen, calls=(*seen.calls, *unseen.unasked), places={**unseen.places, **seen.places})


def _places(plain: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {call_id: (label, tool) for call_id, (label, tool) in plain.items()}


def _outputs(plain: Iterable[Mapping[str, Any]]) -> tuple[FunctionCallOutput, ...]:
    items = (decode_item(entry) for entry in plain)
    return tuple(item for item in items if isinstance(item, FunctionCallOutput))


def _waiting_in(read: Input) -> Waiting:
    """The calls whose requests for approval were read, and have no answer yet."""
    asks = frozenset(call.call_id for call in read.waiting)
    return Waiting(calls=tuple(read.waiting), asks=asks, listed=frozenset(read.listed), places=dict(read.places))
