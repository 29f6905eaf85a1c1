"""`/v1/responses`: made, streamed, kept, looked up, listed, cancelled and deleted. Framework-free; the app calls it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from holodeck.engine.loop import RunRequest
from holodeck.gateway.backends import Backend
from holodeck.gateway.callers import Caller
from holodeck.gateway.mcp_view import RequestServers
from holodeck.gateway.problems import WireError, not_found, reply_for_failed_run
from holodeck.gateway.replies import Reply, Streamed, json_reply
from holodeck.gateway.runs import LiveRun, Runs
from holodeck.gateway.wire.encoder import DONE, sse
from holodeck.gateway.wire.ids import approval_id
from holodeck.gateway.wire.items_codec import decode_items, encode_items
from holodeck.gateway.wire.request import ResponseRequest, read_request
from holodeck.gateway.wire.seal import Seal
from holodeck.gateway.wire.writer import ResponseWriter
from holodeck.lib.ids import new_id
from holodeck.models.content import TextContent
from holodeck.models.gateway import GatewayFile
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item
from holodeck.storage.store import ResponseStore, StoredResponse
from holodeck.tools.registry import Toolbox
from holodeck.tools.results import ResultReader

_LIST_LIMIT = 20
_MAX_LIST_LIMIT = 100
_UNFINISHED = ("queued", "in_progress")


class Responses:
    """The responses of all callers; each sees only its own."""

    def __init__(
        self, backends: Mapping[str, Backend], store: ResponseStore, runs: Runs, config: GatewayFile, seal: Seal
    ) -> None:
        self._backends = backends
        self._store = store
        self._runs = runs
        self._config = config
        self._seal = seal

    async def create(self, body: object, caller: Caller) -> Reply | Streamed:
        """Answer one request. A stream ends the run when nobody reads it any more; a background run goes on."""
        request = read_request(body, seal=self._seal)
        live = await self.prepare(request, caller)
        if request.background:
            return await self._begin_background(request, live)
        if request.stream:
            return Streamed(pieces=_framed(self._runs.advance(live)))
        await self._runs.finish(live)
        return _answer(live)

    async def prepare(self, request: ResponseRequest, caller: Caller) -> LiveRun:
        """A run that is ready to go, with the context of what came before."""
        backend = self.backend(request.model)
        before = await self._before(request, caller)
        servers = RequestServers(backend.mcp, request.tools.declarations)
        if request.tool_choice.server is not None or request.tool_choice.allowed is not None:
            await servers.specs()  # a choice by server needs to know the names of its tools
        choice = request.tool_choice.resolved(servers.names)
        pending, approved, outputs = _resumed(request, before.pending)
        run_request = RunRequest(
            run_id=new_id("resp"),
            model=request.model_request((*before.items, *outputs), choice, instructions=backend.instructions),
            max_turns=min(backend.max_turns, self._config.limits.max_turns),
            max_tool_calls=request.max_tool_calls,
            pending=tuple(pending),
        )
        toolbox = Toolbox(
            [*backend.functions, servers], client=request.tools.functions, reader=ResultReader(), hold=servers.holds
        )
        writer = ResponseWriter(
            request,
            response_id=run_request.run_id,
            created_at=time.time(),
            model=backend.name,
            mode=None if self._config.mcp_output == "auto" else self._config.mcp_output,
            routes=servers,
            pending=pending,
            approved=approved,
            seal=self._seal,
            is_silent=not (request.stream or request.background),
        )

        async def keep(live: LiveRun) -> None:
            if request.store:
                await self._store.save(_record(live, request, outputs))
            if request.store and request.conversation_id is not None:
                await self._extend_conversation(request, live, caller)

        return LiveRun(run_request, backend.provider, toolbox, writer, owner=caller.id, keep=keep)

    def backend(self, name: str | None) -> Backend:
        if name is None and len(self._backends) == 1:
            return next(iter(self._backends.values()))
        if name is None:
            raise WireError(400, "Missing required parameter: 'model'.", kind="invalid_request", param="model")
        if name not in self._backends:
            known = ", ".join(self._backends)
            message = f"The model '{name}' does not exist here. There are: {known}."
            raise WireError(404, message, kind="not_found", code="model_not_found", param="model")
        return self._backends[name]

    async def get(self, response_id: str, caller: Caller, query: Mapping[str, str]) -> Reply | Streamed:
        """A response as it is now, or its events from a number on."""
        live = self._runs.get(response_id, caller.id)
        if query.get("stream") == "true":
            after = _integer(query, "starting_after", -1)
            if live is not None:
                return Streamed(pieces=_framed(live.follow(after)))
            return Streamed(pieces=_framed(_stored_events(await self._record(response_id, caller), after)))
        if live is not None:
            return json_reply(live.writer.resource())
        return Reply(body=(await self._record(response_id, caller)).resource)

    async def delete(self, response_id: str, caller: Caller) -> Reply:
        live = self._runs.get(response_id, caller.id)
        if live is not None:
            live.cancel()
            await live.is_done.wait()
        if not await self._store.delete(response_id, caller.id):
            raise not_found("Response", response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, response_id: str, caller: Caller) -> Reply:
        """Stop a background response. Doing it twice is the same as doing it once."""
        live = self._runs.get(response_id, caller.id)
        if live is not None:
            live.cancel()
            await live.is_done.wait()
        record = await self._record(response_id, caller)
        if not orjson.loads(record.resource).get("background"):
            message = "Only responses that were made with 'background': true can be cancelled."
            raise WireError(400, message, kind="invalid_request", code="invalid_value", param="response_id")
        return Reply(body=record.resource)

    async def input_items(self, response_id: str, caller: Caller, query: Mapping[str, str]) -> Reply:
        """The input of a response, a page at a time."""
        record = await self._record(response_id, caller)
        return json_reply(page_of(orjson.loads(record.input_items), query))

    async def _record(self, response_id: str, caller: Caller) -> StoredResponse:
        record = await self._store.get(response_id, caller.id)
        if record is None:
            raise not_found("Response", response_id)
        return record

    async def _begin_background(self, request: ResponseRequest, live: LiveRun) -> Reply | Streamed:
        live.payloads += live.writer.queue()
        await self._store.save(_record(live, request, ()))
        self._runs.start(live)
        if request.stream:
            return Streamed(pieces=_framed(live.follow()))
        return json_reply(live.writer.resource())

    async def _before(self, request: ResponseRequest, caller: Caller) -> _Before:
        if request.previous_response_id is not None:
            record = await self._store.get(request.previous_response_id, caller.id)
            if record is None:
                message = f"Previous response with id '{request.previous_response_id}' not found."
                code, param = "previous_response_not_found", "previous_response_id"
                raise WireError(400, message, kind="invalid_request", code=code, param=param)
            if record.status in _UNFINISHED:
                message = "The previous response has not ended yet."
                raise WireError(400, message, kind="invalid_request", param="previous_response_id")
            chain = await self._store.context(record.id, caller.id) or []
            items = tuple(item for part in chain for item in decode_items(part))
            calls = tuple(item for item in decode_items(record.pending) if isinstance(item, FunctionCall))
            return _Before(items, calls)
        if request.conversation_id is not None:
            listed = await self._store.items(request.conversation_id, caller.id, limit=10_000)
            if listed is None:
                raise not_found("Conversation", request.conversation_id)
            wire_items = [orjson.loads(item.data) for item in listed]
            context = read_request({"input": wire_items}, seal=self._seal).input if wire_items else None
            return _Before(tuple(context.items) if context is not None else (), ())
        return _Before((), ())

    async def _extend_conversation(self, request: ResponseRequest, live: LiveRun, caller: Caller) -> None:
        from holodeck.storage.store import ConversationItem

        shown = [*request.input.shown, *live.writer.resource()["output"]]
        items = [ConversationItem(id=item["id"], data=orjson.dumps(item)) for item in shown]
        await self._store.add_items(str(request.conversation_id), caller.id, items)


class _Before:
    """What a request continues: the items so far, and the calls that wait."""

    def __init__(self, items: tuple[Item, ...], pending: tuple[FunctionCall, ...]) -> None:
        self.items = items
        self.pending = pending


def page_of(entries: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of a list, as the API pages everything: after, limit, order."""
    order = query.get("order", "desc")
    listed = list(entries) if order == "asc" else list(reversed(entries))
    after = query.get("after")
    if after is not None:
        place = next((index for index, entry in enumerate(listed) if entry.get("id") == after), None)
        listed = listed[place + 1 :] if place is not None else []
    limit = min(max(_integer(query, "limit", _LIST_LIMIT), 1), _MAX_LIST_LIMIT)
    chosen = listed[:limit]
    return {
        "object": "list",
        "data": chosen,
        "first_id": chosen[0]["id"] if chosen else None,
        "last_id": chosen[-1]["id"] if chosen else None,
        "has_more": len(listed) > limit,
    }


def _integer(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        message = f"Invalid type for '{name}': expected an integer."
        raise WireError(400, message, kind="invalid_request", code="invalid_type", param=name) from None


def _resumed(
    request: ResponseRequest, waiting: Sequence[FunctionCall]
) -> tuple[list[FunctionCall], list[str], list[FunctionCallOutput]]:
    """Which waiting calls run now, which of them a person approved, and what the others came to."""
    answers = {answer.request_id: answer for answer in request.input.approvals}
    pending: list[FunctionCall] = []
    approved: list[str] = []
    outputs: list[FunctionCallOutput] = []
    for call in (*waiting, *request.input.waiting):
        answer = answers.pop(approval_id(call), None)
        if answer is not None and not answer.approve:
            text = f"The person did not approve this call{': ' + answer.reason if answer.reason else '.'}"
            outputs.append(FunctionCallOutput(call_id=call.call_id, content=(TextContent(text=text),), is_error=True))
            continue
        if answer is not None:
            approved.append(call.call_id)
        pending.append(call)
    for answer in answers.values():
        message = f"There is no request for approval with id '{answer.request_id}' that waits."
        raise WireError(400, message, kind="invalid_request", code="invalid_value", param=answer.param or "input")
    return pending, approved, outputs


def _record(live: LiveRun, request: ResponseRequest, outputs: Sequence[Item]) -> StoredResponse:
    resource = live.writer.resource()
    result = live.result
    added = (*outputs, *request.input.items, *(result.items if result is not None else ()))
    return StoredResponse(
        id=live.id,
        owner=live.owner,
        created_at=float(resource["created_at"]),
        status=str(resource["status"]),
        previous_id=request.previous_response_id,
        conversation_id=request.conversation_id,
        resource=orjson.dumps(resource),
        input_items=orjson.dumps(request.input.shown),
        items=encode_items(added),
        pending=encode_items(result.pending if result is not None else ()),
        events=b"\n".join(live.payloads),
    )


def _answer(live: LiveRun) -> Reply:
    resource = live.writer.resource()
    if live.result is not None and live.result.status == "failed":
        return reply_for_failed_run(live.result, resource)
    return json_reply(resource)


async def _framed(batches: AsyncGenerator[list[bytes], None]) -> AsyncGenerator[bytes, None]:
    """Batches of events as they stand in a stream; each event is in one piece."""
    async with aclosing(batches) as source:
        async for batch in source:
            yield b"".join(map(sse, batch))
    yield DONE


async def _stored_events(record: StoredResponse, after: int) -> AsyncGenerator[list[bytes], None]:
    from holodeck.gateway.wire.replay import replay

    events = record.events.split(b"\n") if record.events else replay(orjson.loads(record.resource))
    yield events[after + 1 :]
