"""How a request goes on from an earlier response: its items, the calls that waited, what a person said of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import orjson

from holodeck.gateway.callers import Caller
from holodeck.gateway.claims import Claims
from holodeck.gateway.problems import WireError
from holodeck.gateway.recent import Kept, Recent
from holodeck.gateway.threads import Standing, Threads, check_size, too_long
from holodeck.gateway.unstored import Unstored
from holodeck.gateway.untold import Untold
from holodeck.gateway.waiting import Waiting, places_of, waiting_in
from holodeck.gateway.wire.approvals import ELSEWHERE, Decided, answer_in_place, decide, told
from holodeck.gateway.wire.context import NOT_RUN, check_answered, with_calls, without_told_again
from holodeck.gateway.wire.ids import approval_id
from holodeck.gateway.wire.input import entries_of, references, without_results
from holodeck.gateway.wire.paused import put_back, returning, sent_back, was_gone_on_from
from holodeck.gateway.wire.reading import ApprovalAnswer, Find, Input
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.seal import SealKeys
from holodeck.gateway.wire.sealed_input import SealedInput
from holodeck.lib.limits import (
    DEFAULT_CONTEXT_BYTES,
    MAX_CONTEXT_DEPTH,
    MAX_REFERENCES,
)
from holodeck.lib.record import record
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.models.items_codec import decode_item, decode_items, encode_item
from holodeck.storage.store import UNFINISHED, ResponseStore, Thread


@record
class Continued:
    """Where a request starts from."""

    items: tuple[Item, ...]
    decided: Decided
    listed: frozenset[str]
    size: int = 0
    """The bytes of all that came before."""
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The server and the tool of each call that waited."""
    in_place: tuple[FunctionCallOutput, ...] = ()
    """What the model is told of calls that stand in the input of the request itself: see `Continued.complete`."""
    is_stored: bool = True
    """False when what came before is in no chain of responses: it is a conversation's, or a connection remembers it."""
    own: frozenset[str] = frozenset()
    """The ids of calls that run only with credentials that the caller brings."""
    unknown: frozenset[str] = frozenset()
    """The ids of calls that waited and may have been run by somebody who died; they are not run again."""
    to_take: Thread | None = None
    """The conversation from which the response must take what waits in it."""
    turn: tuple[FunctionCall, ...] = ()
    """The calls of a turn that paused, some of which the client has sent again without having seen the others."""
    given: tuple[Item, ...] = ()
    """What the client sent, when that is all there is: it may not send back what is done here."""

    @property
    def to_claim(self) -> tuple[FunctionCall, ...]:
        """The calls that the response must take before it goes on with them."""
        return tuple(call for call in self.decided.run if call.call_id not in self.unknown)

    def complete(self, request: ResponseRequest) -> None:
        """Put what the client did not see into the request's own input, and what was decided behind its calls."""
        if self.items and any(isinstance(item, FunctionCall) for item in request.input.items):
            request.input.items = without_told_again(request.input.items, self.items)
        put_back(request.input, self.turn)
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
            "unknown": sorted(self.unknown),
            "is_stored": self.is_stored,
            "turn": [encode_item(call) for call in self.turn],
        }

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Continued:
        """The other way round."""
        decided = Decided(
            run=_calls(plain["run"]),
            approved=frozenset(plain["approved"]),
            refused=_outputs(plain["refused"]),
        )
        return cls(
            items=tuple(decode_item(entry) for entry in plain["items"]),
            decided=decided,
            listed=frozenset(plain["listed"]),
            places=places_of(plain["places"]),
            in_place=_outputs(plain["in_place"]),
            unknown=frozenset(plain.get("unknown", ())),
            is_stored=plain.get("is_stored", True),
            turn=_calls(plain.get("turn", ())),
        )


class Continuing:
    """Finds what a request refers to, as its own caller."""

    def __init__(self, store: ResponseStore, seal_keys: SealKeys, *, most: int = DEFAULT_CONTEXT_BYTES) -> None:
        """`most`: bytes that may come before a request."""
        self._store = store
        self._seal_keys = seal_keys
        self._most = most
        self.threads = Threads(store, most=most)
        self.claims = Claims(store)
        self.unstored = Unstored()
        self.untold = Untold()

    async def before(self, request: ResponseRequest, caller: Caller, recent: Recent | None = None) -> Continued:
        """The context of a request. Raises when it does not exist, is not finished, or is not answered."""
        items: tuple[Item, ...] = ()
        given: tuple[Item, ...] = ()
        turn: tuple[FunctionCall, ...] = ()
        waiting, is_stored, is_in_input, size = waiting_in(request.input), True, False, 0
        standing = Standing()
        known = recent.get(request.previous_response_id or "") if recent is not None else None
        if known is None and request.previous_response_id is not None:
            known = await self.response(request.previous_response_id, caller, request.input.sealed)
        if known is not None:
            items, waiting, is_stored, size = known.items, known.waiting, known.is_chain, known.size
            opened = request.input.sealed.size if request.input.sealed is not None else 0
            check_size(size + opened, self._most, "previous_response_id")
        elif request.conversation_id is not None:
            standing = await self.threads.standing(request.conversation_id, request.input, caller)
            items, waiting, size = standing.items, standing.waiting, standing.size
        else:
            is_in_input = True
            given = tuple(request.input.items)
            request.input.items = self.untold.recall(caller.id, given)
            waiting, turn = await self._sent_again(request.input, waiting, caller)
        answers = (*standing.approvals, *request.input.approvals)
        decided = await self._decided(waiting, answers, standing.unknown, caller)
        in_place: tuple[FunctionCallOutput, ...] = ()
        if decided.refused and is_in_input:
            in_place, decided = decided.refused, replace(decided, refused=())
        before = Continued(
            items=(*items, *decided.refused),
            decided=decided,
            listed=waiting.listed | set(request.input.listed),
            size=size,
            places=waiting.places,
            in_place=in_place,
            is_stored=is_stored,
            own=waiting.own,
            unknown=standing.unknown,
            to_take=standing.to_take,
            turn=turn,
            given=given,
        )
        before.complete(request)
        check_answered((*before.items, *request.input.items), pending=decided.run)
        return before

    async def _decided(
        self, waiting: Waiting, answers: Sequence[ApprovalAnswer], unknown: Collection[str], caller: Caller
    ) -> Decided:
        """What happens to calls that wait. Of those that another response has taken, the model hears what came."""
        if not waiting.calls:
            return decide((), (), answers)
        known = await self.claims.known(waiting, caller.id)
        lost = {approval_id(call) for call in waiting.calls if call.call_id in unknown}
        taken = {
            request_id: call.taken_by
            for request_id, call in known.items()
            if call.taken_by is not None and request_id not in lost
        }

        def is_genuine(request_id: str) -> bool:
            brought = waiting.brought.get(request_id)
            return brought is None or (request_id in known and known[request_id].digest == brought)

        decided = decide(waiting.calls, waiting.asks, answers, taken=taken, is_genuine=is_genuine)
        if unknown:
            decided = _lost(decided, waiting.calls, unknown)
        over = [
            await self.claims.outcome(call, taken[approval_id(call)], caller.id) or told(call, ELSEWHERE)
            for call in waiting.calls
            if approval_id(call) in taken
        ]
        if not over:
            return decided
        ids = {output.call_id for output in over}
        return replace(
            decided,
            run=tuple(call for call in decided.run if call.call_id not in ids),
            refused=(*(output for output in decided.refused if output.call_id not in ids), *over),
        )

    async def left_behind(self, waiting: Waiting, caller: Caller) -> tuple[FunctionCallOutput, ...]:
        """What a model is told of calls that nobody goes on with after this."""
        known = await self.claims.known(waiting, caller.id)
        outputs = []
        for call in waiting.calls:
            found = known.get(approval_id(call))
            taker = None if found is None else found.taken_by
            came = None if taker is None else await self.claims.outcome(call, taker, caller.id)
            outputs.append(came or told(call, NOT_RUN if taker is None else ELSEWHERE))
        return tuple(outputs)

    async def _sent_again(
        self, read: Input, waiting: Waiting, caller: Caller
    ) -> tuple[Waiting, tuple[FunctionCall, ...]]:
        """What waits in an input, with the turn that paused if the client has sent one again to answer its part."""
        async for kept in self._paused(read, caller):
            turn = returning(read, kept.turn, waiting=kept.calls, hidden=kept.hidden)
            if turn:
                calls = tuple(call for call in kept.calls if call in turn)
                own = {approval_id(call) for call in calls}
                rest = tuple(call for call in waiting.calls if approval_id(call) not in own)
                asks = {call.call_id for call in calls if call.call_id in kept.asks}
                asks |= {call.call_id for call in rest}
                places = {**waiting.places, **kept.places}
                return replace(waiting, calls=(*calls, *rest), asks=frozenset(asks), places=places, own=kept.own), turn
        return waiting, ()

    async def _paused(self, read: Input, caller: Caller) -> AsyncIterator[Waiting]:
        """What waits in the responses to which an input may go back. Raises when that is gone, and the input has
        nothing of it: the model would never hear of its own calls, or make those again that have been run.
        """
        for key, called in sent_back(read).items():
            for response_id in await self._store.paused_in(caller.id, key):
                record = await self._store.get(response_id, caller.id)
                kept = self.unstored.get(caller.id, response_id)
                if record is not None:
                    yield Waiting.decode(record.pending)
                elif kept is not None:
                    yield kept
                elif not was_gone_on_from(read, called):
                    has_id = called.id not in read.unnamed
                    if await self.claims.is_incomplete(response_id, called, caller.id, has_id=has_id):
                        raise _gone(response_id, called)

    async def found(self, body: object, caller: Caller) -> Find:
        """Finds the items that a body only refers to, or sends in part, in what its caller has stored."""
        given = body.get("input") if isinstance(body, dict) else None
        ids = set(references(given))
        if len(ids) > MAX_REFERENCES:
            message = f"Invalid 'input': at most {MAX_REFERENCES} items may be referred to."
            raise WireError(400, message, kind="invalid_request", code="array_above_max_length", param="input")
        if room := MAX_REFERENCES - len(ids):
            ids.update(without_results(given)[-room:])
        items: dict[str, dict[str, Any]] = {}
        size = 0
        for item_id in ids:
            kept = await self._store.find_item(item_id, caller.id)
            if kept is not None:
                size += len(kept.data)
                check_size(size, self._most, "input")
                items[item_id] = orjson.loads(kept.data)
        if ids - items.keys():
            await self._find_in_responses(ids - items.keys(), items, caller)
        return items.get

    async def open_sealed(
        self, body: object, find: Find, caller: Caller, acquire: Callable[[int], None]
    ) -> SealedInput:
        """Open the sealed items of a body, and of what it refers to. Raises; see `SealedInput.open`."""
        sealed = SealedInput(self._seal_keys.for_caller(caller.id), most=self._most, acquire=acquire)
        await sealed.open(entries_of(body, find), param="input")
        return sealed

    async def _find_in_responses(self, ids: Collection[str], items: dict[str, dict[str, Any]], caller: Caller) -> None:
        """Add those items that stand in a response, as far as responses are searched."""
        for resource, input_items in await self._store.with_items(ids, caller.id):
            for item in (*orjson.loads(resource)["output"], *orjson.loads(input_items)):
                if item.get("id") in ids:
                    items.setdefault(item["id"], item)

    async def response(self, response_id: str, caller: Caller, sealed: SealedInput | None) -> Kept:
        """All up to a stored response, and what waits in it. Raises when it is not there, or too much."""
        record = await self._store.get(response_id, caller.id)
        if record is None:
            message = f"Previous response with id '{response_id}' not found."
            code, param = "previous_response_not_found", "previous_response_id"
            raise WireError(400, message, kind="invalid_request", code=code, param=param)
        if record.status in UNFINISHED:
            message = "The previous response has not ended yet."
            raise WireError(400, message, kind="invalid_request", param="previous_response_id")
        chain = await self._store.context(response_id, caller.id, most=self._most) or []
        size = sum(map(len, chain))
        check_size(size, self._most, "previous_response_id")
        if len(chain) > MAX_CONTEXT_DEPTH:
            raise too_long(f"more than {MAX_CONTEXT_DEPTH} responses come before", "previous_response_id")
        items, waiting = tuple(item for part in chain for item in decode_items(part)), Waiting.decode(record.pending)
        if record.conversation_id is not None:
            items = await self.threads.up_to(record, items, waiting, caller, sealed)
        is_chain = record.conversation_id is None
        return Kept(items=tuple(with_calls(items)), size=size, waiting=waiting, is_chain=is_chain)


def _lost(decided: Decided, calls: Sequence[FunctionCall], unknown: Collection[str]) -> Decided:
    """Calls that somebody may have run are not refused, whatever is said of them now: the model hears the truth."""
    run = {call.call_id for call in decided.run} | set(unknown)
    return replace(
        decided,
        run=tuple(call for call in calls if call.call_id in run),
        refused=tuple(output for output in decided.refused if output.call_id not in unknown),
    )


def _gone(response_id: str, called: FunctionCall) -> WireError:
    message = (
        f"The turn with the call {called.call_id} also called tools of this gateway, which waited for its output in "
        f"the response {response_id}. That one was not stored, or is deleted, and so it is not known what they were "
        "called with, nor whether they have run. Go on from it with 'previous_response_id' on its own connection, or "
        "send the input without this turn."
    )
    return WireError(400, message, kind="invalid_request", code="paused_turn_gone", param="input")


def _calls(plain: Iterable[Mapping[str, Any]]) -> tuple[FunctionCall, ...]:
    items = (decode_item(entry) for entry in plain)
    return tuple(item for item in items if isinstance(item, FunctionCall))


def _outputs(plain: Iterable[Mapping[str, Any]]) -> tuple[FunctionCallOutput, ...]:
    items = (decode_item(entry) for entry in plain)
    return tuple(item for item in items if isinstance(item, FunctionCallOutput))
