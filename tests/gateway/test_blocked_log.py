"""A log pipe that is never read: the gateway still answers and stops."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import aiohttp
import pytest
from async_tests import async_test
from gateway.gateway_process import HOLODECK, write_gateway_file

NOWHERE = "http://127.0.0.1:9/v1"
SMALL_PIPE = 4096
REQUESTS = 100  # log more lines than the pipe holds


@pytest.mark.proves("D-31")
@pytest.mark.parametrize("reader", ["sleeps", "has gone"])
@async_test(90)
async def test_a_gateway_whose_log_is_not_read_answers_and_stops(tmp_path: Path, reader: str) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    arguments = (sys.executable, *HOLODECK, "serve", str(write_gateway_file(tmp_path, NOWHERE)))
    process = await asyncio.create_subprocess_exec(*arguments, stdin=DEVNULL, stdout=DEVNULL, stderr=writing)
    os.close(writing)
    try:
        output = b""
        while (found := re.search(rb" at (http://\S+)/v1\n", output)) is None:
            output += await asyncio.to_thread(os.read, reading, SMALL_PIPE)
        if reader == "has gone":
            os.close(reading)
        async with aiohttp.ClientSession(found[1].decode()) as session:
            for _ in range(REQUESTS):
                async with session.get("/v1/models") as answer:
                    assert answer.status == 200
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if reader == "sleeps":
            os.close(reading)
