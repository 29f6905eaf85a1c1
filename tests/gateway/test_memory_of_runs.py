"""A finished run is freed at once: searching memory for cycles of runs would take a fifth of the CPU of a request."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.gateway.runs.live_run import LiveRun
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say


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
