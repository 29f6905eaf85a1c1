"""Everything that is stored of a caller, as lines of JSON.

Each line is an object whose `object` says what it is. One response or one page of items is in memory at a time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import orjson

from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.storage.conversations import Conversation
from holodeck.storage.runs import RunQuery
from holodeck.storage.store import ResponseStore
from holodeck.storage.usage import DAY, SUMS, UsageQuery

# Runs, conversations or items that are read at once.
_PAGE = 50


async def export_caller(store: ResponseStore, caller_id: str) -> AsyncGenerator[bytes, None]:
    """Yield a line for each thing that is stored of a caller. Raises `StorageError`."""
    yield _encode({"object": "caller", "id": caller_id, "exported_at": int(time.time())})
    async for conversation in _list_conversations(store, caller_id):
        yield _encode(
            {
                "object": "conversation",
                "id": conversation.id,
                "created_at": int(conversation.created_at),
                "metadata": orjson.Fragment(conversation.metadata),
            }
        )
        async for item in _list_items(store, conversation):
            yield _encode({"object": "conversation.item", "conversation_id": conversation.id, "item": item})
    async for record in _list_responses(store, caller_id):
        yield _encode(record)
    query = UsageQuery(period=DAY, start=0, end=int(time.time()) + DAY, caller_id=caller_id, groups=("model", "status"))
    for start, (model, status), counts in await store.usage.read(query):
        sums = dict(zip(SUMS, counts.sums, strict=True))
        yield _encode({"object": "usage", "day": start, "model": model, "status": status, **sums, "cost": counts.cost})


async def _list_conversations(store: ResponseStore, caller_id: str) -> AsyncIterator[Conversation]:
    after = None
    while page := await store.list_conversations(caller_id, after=after, limit=_PAGE, order="asc"):
        for conversation in page:
            yield conversation
        after = page[-1].id


async def _list_items(store: ResponseStore, conversation: Conversation) -> AsyncIterator[orjson.Fragment]:
    after = None
    while page := await store.list_items(
        conversation.id, conversation.caller_id, after=after, limit=_PAGE, max_bytes=DEFAULT_CONTEXT_BYTES
    ):
        for item in page:
            yield orjson.Fragment(item.data)
        after = page[-1].id


async def _list_responses(store: ResponseStore, caller_id: str) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the responses of a caller with their inputs and the steps of their runs, newest first."""
    query = RunQuery(caller_id=caller_id, limit=_PAGE)
    while True:
        page = await store.runs.list_runs(query)
        for run in page.runs:
            record = await store.get(run.id, caller_id)
            if record is not None:
                yield {
                    "object": "run",
                    "id": record.id,
                    "response": orjson.Fragment(record.resource),
                    "input_items": orjson.Fragment(record.input_items),
                    "trace": None if record.trace is None else orjson.Fragment(record.trace),
                }
        if page.goes_on_after is None:
            return
        query = RunQuery(caller_id=caller_id, limit=_PAGE, after=page.goes_on_after)


def _encode(line: Mapping[str, Any]) -> bytes:
    return orjson.dumps(line) + b"\n"
