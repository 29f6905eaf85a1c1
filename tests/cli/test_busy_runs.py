"""Durable runs while another process has the file in which they are kept: the person hears what is waited for."""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from agents import Project, scripted
from aio import aio
from cli.durable_run import begun

from holodeck.testing import say

SECONDS = 120.0
WAITING = r"Waiting for \S+runs.db, to which another process is writing, "


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@aio(SECONDS)
async def test_a_run_says_that_it_waits_for_another_writer(project: Project) -> None:
    async with scripted(say("One."), say("Two."), say("Three.")) as model:
        project.write(model)
        assert (await project.holodeck("run", "--durable", "Go")).stdout == "One.\n"
        (database,) = project.path.parent.rglob("runs.db")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with begun(project, "run", "--durable", "Go") as run:
                await run.says(f"{WAITING}for up to 10 s")
                other.execute("COMMIT")
                assert (await run.ends())[:2] == (0, "Two.\n")
        with (database.parent / "runs.door").open("rb+") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            async with begun(project, "run", "--durable", "Go") as run:
                await run.says(f"{WAITING}until it is done")
                fcntl.flock(door, fcntl.LOCK_UN)
                assert (await run.ends())[:2] == (0, "Three.\n")


@aio(SECONDS)
async def test_a_run_does_not_wait_for_ever(project: Project) -> None:
    async with scripted(say("One.")) as model:
        project.write(model)
        assert (await project.holodeck("run", "--durable", "Go")).returncode == 0
        (database,) = project.path.parent.rglob("runs.db")
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with begun(project, "run", "--durable", "Go") as run:
                code, out, err = await run.ends()
        assert (code, out) == (1, "")
        assert "another process keeps it locked. Stop that one." in err
        assert "Traceback" not in err
