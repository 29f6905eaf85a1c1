"""The states of a run: where it ends when storage fails, and that nothing shows it as ended before it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test

from holodeck.durable.base import JSONObject
from holodeck.engine.checkpointed_steps import CheckpointedSteps
from holodeck.engine.loop import Run, RunRequest
from holodeck.gateway.runs.finisher import build_stored_response
from holodeck.gateway.runs.live_run import LiveResponse, LiveRun, RunFinisher, RunState
from holodeck.gateway.runs.stream_writer import StreamWriter
from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib.errors import StorageError
from holodeck.models.model_io import ToolChoice
from holodeck.storage.factory import open_store
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore
from holodeck.testing import ScriptedModel, say
from holodeck.tools.calls import ArgumentChecker
from holodeck.tools.toolbox import Toolbox

REQUEST = read_request({"model": "demo", "input": "Go", "background": True})


class BrokenStorage(RunFinisher[ResponseWriter]):
    """Raises from `finish` once `may_fail` is set."""

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.may_fail = asyncio.Event()

    async def finish(self, live: LiveResponse) -> bool:
        self.is_called.set()
        await self.may_fail.wait()
        raise StorageError("The disk is full.")


class Steps:
    """Checkpoints that are not stored."""

    async def step(self, name: str, work: Callable[[], Awaitable[JSONObject]]) -> JSONObject:
        return await work()

    async def store_note(self, name: str, value: JSONObject) -> None:
        return

    async def find_note(self, name: str) -> JSONObject | None:
        return None


def build_run(finisher: RunFinisher[ResponseWriter] | None = None) -> LiveResponse:
    writer = ResponseWriter(REQUEST, response_id="resp_1", created_at=1.0, model="demo", is_durable=True)
    request = RunRequest(run_id="resp_1", model=REQUEST.build_model_request((), ToolChoice()))
    toolbox = Toolbox([], checker=ArgumentChecker())
    run = Run(request, ScriptedModel(say("Done.")), toolbox)
    return LiveRun(run, writer, caller_id="alice", finisher=finisher)


async def make_durable(live: LiveResponse, store: ResponseStore) -> None:
    """Store a run as queued, and let it store its stream."""
    await store.insert_within_quota(build_stored_response(live, REQUEST), quota=1, is_durable=True)
    live.make_durable(CheckpointedSteps(Steps()), store)


@pytest.mark.proves("D-28")
@async_test
async def test_a_run_that_cannot_be_stored_while_its_gateway_stops_is_handed_over_without_an_error(
    tmp_path: Path,
) -> None:
    store, storage = open_store("sqlite:///responses.db", folder=tmp_path), BrokenStorage()
    live = build_run(storage)
    await make_durable(live, store)
    running = asyncio.create_task(live.run_to_end())
    try:
        await storage.is_called.wait()
        state_before = live.state
        await live.hand_over()
        storage.may_fail.set()
        await running
        assert (state_before, live.state, live.failure) == (RunState.STORING, RunState.HANDED_OVER, None)
        assert [name for name in map(_type_of, live.wire_events) if name in {"error", "response.completed"}] == []
        await live.retry_store()
        assert live.state is RunState.HANDED_OVER
    finally:
        await store.close()


@async_test
async def test_a_run_that_was_closed_before_it_started_cannot_start() -> None:
    live = build_run()
    async with live:
        pass
    with pytest.raises(RuntimeError, match="from DISCARDED to RUNNING"):
        await live.run_to_end()


@pytest.mark.proves("D-28")
@async_test
async def test_the_stored_stream_of_a_response_does_not_show_its_end_before_the_response_is_stored(
    tmp_path: Path,
) -> None:
    store, storage = open_store("sqlite:///responses.db", folder=tmp_path), BrokenStorage()
    live = build_run(storage)
    await make_durable(live, store)
    running = asyncio.create_task(live.run_to_end())
    try:
        await storage.is_called.wait()
        assert live.writer.build_resource()["status"] == "completed"
        published = asyncio.Event()
        late = StreamWriter(
            store,
            live.id,
            live.writer,
            first_sequence=len(await store.read_events(live.id, "alice") or []),
            publish=lambda _events: published.set(),
            abandon=live.abandon,
            encode_trace=live.trace.encode,
        )
        # As when an interval between two writes ends just as the run does.
        late.start()
        late.append([b'{"type":"response.output_item.done"}'])
        await published.wait()
        await late.stop()
        record = await store.get(live.id, "alice")
        assert record is not None
        assert {record.status, orjson.loads(record.resource)["status"]} <= set(UNFINISHED_STATUSES)
    finally:
        storage.may_fail.set()
        await running
        await store.close()


@pytest.mark.proves("D-28")
@async_test
async def test_the_reader_that_runs_a_response_does_not_see_its_end_before_that_is_stored() -> None:
    storage = BrokenStorage()
    async with build_run(storage) as live, aclosing(live.stream()) as batches:
        first = await anext(batches)
        # The reader is slow, and comes back while the end is being stored.
        await storage.is_called.wait()
        reading = asyncio.create_task(_collect(batches))
        for _ in range(10):
            await asyncio.sleep(0)
        storage.may_fail.set()
        kinds = [_type_of(event) for event in (*first, *await reading)]
    assert "response.created" in kinds
    assert "response.completed" not in kinds
    assert kinds[-1] == "error"


async def _collect(batches: AsyncGenerator[list[bytes], None]) -> list[bytes]:
    return [event async for batch in batches for event in batch]


def _type_of(event: bytes) -> Any:
    return orjson.loads(event)["type"]
