"""Memory of runs: it is small while they go on, freed at once when they end, and given back to the system.

Searching memory for cycles of runs would take a fifth of the CPU of a request.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.engine.turn import DELTA_COST
from holodeck.gateway.runs.live_run import LiveRun
from holodeck.gateway.runs.stream_writer import PACK_EVENTS, WireEvents
from holodeck.gateway.server.http_protocol import HTTPProtocol
from holodeck.gateway.server.served_request import ServedRequest
from holodeck.lib.limits import MIB
from holodeck.lib.system.memory import RETURN_AFTER_BYTES
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.tools.toolbox import Toolbox


@contextmanager
def without_garbage_collector() -> Iterator[None]:
    """Only objects that nothing refers to are freed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count_runs() -> int:
    return sum(isinstance(each, LiveRun) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "What is the sum?"}),
        ("/v1/responses", {"input": "What is the sum?", "stream": True}),
        ("/v1/responses", {"input": "What is the sum?", "store": False}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is the sum?"}]}),
    ],
    ids=["stored", "streamed", "not stored", "chat completion"],
)
@async_test(60)
async def test_a_finished_run_needs_no_garbage_collector(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    answers = [[call("add", a=1, b=2)], [say("Three.")]] * 5
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(*answers), mcp={"sums": server}) as gateway,
    ):
        client = await gateway.http_client()
        with without_garbage_collector():
            before = count_runs()
            for _ in range(5):
                async with client.post(path, json={"model": MODEL, **body}) as reply:
                    assert "Three." in await reply.text()
            # The request that is answered last may still be at its end.
            await gateway.send("GET", "/healthz")
            assert count_runs() - before <= 1


TEXT_BYTES = 200_000
PIECE = 32


def measure_runs() -> int:
    """The bytes that what makes responses has allocated and not freed."""
    parts = ("engine", "providers", "gateway/runs", "gateway/wire", "gateway/endpoints")
    filters = [tracemalloc.Filter(True, f"*/holodeck/{part}/*") for part in parts]
    snapshot = tracemalloc.take_snapshot().filter_traces(filters)
    return sum(statistic.size for statistic in snapshot.statistics("filename"))


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@async_test(120)
async def test_an_answer_in_small_pieces_takes_few_times_its_text_in_memory_and_on_disk(
    tmp_path: Path, is_streamed: bool
) -> None:
    go, text = asyncio.Event(), "word " * (TEXT_BYTES // 5)
    model = ScriptedModel([say(text), wait(go), say("end")], chunk=PIECE)
    # Deltas that arrive together and that nothing reads are one.
    cost = DELTA_COST if is_streamed else 0
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.http_client()

        async def ask() -> bytes:
            # So long an answer is streamed from the model also where its client does not stream.
            body = {"model": MODEL, "input": "Write", "stream": is_streamed, "max_output_tokens": 100_000}
            async with client.post("/v1/responses", json=body) as reply:
                return await reply.read()

        tracemalloc.start()
        try:
            before = measure_runs()
            asking = asyncio.create_task(ask())
            # The answers of runs count there, as far as they have come.
            while gateway.service.budget.used < len(text) + len(text) // PIECE * cost:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            taken = measure_runs() - before
        finally:
            tracemalloc.stop()
        go.set()
        assert b"end" in await asking
    assert taken < 10 * TEXT_BYTES
    with closing(sqlite3.connect(tmp_path / "holodeck.db")) as database:
        columns = "resource, input_items, items, pending, events, trace".replace(", ", ") + length(")
        (stored,) = database.execute(f"SELECT length({columns}) FROM responses").fetchone()
    assert stored < 3 * TEXT_BYTES


@async_test(60)
async def test_an_idle_gateway_frees_dead_cycles_after_large_requests(tmp_path: Path) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    is_freed, loop = asyncio.Event(), asyncio.get_running_loop()
    with without_garbage_collector():
        async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi."))) as gateway:
            cycle = Cycle()
            watched = weakref.ref(cycle, lambda _: loop.call_soon_threadsafe(is_freed.set))
            del cycle
            body = {"model": MODEL, "input": "word " * (MIB // 10)}
            await gateway.send("POST", "/v1/responses", body)
            assert watched() is not None
            for _ in range(2 * RETURN_AFTER_BYTES // MIB + 1):
                await gateway.send("POST", "/v1/responses", body)
            await is_freed.wait()


def test_a_long_stream_is_read_from_any_event_and_its_end_can_be_taken_back() -> None:
    count = 3 * PACK_EVENTS + 7
    plain = [b'{"n":%d}' % number for number in range(count)]
    events = WireEvents(plain[:5])
    for start in range(5, count, 100):
        events.extend(plain[start : start + 100])
    for position in (0, 1, PACK_EVENTS - 1, PACK_EVENTS, 2 * PACK_EVENTS + 3, count - 1):
        read: list[bytes] = []
        while batch := events.read(position + len(read)):
            read += batch
        assert read == plain[position:]
    assert (len(events), list(events), events.join()) == (count, plain, b"\n".join(plain))
    copied = events.copy()
    copied.remove_last(2 * PACK_EVENTS)
    copied.extend([b"{}"])
    assert list(copied) == [*plain[: count - 2 * PACK_EVENTS], b"{}"]
    assert list(events) == plain
    assert WireEvents().join() == b""


@async_test(60)
async def test_nothing_of_a_stream_is_left_when_its_client_has_gone(tmp_path: Path) -> None:
    kinds = (HTTPProtocol, ServedRequest, LiveRun, Toolbox)

    def count_left() -> dict[str, int]:
        gc.collect()
        found = [type(each) for each in gc.get_objects() if isinstance(each, kinds)]
        return {kind.__name__: sum(issubclass(each, kind) for each in found) for kind in kinds}

    before, streams = count_left(), 20
    model = ScriptedModel(*[[say("Hi"), wait(asyncio.Event())] for _ in range(streams)])
    async with run_gateway(tmp_path, model) as gateway:
        body = {"model": MODEL, "input": "hi", "stream": True}
        async with aiohttp.ClientSession(gateway.url) as client:
            answers = [await client.post("/v1/responses", json=body) for _ in range(streams)]
            for answer in answers:
                await answer.content.readuntil(b'"delta":"Hi"')
                answer.close()
        while gateway.service.configurations.current.uses.count:  # noqa: ASYNC110 - the runs of the gateway
            await asyncio.sleep(0)
        while count_left() != before:  # noqa: ASYNC110 - the ends of connections
            await asyncio.sleep(0)
