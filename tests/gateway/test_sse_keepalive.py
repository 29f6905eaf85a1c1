"""Streams without events for a while, because a tool works or a model thinks."""

from __future__ import annotations

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.running_gateway import MODEL, run_gateway

from holodeck.lib.limits import DEFAULT_SILENT_SECONDS
from holodeck.testing import ScriptedModel, say, wait

BODIES: dict[str, Any] = {
    "/v1/responses": {"model": MODEL, "input": "Hi", "stream": True},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": True},
}


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("path", BODIES)
@async_test(30)
async def test_a_silent_stream_sends_comments_so_that_proxies_leave_it_open(tmp_path: Path, path: str) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("Hello.")])
    async with run_gateway(tmp_path, model, limits={"silent_seconds": 0.05, "drain_seconds": 0}) as gateway:
        session = await gateway.http_client()
        async with session.post(path, data=orjson.dumps(BODIES[path])) as answer:
            assert answer.headers["x-accel-buffering"] == "no"
            received = b""
            while received.split(b"\n").count(b":") < 2:
                received += await answer.content.readany()
            go.set()
            received += await answer.read()
        lines = received.split(b"\n")
        assert {line.partition(b":")[0] for line in lines} <= {b"", b"event", b"data"}
        frames = b"\n".join(line for line in lines if line != b":").split(b"\n\n")
        assert all(b"data: " in frame for frame in frames[:-1])
        assert frames[-2:] == [b"data: [DONE]", b""]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_stock_package_ignores_keepalive_comments(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("Hello.")])
    async with run_gateway(tmp_path, model, limits={"silent_seconds": 0.01, "drain_seconds": 0}) as gateway:
        asyncio.get_running_loop().call_later(0.1, go.set)
        events = [e async for e in await (await gateway.openai_client()).responses.create(**BODIES["/v1/responses"])]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == "response.completed"


@pytest.mark.proves("D-25")
@with_movable_clock
async def test_a_stream_that_has_ended_sends_nothing_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hello."))) as gateway:
        assert (await gateway.stream("/v1/responses", BODIES["/v1/responses"]))[-1]["type"] == "response.completed"
        for _ in range(4):
            await advance_clock(DEFAULT_SILENT_SECONDS + 1)
        assert (await gateway.send("GET", "/v1/models"))[0] == 200
        gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
