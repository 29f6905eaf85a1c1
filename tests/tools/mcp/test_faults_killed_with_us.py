"""When we are killed without a chance to clean up, the servers that we started go with us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import wait_all_gone

from holodeck.testing import FaultyMCPServer, Journal, read_pids, stand_in

PROGRAM = """
import asyncio, sys
from pathlib import Path
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.factory import create_mcp_plugin

async def main():
    plugin = create_mcp_plugin(MCPTool(name="left", server="left", command="npx", args=["-y", "left"]))
    await plugin.connect()
    print("connected", flush=True)
    await plugin.call_tool("slow", seconds=600)

asyncio.run(main())
"""


@pytest.mark.parametrize("mode", ["normal", "ignores-eof", "ignores-term", "wrapper", "child-holds-pipe"])
@pytest.mark.proves("D-17")
@async_test
async def test_no_server_outlives_a_client_that_is_killed_in_the_middle_of_a_call(tmp_path: Path, mode: str) -> None:
    journal, pid_file = Journal(tmp_path / "journal"), tmp_path / "pids"
    path = stand_in(tmp_path / "bin", FaultyMCPServer.command(mode, journal=journal.path, pid_file=pid_file))
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, env={**os.environ, **path}, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdout is not None
    assert (await program.stdout.readline()).strip() == b"connected"
    await journal.received("tools/call")
    pids = [*journal.pids, *read_pids(pid_file)]
    program.send_signal(signal.SIGKILL)
    await program.wait()
    await wait_all_gone(pids)


INSPECTED = """
import asyncio, ctypes, os
from pathlib import Path
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.factory import create_mcp_plugin

PR_GET_DUMPABLE = 3

async def main():
    plugin = create_mcp_plugin(MCPTool(name="nosy", server="nosy", command="npx", args=["-y", "nosy"]))
    await plugin.connect()
    started = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert len(started) == 2, started
    seen = [Path(f"/proc/{child}/environ").read_bytes() for child in started]
    print(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE), sum(b"a-key-of-ours" in each for each in seen))
    await plugin.disconnect()

asyncio.run(main())
"""


def test_no_process_that_we_start_can_read_our_environment(tmp_path: Path) -> None:
    """Neither that of this process, which only root may read from then on, nor that of the shell that watches them."""
    path = stand_in(tmp_path / "bin", FaultyMCPServer.command("normal"))
    env = {**os.environ, **path, "OPENAI_API_KEY": "a-key-of-ours"}
    done = subprocess.run([sys.executable, "-c", INSPECTED], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]
