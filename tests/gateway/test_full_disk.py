"""A full disk: the gateway still serves, reports the error at once and leaves no temporary files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import ScriptedModel, say

FULL_DISK = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); runpy.run_module('holodeck')"
SECONDS = 60.0
AT_ONCE = 8.0  # shorter than the lock timeout of a database writer


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@async_test(SECONDS)
async def test_a_gateway_on_a_full_disk_refuses_at_once_and_leaves_no_temporary_files(tmp_path: Path) -> None:
    async with ScriptedModel(say("hi"), say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with run_gateway_process(file, program=("-c", FULL_DISK)) as served:
            async with asyncio.timeout(AT_ONCE):
                status, answer, _ = await served.create_response()
            assert (status, answer["error"]["code"]) == (503, "storage_error")
            assert (await served.create_response(store=False))[0] == 200
            while not any("storage_failed" in line for line in served.stderr_lines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            served.stop()
            assert await served.wait_exit() == 0
    assert names(tmp_path) <= {"gateway.yaml", "holodeck.db", "holodeck.db.alive"}


@async_test
async def test_an_empty_key_file_is_replaced(tmp_path: Path) -> None:
    key = tmp_path / "holodeck.db.key"
    key.touch()
    async with run_gateway(tmp_path) as gateway:
        await (await gateway.openai_client()).responses.compact(model=MODEL, input="I bought a bicycle.")
    assert key.stat().st_size
