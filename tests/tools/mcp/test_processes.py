"""Nothing that we started outlives us: not a helper, not a wrapper's child, not even when we are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.test_supervisor import faulty_tool

from holodeck.testing import Journal, read_pids
from holodeck.tools.mcp.factory import create_mcp_plugin

OWNER = """
import asyncio, sys
from pathlib import Path
from tools.mcp.test_supervisor import faulty_tool
from holodeck.tools.mcp.factory import create_mcp_plugin

async def main():
    server = create_mcp_plugin(faulty_tool(Path(sys.argv[1]), sys.argv[2]))
    assert (await server.call_tool("echo", text="x")).success
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def wait_processes_ended(pids: list[int]) -> None:
    """Wait for the end of each process, on its process descriptor."""
    loop = asyncio.get_running_loop()
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


@pytest.mark.parametrize("mode", ["leaves-child", "child-holds-pipe", "wrapper", "ignores-eof", "ignores-term"])
@pytest.mark.proves("000:FR-024", "000:FR-025")
@async_test(60)
async def test_closing_leaves_no_process(mode: str, tmp_path: Path) -> None:
    async with create_mcp_plugin(faulty_tool(tmp_path, mode)) as server:
        assert (await server.call_tool("echo", text="x")).success
        pids = read_pids(tmp_path / "pids")
        assert all(is_running(pid) for pid in pids)
    await wait_processes_ended(pids)


@pytest.mark.parametrize("mode", ["wrapper", "ignores-term", "child-holds-pipe"])
@async_test(90)
async def test_no_process_remains_when_the_client_is_killed(mode: str, tmp_path: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        OWNER,
        str(tmp_path),
        mode,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    pids = read_pids(tmp_path / "pids")
    assert all(is_running(pid) for pid in pids)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    await wait_processes_ended(pids)


@async_test(60)
async def test_a_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    server = create_mcp_plugin(faulty_tool(tmp_path, "hangs-at-start"))
    start = asyncio.create_task(server.connect())
    await Journal(tmp_path / "journal").received("server/discover")
    start.cancel()
    await asyncio.wait({start})
    await server.close()
    await wait_processes_ended(read_pids(tmp_path / "pids"))
