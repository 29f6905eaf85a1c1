"""`/v1/responses`: made, streamed, kept, looked up, listed, cancelled and deleted. Framework-free; the app calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any

import orjson

from holodeck.gateway.background import Background
from holodeck.gateway.callers import Caller
from holodeck.gateway.continuing import Continuing
from holodeck.gateway.making import Live, ResponseMaker
from holodeck.gateway.pages import flag_of, integer_of, page_of
from holodeck.gateway.problems import WireError, not_found, reply_for_failed_run
from holodeck.gateway.rates import Rates, too_many_in_background
from holodeck.gateway.replies import CutOffError, Reply, Streamed, json_reply, missing_header
from holodeck.gateway.room import RequestReservation
from holodeck.gateway.runs import Runs
from holodeck.gateway.wire.dialects import Dialect, in_dialect
from holodeck.gateway.wire.encoder import DONE, sse
from holodeck.gateway.wire.input import whole
from holodeck.gateway.wire.replay import replay
from holodeck.gateway.wire.request import ResponseRequest, read_request
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import CANCEL_POLL, CANCEL_WAIT, STORED_STREAM_POLL
from holodeck.storage.store import UNFINISHED, ResponseStore, StoredResponse

# The largest integer that every JSON client reads exactly; a larger one may be more than a database takes.
MAX_SEQUENCE_NUMBER = 2**53 - 1


class Responses:
    """The responses of all callers; each sees only its own."""

    def __init__(
        self,
        maker: ResponseMaker,
        store: ResponseStore,
        runs: Runs,
        continuing: Continuing,
        background: Background,
        rates: Rates,
    ) -> None:
        self._maker = maker
        self._store = store
        self._runs = runs
        self._continuing = continuing
        self._background = background
        self._rates = rates

    async def create(
        self, body: object, caller: Caller, reservation: RequestReservation, *, dialect: Dialect = "openai"
    ) -> Reply | Streamed:
        """Answer one request. A stream ends the run when nobody reads it any more; a background run goes on."""
        if isinstance(body, dict) and body.get("background") is True:
            await self._check_background(caller)
        find = await self._continuing.found(body, caller)
        sealed = await self._continuing.open_sealed(body, find, caller, reservation.acquire)
        request = read_request(body, sealed=sealed, find=find)
        if request.background:
            return await self._begin_background(request, whole(body, find), caller, dialect=dialect)
        live = await self._maker.prepare(request, caller, dialect=dialect)
        if request.stream:
            live.toolbox.update_missing()  # as far as it is known: the headers go before the tools are asked for
            return Streamed(pieces=_framed(self._runs.advance(live)), headers=missing_header(live.toolbox.missing))
        await self._runs.finish(live)
        if live.failure is not None:
            raise live.failure
        return _answer(live)

    async def _check_background(self, caller: Caller) -> None:
        """Refuse one too many before anything is read for it. Whoever comes at the same moment is refused later."""
        most = self._rates.most_in_background(caller)
        if await self._store.count_unfinished(caller.id) >= most:
            raise too_many_in_background(most)

    async def get(
        self, response_id: str, caller: Caller, query: Mapping[str, str], *, dialect: Dialect = "openai"
    ) -> Reply | Streamed:
        """A response as it is now, or its events from a number on."""
        live = self._running(response_id, caller)
        if flag_of(query, "stream"):
            after = integer_of(query, "starting_after", -1, least=-1, most=MAX_SEQUENCE_NUMBER)
            if live is not None:
                return Streamed(pieces=_framed(self._followed(live, after), dialect))
            record = await self._record(response_id, caller)
            return Streamed(pieces=_framed(self._stored_events(record, after), dialect))
        if live is not None:
            return json_reply(live.writer.resource())
        return Reply(body=(await self._record(response_id, caller)).resource)

    async def delete(self, response_id: str, caller: Caller) -> Reply:
        live = self._running(response_id, caller)
        if live is not None:
            live.cancel()
            await live.is_done.wait()
        elif (await self._record(response_id, caller)).status in UNFINISHED:
            await self._cancel_elsewhere(response_id, caller)
        if not await self._store.delete(response_id, caller.id):
            raise not_found("Response", response_id)
        if live is None:
            await self._background.drop(response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, response_id: str, caller: Caller) -> Reply:
        """Stop a background response. Doing it twice is the same as doing it once."""
        live = self._running(response_id, caller)
        resource = None if live is None else live.writer.resource()
        if resource is None:
            resource = orjson.loads((await self._record(response_id, caller)).resource)
        if not resource["background"]:
            message = "Only responses that were made with 'background': true can be cancelled."
            raise WireError(400, message, kind="invalid_request", code="invalid_value", param="response_id")
        if live is not None:
            if live.is_durable:  # whoever goes on with it, should this process die now, must know
                await self._store.ask_cancel(response_id, caller.id)
            live.cancel()
            await live.is_done.wait()
        elif resource["status"] in UNFINISHED:
            await self._cancel_elsewhere(response_id, caller)
        return Reply(body=(await self._record(response_id, caller)).resource)

    async def _cancel_elsewhere(self, response_id: str, caller: Caller) -> None:
        """Ask whichever gateway makes the response to stop, and wait until it has; it may have to be found first."""
        record = await self._record(response_id, caller)
        if await self._background.withdraw(record) or not await self._store.ask_cancel(response_id, caller.id):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_WAIT):
                while (await self._record(response_id, caller)).status in UNFINISHED:  # noqa: ASYNC110 - elsewhere
                    await asyncio.sleep(CANCEL_POLL)

    async def input_items(self, response_id: str, caller: Caller, query: Mapping[str, str]) -> Reply:
        """The input of a response, a page at a time."""
        record = await self._record(response_id, caller)
        return json_reply(page_of(orjson.loads(record.input_items), query))

    async def _followed(self, live: Live, after: int) -> AsyncGenerator[list[bytes], None]:
        """The stream of a response in the making; what another gateway has gone on with is followed there."""
        async with aclosing(live.follow(after)) as batches:
            async for batch in batches:
                after += len(batch)
                yield batch
        if live.is_left:
            record = await self._store.get(live.id, live.owner)
            if record is None:
                raise CutOffError
            async with aclosing(self._stored_events(record, after)) as batches:
                async for batch in batches:
                    yield batch

    async def _stored_events(self, record: StoredResponse, after: int) -> AsyncGenerator[list[bytes], None]:
        """A stored stream after a number; that of a response which another gateway makes is followed to its end.

        Raises `CutOffError` where this gateway cannot tell that end.
        """
        while record.status in UNFINISHED:
            if self._background.is_leaving:  # the reader goes on where it was, at another gateway
                raise CutOffError
            fresh = await self._store.grown(record.id, record.owner, after) or []
            if fresh:
                after += len(fresh)
                yield fresh
            else:
                await asyncio.sleep(STORED_STREAM_POLL)
            newer = await self._store.get(record.id, record.owner)
            if newer is None:
                raise CutOffError
            record = newer
        events = record.events.split(b"\n") if record.events else replay(orjson.loads(record.resource))
        yield events[after + 1 :]

    def _running(self, response_id: str, caller: Caller) -> Live | None:
        """A response in the making that will be there when it is made. The others are only their makers'."""
        live = self._runs.get(response_id, caller.id)
        return live if live is not None and live.writer.is_stored else None

    async def _record(self, response_id: str, caller: Caller) -> StoredResponse:
        record = await self._store.get(response_id, caller.id)
        if record is None:
            raise not_found("Response", response_id)
        return record

    async def _kept_and_begun(
        self, live: Live, given: Mapping[str, Any] | None, record: StoredResponse, most: int
    ) -> bool:
        """False, and nothing is kept: its owner has `most` of them."""
        queued = live.writer.queue()
        is_durable = given is not None and self._background.is_durable
        try:
            turn = await self._store.enter(record, most=most, is_durable=is_durable)
            if turn is not None:
                await self._store.grow(live.id, 0, queued)
                live.payloads += queued
                await self._background.begin(live, given, turn)
                return True
        except StorageError:
            await self._background.take_back(live, record)
            raise
        await self._background.take_back(live, record)
        return False

    async def _begin_background(
        self, request: ResponseRequest, body: object, caller: Caller, *, dialect: Dialect
    ) -> Reply | Streamed:
        live, given, record = await self._maker.prepare_for_long(request, body, caller, dialect=dialect)
        most = self._rates.most_in_background(caller)
        if not await _whole(self._kept_and_begun(live, given, record, most)):
            raise too_many_in_background(most)
        if request.stream:
            await self._background.begun(live)
            return await self.get(live.id, caller, {"stream": "true"}, dialect=dialect)
        return json_reply(live.writer.resource())


async def _whole(work: Coroutine[None, None, bool]) -> bool:
    """Do all of it, also for a client that leaves meanwhile: what is kept and never begun would wait for ever."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _answer(live: Live) -> Reply:
    if live.result is not None and live.result.status == "failed":
        return reply_for_failed_run(live.result, live.writer.resource())
    return Reply(body=live.writer.encoded(), headers=missing_header(live.toolbox.missing))


async def _framed(
    batches: AsyncGenerator[list[bytes], None], dialect: Dialect | None = None
) -> AsyncGenerator[bytes, None]:
    """Batches of events as they stand in a stream; each event is in one piece. `dialect`: of a later reader."""
    try:
        async with aclosing(batches) as source:
            async for batch in source:
                yield b"".join(map(sse, batch if dialect is None else in_dialect(batch, dialect)))
    except StorageError as error:  # a stored stream, of which the rest cannot be read now
        log.warning("gateway.storage_failed", error=error)
        raise CutOffError from error
    yield DONE
