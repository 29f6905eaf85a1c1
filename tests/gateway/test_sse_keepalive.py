"""Streams that have nothing to tell for a while: while a tool works, or a model thinks."""

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
async def test_a_silent_stream_shows_proxies_that_it_goes_on(tmp_path: Path, path: str) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([wait(go_on), say("Hello.")])
    async with run_gateway(tmp_path, model, limits={"silent_seconds": 0.05, "drain_seconds": 0}) as stand:
        session = await stand.http_client()
        async with session.post(path, data=orjson.dumps(BODIES[path])) as answer:
            assert answer.headers["x-accel-buffering"] == "no"
            said = b""
            while said.split(b"\n").count(b":") < 2:
                said += await answer.content.readany()
            go_on.set()
            said += await answer.read()
        lines = said.split(b"\n")
        assert {line.partition(b":")[0] for line in lines} <= {b"", b"event", b"data"}
        frames = b"\n".join(line for line in lines if line != b":").split(b"\n\n")
        assert all(b"data: " in frame for frame in frames[:-1])
        assert frames[-2:] == [b"data: [DONE]", b""]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_stock_package_skips_what_says_nothing(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    model = ScriptedModel([wait(go_on), say("Hello.")])
    async with run_gateway(tmp_path, model, limits={"silent_seconds": 0.01, "drain_seconds": 0}) as stand:
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        events = [e async for e in await (await stand.openai_client()).responses.create(**BODIES["/v1/responses"])]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == "response.completed"


@pytest.mark.proves("D-25")
@with_movable_clock
async def test_a_stream_that_has_ended_says_nothing_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hello."))) as stand:
        assert (await stand.stream("/v1/responses", BODIES["/v1/responses"]))[-1]["type"] == "response.completed"
        for _ in range(4):
            await advance_clock(DEFAULT_SILENT_SECONDS + 1)
        assert (await stand.send("GET", "/v1/models"))[0] == 200
        gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
