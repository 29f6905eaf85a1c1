"""Durable runs with a newer Python on an older SQLite, as images of Python 3.12 and later on Debian 12 are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from agent_project import AgentProject, serve_scripted
from async_tests import async_test

from holodeck.testing.model.script import call, say

AS_PYTHON_312 = """
from dbos._sys_db_sqlite import sqlite_migrations as steps
steps[:] = [step.replace("strftime('%s','now')", "unixepoch('subsec')") for step in steps]
"""


@async_test(60)
async def test_runs_are_stored_with_an_sqlite_that_has_no_fractions_of_a_second(tmp_path: Path) -> None:
    """The tables of DBOS are then those that it makes with Python 3.12; a SQLite since 3.42 has nothing to tell."""
    project = AgentProject(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(AS_PYTHON_312)
    project.env["PYTHONPATH"] = str(tmp_path / "site")
    async with serve_scripted(call("add", a=1, b=2), say("It is 3.")) as model:
        project.write(model, project.npx_server("calc"))
        done = await project.run_holodeck("run", "--durable", "Add")
        assert (done.returncode, done.stdout) == (0, "It is 3.\n"), done.stderr
    listed = await project.run_holodeck("runs", "list")
    assert "completed" in listed.stdout
    file = project.path.parent / ".local" / "state" / "holodeck" / "runs.db"
    with closing(sqlite3.connect(file)) as database:
        (schema,) = database.execute("SELECT sql FROM sqlite_master WHERE name = 'application_versions'").fetchone()
    assert "unixepoch('subsec')" in schema, "it was not made as with Python 3.12"
