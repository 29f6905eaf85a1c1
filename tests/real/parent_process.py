"""Calls a tool of an agent file's server and then waits to be killed: `python owner.py FILE TOOL JSON`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from holodeck.models.tool import MCPTool
from holodeck.runtime import read_agent
from holodeck.tools.mcp.factory import create_mcp_plugin


def kill_parent_after_call(
    file: Path, tool: str, arguments: Mapping[str, str], *, env: Mapping[str, str], meanwhile: Callable[[], object]
) -> None:
    """Start this program, wait until its call has been answered, look around, and kill it as nothing else can."""
    command = [sys.executable, __file__, str(file), tool, json.dumps(arguments)]
    with subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            assert owner.stdout.readline() == "ready\n"
            meanwhile()
        finally:
            owner.send_signal(signal.SIGKILL)


async def main(file: str, name: str, arguments: str) -> None:
    tool = read_agent(file).tools[0].tool
    assert isinstance(tool, MCPTool)
    server = create_mcp_plugin(tool, base_dir=Path(file).parent)
    result = await server.call(name, json.loads(arguments))
    print("ready" if result.success else result.error, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
