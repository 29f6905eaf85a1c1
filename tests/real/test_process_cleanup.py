"""Real servers are processes behind processes: `npx` starts a shell, the shell starts the server. All end with us."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import pytest
from async_tests import async_test
from real.marked_processes import MARK, new_mark, pids_with_mark, wait_until_none, zombie_children
from real.parent_process import kill_parent_after_call
from real.project import START_SECONDS, RealProject

EVERYTHING = """
tools:
  - name: everything
    description: Everything that a server can do
    type: mcp
    command: npx
    args: ["-y", "@modelcontextprotocol/server-everything"]
    env:
      HOLODECK_TEST_MARK: "${HOLODECK_TEST_MARK}"
"""
CLOCK = """
tools:
  - name: clock
    description: Knows what time it is
    type: mcp
    command: uvx
    args: ["mcp-server-time==2026.10.19"]
    env:
      HOLODECK_TEST_MARK: "${HOLODECK_TEST_MARK}"
"""
USES = [
    pytest.param(EVERYTHING, "echo", {"message": "x"}, id="npx"),
    pytest.param(CLOCK, "get_current_time", {"timezone": "Europe/Berlin"}, id="uvx"),
]


@pytest.mark.parametrize(("text", "tool", "arguments"), USES)
@pytest.mark.proves("000:FR-024", "000:FR-025", "D-17")
@async_test(START_SECONDS)
async def test_a_closed_server_leaves_no_process(
    project: RealProject, text: str, tool: str, arguments: dict[str, str]
) -> None:
    mark = new_mark()
    async with project.open_server(text, {MARK: mark}) as server:
        assert not pids_with_mark(mark)
        assert (await server.call(tool, arguments)).success
        assert len(pids_with_mark(mark)) > 1
    assert not wait_until_none(mark)
    assert not zombie_children()


@pytest.mark.parametrize(("text", "tool", "arguments"), USES)
@pytest.mark.proves("D-17")
def test_we_are_killed_and_no_process_is_left(
    project: RealProject, text: str, tool: str, arguments: dict[str, str]
) -> None:
    mark = new_mark()
    seen: set[int] = set()
    file = project.write("agent.yaml", f"name: demo\n{text}")
    kill_parent_after_call(file, tool, arguments, env={MARK: mark}, meanwhile=lambda: seen.update(pids_with_mark(mark)))
    assert len(seen) > 2
    assert not wait_until_none(mark)


@pytest.mark.proves("000:US5-2", "000:FR-023", "D-15", "D-13")
@async_test(START_SECONDS)
async def test_a_server_killed_in_a_call_fails_that_call_and_is_there_for_the_next(project: RealProject) -> None:
    mark = new_mark()
    started = asyncio.Event()
    async with project.open_server(EVERYTHING, {MARK: mark}) as server:
        await server.connect()
        call = asyncio.create_task(
            server.call(
                "trigger-long-running-operation",
                {"duration": 60, "steps": 300},
                on_progress=lambda *_: started.set(),
            )
        )
        await started.wait()
        for pid in pids_with_mark(mark):
            # The death of one of them may end another.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        lost = await call
        assert not lost.success
        assert "everything" in str(lost.error)
        assert "signal 9" in str(lost.error)
        assert (await server.call_tool("echo", message="back")).text == "Echo: back"
    assert not wait_until_none(mark)
