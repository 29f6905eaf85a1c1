"""A server over stdio that does not read any more: the call goes to a new process, whatever event loop runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from providers.raw_server import both_loops

from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool
from holodeck.testing import stand_in
from holodeck.tools.mcp.factory import create_mcp_plugin

# Answers each call with its own process id, and closes its input when it is asked to.
SERVER = """
import json, os, sys, time

def result_of(message):
    method = message["method"]
    if method == "initialize":
        info = {"name": "closing", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": "close", "inputSchema": {"type": "object"}},
                          {"name": "who", "inputSchema": {"type": "object"}}]}
    if message["params"]["name"] == "close":
        os.close(0)
    return {"content": [{"type": "text", "text": str(os.getpid())}]}

for line in iter(sys.stdin.buffer.raw.readline, b""):
    message = json.loads(line)
    if "id" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        known = message["method"] in ("initialize", "tools/list", "tools/call")
        answer |= {"result": result_of(message)} if known else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps(answer), flush=True)
        if message.get("params", {}).get("name") == "close":
            time.sleep(3600)
"""


@pytest.mark.proves("D-13", "D-15")
@both_loops
async def test_a_call_after_a_server_has_closed_its_input_is_answered_by_a_new_process(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    path = stand_in(tmp_path / "bin", [sys.executable, str(script)])
    tool = MCPTool(
        name="closing",
        server="closing",
        command=CommandType.NPX,
        args=["-y", "closing"],
        env={"PATH": Secret(path["PATH"])},
        allow_unsafe_args=True,
    )
    async with create_mcp_plugin(tool, base_dir=tmp_path) as plugin:
        first = await plugin.call_tool("close")
        assert first.success, first.error
        second = await plugin.call_tool("who")
        assert second.success, second.error
        assert second.text != first.text
