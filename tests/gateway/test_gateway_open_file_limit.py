"""A gateway without free file descriptors: callers get a 503, and the log says how to fix it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, wait_logged, write_gateway_file
from open_file_limit import exhaust_open_files

from holodeck.testing import ScriptedModel, say


async def has_settled(served: GatewayProcess) -> None:
    """Wait until the gateway has opened its storage and closed the files that it opens for that.

    The 404 also leaves an open connection, which the next request uses."""
    assert (await served.send("GET", "/v1/responses/resp_none"))[0] == 404


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
@async_test(60)
async def test_a_model_request_without_free_file_descriptors_is_a_503(tmp_path: Path, path: str) -> None:
    question = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"input": "hi"}
    body = {"model": "demo", **question}
    async with (
        ScriptedModel(say("Room.")).serve() as model,
        run_gateway_process(write_gateway_file(tmp_path, model.url), "--log-format", "json") as served,
    ):
        await has_settled(served)
        with exhaust_open_files(served.process.pid):
            status, answer, headers = await served.send("POST", path, body)
        assert (status, answer["error"]["code"], headers["Retry-After"]) == (503, "overloaded", "1")
        assert "no capacity for this request at the moment. Try again later" in answer["error"]["message"]
        status, answer, _ = await served.send("POST", path, body)
        assert (status, "Room." in str(answer)) == (200, True)
        served.stop()
        await served.wait_exit()
    lines = [orjson.loads(line) for line in served.stderr_lines]
    (logged,) = [line for line in lines if line["event"] == "process.out_of_files"]
    assert "ulimit -n" in logged["notice"]
    assert len(model.received) == 1


@async_test(60)
async def test_a_shortage_of_file_descriptors_is_logged_and_new_connections_are_served_after_it(tmp_path: Path) -> None:
    async with (
        ScriptedModel().serve() as model,
        run_gateway_process(write_gateway_file(tmp_path, model.url)) as served,
        aiohttp.ClientSession() as stranger,
    ):
        await has_settled(served)
        with exhaust_open_files(served.process.pid):
            await wait_logged(served, "process.out_of_files")
            # The event loop closes a new connection with a descriptor that it reserves for that. Where a thread of the
            # gateway has just taken that one, the connection stays in the queue until the shortage ends.
            during = asyncio.create_task(fetch_status(stranger, served.url))
            assert (await served.send("GET", "/healthz"))[0] == 200
        assert await during in (None, 200)
        assert await fetch_status(stranger, served.url) == 200


async def fetch_status(session: aiohttp.ClientSession, url: str) -> int | None:
    """Return the status of the health check over a new connection, None if the connection was refused."""
    try:
        async with session.get(f"{url}/healthz", headers={"Connection": "close"}) as answer:
            return answer.status
    except aiohttp.ClientError:
        return None
