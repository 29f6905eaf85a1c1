"""A disk without room: the gateway serves, says at once what is wrong, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import ScriptedModel, say

NO_ROOM = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); runpy.run_module('holodeck')"
SECONDS = 60.0
AT_ONCE = 8.0  # less than a writer waits for another one, who is soon done


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@async_test(SECONDS)
async def test_a_gateway_without_room_says_so_at_once_and_leaves_no_drafts(tmp_path: Path) -> None:
    async with ScriptedModel(say("hi"), say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with run_gateway_process(file, program=("-c", NO_ROOM)) as served:
            async with asyncio.timeout(AT_ONCE):
                status, answer, _ = await served.create_response()
            assert (status, answer["error"]["code"]) == (503, "storage_error")
            assert (await served.create_response(store=False))[0] == 200
            while not any("storage_failed" in line for line in served.stderr_lines):  # noqa: ASYNC110 - its own words
                await asyncio.sleep(0.01)
            served.stop()
            assert await served.wait_exit() == 0
    assert names(tmp_path) <= {"gateway.yaml", "holodeck.db", "holodeck.db.alive"}


@async_test
async def test_an_empty_key_file_seals_nothing(tmp_path: Path) -> None:
    key = tmp_path / "holodeck.db.key"
    key.touch()
    async with run_gateway(tmp_path) as stand:
        await (await stand.openai_client()).responses.compact(model=MODEL, input="I bought a bicycle.")
    assert key.stat().st_size
