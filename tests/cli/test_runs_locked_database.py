"""Durable runs while another process has locked their database: the command says what it waits for."""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from cli.running_command import start_command

from holodeck.testing import say

SECONDS = 120.0
WAITING = r"Waiting for \S+runs.db, to which another process is writing, "


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


@async_test(SECONDS)
async def test_a_run_says_that_it_waits_for_another_writer(project: AgentProject) -> None:
    async with serve_scripted(say("One."), say("Two."), say("Three.")) as model:
        project.write(model)
        assert (await project.run_holodeck("run", "--durable", "Go")).stdout == "One.\n"
        (database,) = project.path.parent.rglob("runs.db")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with start_command(project, "run", "--durable", "Go") as run:
                await run.wait_stderr(f"{WAITING}for up to 10 s")
                other.execute("COMMIT")
                assert (await run.wait_exit())[:2] == (0, "Two.\n")
        with (database.parent / "runs.door").open("rb+") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            async with start_command(project, "run", "--durable", "Go") as run:
                await run.wait_stderr(f"{WAITING}until it is done")
                fcntl.flock(door, fcntl.LOCK_UN)
                assert (await run.wait_exit())[:2] == (0, "Three.\n")


@async_test(SECONDS)
async def test_a_run_does_not_wait_for_ever(project: AgentProject) -> None:
    async with serve_scripted(say("One.")) as model:
        project.write(model)
        assert (await project.run_holodeck("run", "--durable", "Go")).returncode == 0
        (database,) = project.path.parent.rglob("runs.db")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with start_command(project, "run", "--durable", "Go") as run:
                code, out, err = await run.wait_exit()
        assert (code, out) == (1, "")
        assert "another process keeps it locked. Stop that one." in err
        assert "Traceback" not in err
