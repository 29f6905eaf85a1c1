"""A message of a server costs few steps per byte, whatever it is made of: a megabyte does not stop the event loop."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from async_tests import async_test
from counted_calls import CountedCalls

from holodeck.lib.errors import MCPError
from holodeck.lib.secret import Secret
from holodeck.models.tool import CommandType, MCPTool
from holodeck.testing import stand_in
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin

SERVER = Path(__file__).with_name("long_message_server.py")
SIZE = 1_000_000
# A tool of 50 bytes takes some 90 calls, of Python and of C, and everything else takes less.
MAX_CALLS_PER_BYTE = 3
# The kinds of answers that the server has for a call, named there.
CALLS = (
    *("texts", "nothing", "numbers", "links", "images", "resources", "structured", "structured twice", "keys"),
    *("a batch of objects", "a batch of numbers", "a batch of notifications", "a log", "progress", "a question"),
    *("a model's turn", "an unknown request", "a foreign answer", "no message", "error"),
)
REQUESTS: dict[str, Callable[[MCPPlugin], Awaitable[object]]] = {
    "list of tools": lambda plugin: plugin.list_tools(),
    "list of prompts": lambda plugin: plugin.list_prompts(),
    "list of resources": lambda plugin: plugin.list_resources(),
    "list of templates": lambda plugin: plugin.list_resource_templates(),
    "resource": lambda plugin: plugin.read_resource("a:1"),
    "prompt": lambda plugin: plugin.get_prompt("p1"),
}


async def _count_calls(request: Callable[[], Awaitable[object]]) -> int:
    work = CountedCalls()
    with work.counting(), suppress(MCPError):
        await request()
    return work.count


@async_test(60)
async def test_a_megabyte_of_any_message_takes_few_steps_per_byte(tmp_path: Path) -> None:
    command = [sys.executable, str(SERVER), str(SIZE)]
    env = {key: Secret(value) for key, value in stand_in(tmp_path, command).items()}
    started: dict[str, Any] = {"command": CommandType.NPX, "args": ["-y", "long"], "allow_unsafe_args": True}
    tool = MCPTool(name="long", server="long", env=env, **started)
    async with create_mcp_plugin(tool, base_dir=tmp_path) as plugin:
        counts = {name: await _count_calls(partial(request, plugin)) for name, request in REQUESTS.items()}
        counts |= {kind: await _count_calls(partial(plugin.call_tool, kind)) for kind in CALLS}
    assert {name: count / SIZE for name, count in counts.items() if count > SIZE * MAX_CALLS_PER_BYTE} == {}
