"""Ctrl-C, and again, and again: each time a bit less is waited for, and never is there a traceback."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from pty_terminal import CTRL_C, TypingTerminal

from holodeck.cli.ctrl_c import EXIT_INTERRUPTED
from holodeck.testing.mcp.journal import Journal
from holodeck.testing.model.script import call

WORK = """
import asyncio, sys, time
from holodeck.cli.interruptible import run_interruptible

def say(words):
    print(words, flush=True)

async def busy():
    while True:
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        await asyncio.sleep(0)

async def work():
    beside = asyncio.create_task(busy())
    await asyncio.sleep(0)
    say("working")
    try:
        await asyncio.Event().wait()
    finally:
        say("leaving")
        try:
            await asyncio.Event().wait()
        finally:
            say("left")

async def held():
    say("working")
    while True:
        pass

try:
    run_interruptible({"busy": work, "held": held}[sys.argv[1]]())
except KeyboardInterrupt:
    say("interrupted")
"""

PRESSED = """
import os, signal, sys, threading, time

def press():
    os.kill(os.getpid(), signal.SIGINT)

def go_on():
    while True:
        time.sleep(0.001)
        press()

class Press:
    def find_spec(self, name, path=None, target=None):
        if name == "{name}":
            if {is_blocked}:
                threading.Thread(target=go_on, daemon=True).start()
            press()

sys.meta_path.insert(0, Press())
"""


@asynccontextmanager
async def working(how: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WORK, how), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def says(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


@async_test(60)
async def test_a_press_in_the_midst_of_a_task_leaves_in_order() -> None:
    async with working("busy") as process:
        for words in ("working", "leaving"):
            assert await says(process) == words
            process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert out.decode().split() == ["left", "interrupted"]
    assert err == b""


@async_test(60)
async def test_work_that_holds_the_loop_is_left_at_the_third_press() -> None:
    async with working("held") as process:
        assert await says(process) == "working"
        while process.returncode is None:  # two presses that come at once are one
            process.send_signal(signal.SIGINT)
            await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=0.1)
        assert process.stdout is not None
        was_interrupted = b"interrupted" in await process.stdout.read()
        assert was_interrupted or process.returncode == EXIT_INTERRUPTED, (
            "the second: one more press, as it was leaving"
        )


@async_test(60)
async def test_a_job_that_ignores_sigint_goes_on() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import sys\n{WORK}"
    ended = ignoring.replace("await asyncio.Event().wait()", "sys.stdin.readline(); return", 1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ended, "busy"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert await says(process) == "working"
    process.send_signal(signal.SIGINT)
    assert process.stdin is not None
    process.stdin.write(b"go on\n")
    assert await says(process) == "leaving"
    process.kill()
    await process.wait()


@pytest.mark.parametrize("more", [1, 3])
@async_test(60)
async def test_an_impatient_person_gets_no_traceback_and_leaves_no_server(tmp_path: Path, more: int) -> None:
    project = AgentProject(tmp_path)
    async with serve_scripted(call("slow", seconds=600)) as model:
        project.write(model, project.npx_server("calc"))
        async with TypingTerminal("run", "Go", cwd=project.path, env=project.env) as terminal:
            await Journal(project.journal).received("tools/call", within=30)
            for _ in range(1 + more):
                terminal.type_text(CTRL_C)
            assert await terminal.wait_exit() in {130, -signal.SIGINT}, "the second: Python itself was already leaving"
            assert terminal.has_echo, "also after an exit that was forced"
            assert "Traceback" not in terminal.text
    await project.wait_servers_gone()


@pytest.mark.parametrize("is_blocked", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "click",
        "holodeck.cli.output.stdout_guard",
        "holodeck.cli.commands.run",
        "asyncio.unix_events",
        "holodeck.engine",
    ],
)
@async_test(60)
async def test_a_press_while_a_command_still_starts_is_no_traceback(
    tmp_path: Path, name: str, is_blocked: bool
) -> None:
    project = AgentProject(tmp_path)
    project.write(None)
    (tmp_path / "sitecustomize.py").write_text(PRESSED.format(name=name, is_blocked=is_blocked))
    project.env["PYTHONPATH"] = str(tmp_path)
    done = await project.run_holodeck("run", "Go")
    assert done.returncode == EXIT_INTERRUPTED
    assert done.stderr.strip() in {"Stopped.", ""}
