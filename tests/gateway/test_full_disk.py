"""A full disk: the gateway still serves, reports the error at once and leaves no temporary files."""

from __future__ import annotations

import asyncio
import resource
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, gateway_config, run_gateway
from patience import patience

from holodeck.gateway.runs.finisher import STOPPED_TEXT
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

FULL_DISK = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); runpy.run_module('holodeck')"
SECONDS = 60.0
ADD = call("add", a=1, b=2)
AT_ONCE = 8.0  # shorter than the lock timeout of a database writer


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@async_test(SECONDS)
async def test_a_gateway_on_a_full_disk_refuses_at_once_and_leaves_no_temporary_files(tmp_path: Path) -> None:
    async with ScriptedModel(say("hi"), say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with run_gateway_process(file, program=("-c", FULL_DISK)) as served:
            async with asyncio.timeout(patience(AT_ONCE)):
                status, answer, _ = await served.create_response()
            assert (status, answer["error"]["code"]) == (503, "storage_error")
            assert (await served.create_response(store=False))[0] == 200
            while not any("storage_failed" in line for line in served.stderr_lines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            served.stop()
            assert await served.wait_exit() == 0
    assert names(tmp_path) <= {"gateway.yaml", "holodeck.db", "holodeck.db.alive"}


def fill_disk(served: GatewayProcess, *, is_full: bool) -> None:
    """Let every write of a gateway to a file fail, or succeed again."""
    _, hard = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (0 if is_full else hard, hard))


def write_tool_gateway_file(folder: Path, url: str, server: FaultyMCPServer, **config: Any) -> Path:
    file = folder / "gateway.yaml"
    file.write_bytes(orjson.dumps(gateway_config(url, {"sums": server}) | config))
    return file


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@async_test(SECONDS)
async def test_no_tool_acts_while_the_disk_is_full_and_the_gateway_is_unready_until_there_is_room(
    tmp_path: Path, is_streamed: bool
) -> None:
    model = ScriptedModel(lambda asked: say("Three.") if asked.json["messages"][-1]["role"] == "tool" else ADD)
    async with FaultyMCPServer() as server, model.serve() as scripted:
        file = write_tool_gateway_file(tmp_path, scripted.url, server)
        async with run_gateway_process(file) as served:
            assert (await served.create_response("Add"))[0] == 200
            assert len(server.calls("add")) == 1
            fill_disk(served, is_full=True)
            status, answer, headers = await served.create_response("Add", stream=is_streamed)
            assert "storage_error" in str(answer), "in the stream, or as the reply"
            assert "x-should-retry" not in headers, "nothing has happened, so a client may repeat it"
            assert status == (200 if is_streamed else 503)
            assert len(server.calls("add")) == 1, "no tool acts for a response that cannot be stored"
            status, answer, _ = await served.send("GET", "/readyz")
            assert (status, answer["status"]) == (503, "no storage")
            assert answer["reason"] == "the disk reports an error"
            asked = len(scripted.received)
            assert (await served.create_response("Add"))[0] == 503
            assert len(scripted.received) == asked, "no model is paid for it either"
            assert (await served.create_response("Add", store=False))[0] == 200
            assert len(server.calls("add")) == 2
            fill_disk(served, is_full=False)
            while (await served.send("GET", "/readyz"))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await served.create_response("Add"))[0] == 200
            assert len(server.calls("add")) == 3
            _, runs, _ = await served.send("GET", "/v1/runs")
            assert {run["status"] for run in runs["data"]} == {"completed"}


@pytest.mark.proves("D-31")
@async_test(SECONDS)
async def test_a_response_whose_end_finds_the_disk_full_is_stored_as_failed_once_there_is_room(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, ScriptedModel([call("slow", seconds=60)]).serve() as scripted:
        file = write_tool_gateway_file(tmp_path, scripted.url, server)
        async with run_gateway_process(file) as served:
            going = asyncio.create_task(served.create_response("Go"))
            await server.received("tools/call", name="slow")
            _, runs, _ = await served.send("GET", "/v1/runs")
            (run,) = runs["data"]
            fill_disk(served, is_full=True)
            server.release()
            status, answer, headers = await going
            assert (status, answer["error"]["code"]) == (503, "storage_error")
            assert headers["x-should-retry"] == "false", "a tool has run"
            fill_disk(served, is_full=False)
            while (await served.send("GET", f"/v1/responses/{run['id']}"))[1]["status"] == "in_progress":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            _, stored, _ = await served.send("GET", f"/v1/responses/{run['id']}")
            assert (stored["status"], stored["error"]["code"]) == ("failed", "server_error")


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "in the process"])
@async_test(SECONDS)
async def test_a_response_with_tools_whose_gateway_is_killed_is_stored_as_failed(
    tmp_path: Path, is_durable: bool
) -> None:
    async with FaultyMCPServer() as server, ScriptedModel([call("slow", seconds=60)]).serve() as scripted:
        file = write_tool_gateway_file(tmp_path, scripted.url, server, background={"durable": is_durable})
        async with run_gateway_process(file) as served:
            going = asyncio.create_task(served.create_response("Go"))
            await server.received("tools/call", name="slow")
            _, runs, _ = await served.send("GET", "/v1/runs")
            (run,) = runs["data"]
            served.stop(signal.SIGKILL)
            await served.wait_exit()
            await asyncio.gather(going, return_exceptions=True)
        async with run_gateway_process(file) as served:
            _, stored, _ = await served.send("GET", f"/v1/responses/{run['id']}")
            assert (stored["status"], stored["error"]["message"]) == ("failed", STOPPED_TEXT)


@async_test
async def test_an_empty_key_file_is_replaced(tmp_path: Path) -> None:
    key = tmp_path / "holodeck.db.key"
    key.touch()
    async with run_gateway(tmp_path) as gateway:
        await (await gateway.openai_client()).responses.compact(model=MODEL, input="I bought a bicycle.")
    assert key.stat().st_size
