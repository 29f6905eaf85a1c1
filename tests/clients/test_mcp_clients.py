"""The official SDKs of MCP in their versions, at both doors of HoloDeck. `make clients` tries more clients."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from async_tests import async_test
from clients.mcp_doors import EXPECTED, open_doors
from clients.run import PROGRAMS, read_answers
from gateway.client_environments import python_with
from installed_servers import PACKAGES


def _node_command(folder: Path, program: str) -> list[str]:
    node = shutil.which("node")
    assert node is not None
    # Node looks for packages beside the program.
    (folder / "node_modules").symlink_to(PACKAGES)
    for name in ("mcp_program.mjs", program):
        shutil.copy(PROGRAMS / name, folder)
    return [node, str(folder / program)]


# The command of each client. Programs for Node are copied to the folder.
COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "Python 1": lambda _: [str(python_with("mcp-1")), str(PROGRAMS / "mcp_sdk_1.py")],
    "Python 2": lambda _: [sys.executable, str(PROGRAMS / "mcp_sdk_2.py")],
    "TypeScript 1": lambda folder: _node_command(folder, "mcp_sdk_1.mjs"),
    "TypeScript 2": lambda folder: _node_command(folder, "mcp_sdk_2.mjs"),
}


# The newest of each language; the versions before are in the long tests.
IN_EACH_RUN = {"Python 2", "TypeScript 2"}
CASES = [pytest.param(name, marks=() if name in IN_EACH_RUN else pytest.mark.long) for name in COMMANDS]


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("client", CASES)
def test_a_client_lists_and_calls_tools_over_stdio_and_over_http(tmp_path: Path, client: str) -> None:
    command = COMMANDS[client](tmp_path)

    @async_test(120)
    async def use() -> None:
        async with open_doors(tmp_path) as doors:
            assert await read_answers([*command, *doors.arguments], {"HOLODECK_TRUST": "all"}) == EXPECTED

    use()
