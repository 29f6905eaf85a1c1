"""The MCP Inspector without its browser, with both ways in an `mcp.json`."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from mcp_program import ADDRESS, COMMAND, use_all

MODULES = Path(os.environ["CLIENT_FOLDER"]) / "node_modules"
INSPECTOR = (MODULES / "node/bin/node", MODULES / ".bin/mcp-inspector")


async def use(entry):
    names = [tool["name"] for tool in (await inspect(entry, "tools/list"))["tools"]]
    result = await inspect(entry, "tools/call", "--tool-name", "add", "--tool-arg", "a=1", "--tool-arg", "b=2")
    return names, result["content"][0]["text"]


async def inspect(entry, method, *options):
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"holodeck": entry}}))
        words = ("--cli", "--config", config, "--server", "holodeck", "--method", method, *options)
        process = await asyncio.create_subprocess_exec(
            *map(str, (*INSPECTOR, *words)), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**os.environ, "HOME": home}
        )
        out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError(err.decode() + out.decode())
    return json.loads(out)


async def use_stdio():
    environ = {name: os.environ[name] for name in ("PATH", "HOLODECK_TRUST")}
    return await use({"command": COMMAND[0], "args": COMMAND[1:], "env": environ})


async def use_http(key):
    headers = {"Authorization": f"Bearer {key}"}
    return await use({"type": "streamable-http", "url": ADDRESS, "headers": headers})


use_all(use_stdio, use_http)
