"""The programs in `examples/clients` are those of the pages, and do what the pages say."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.client_environments import node_folder, python_with
from gateway.gateway_process import run_gateway_process, write_gateway_file

from holodeck.testing import FaultyMCPServer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/clients"
PAGES = "\n".join(page.read_text() for page in (ROOT / "docs/clients").glob("*.md"))
PROGRAMS = sorted(file for file in EXAMPLES.iterdir() if file.suffix != ".md")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_page_shows_each_program_as_it_is(program: Path) -> None:
    shown = [block for block in re.findall(r"```\w+\n(.*?)```", PAGES, re.DOTALL) if program.name in block[:40]]
    assert program.read_text() in shown


async def _run(folder: Path, *command: Path | str) -> str:
    """Run a program against a gateway with the rehearsal model and a server with `echo`; return its output."""
    config = {"models": [{"name": "demo", "model": {"provider": "rehearsal"}}], "mcp_output": "openai"}
    async with FaultyMCPServer() as server:
        servers = [{"name": "sums", "description": "Sums and echoes.", "url": server.url}]
        file = write_gateway_file(folder, server.url, mcp_servers=servers, **config)
        async with run_gateway_process(file) as served:
            process = await asyncio.create_subprocess_exec(
                *map(str, command), stdout=PIPE, stderr=STDOUT, env={**os.environ, "HOLODECK_URL": f"{served.url}/v1"}
            )
            out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.mark.long
@pytest.mark.proves("D-25")
def test_the_program_for_node_uses_a_tool_of_the_gateway_and_its_own_function(tmp_path: Path) -> None:
    folder, node = node_folder(), shutil.which("node")
    assert node is not None
    (tmp_path / "node_modules").symlink_to(folder / "node_modules")
    shutil.copy(EXAMPLES / "openai_node.mjs", tmp_path)

    @async_test(300)
    async def use() -> None:
        printed = await _run(tmp_path, node, tmp_path / "openai_node.mjs")
        echoed = "[rehearsal] `echo` answered: hello"
        assert printed.splitlines() == [echoed, echoed, "[rehearsal] `ticket_status` answered: open"]

    use()


@pytest.mark.long
@pytest.mark.proves("D-25", "D-23")
def test_the_program_for_the_agents_sdk_uses_a_tool_of_the_gateway_and_its_own_function(tmp_path: Path) -> None:
    python = python_with("openai-agents")

    @async_test(300)
    async def use() -> None:
        printed = await _run(tmp_path, python, EXAMPLES / "openai_agents.py")
        own = "[rehearsal] `ticket_status` answered: ticket 7 is open"
        assert printed.splitlines() == ["[rehearsal] `echo` answered: hello", own]

    use()
