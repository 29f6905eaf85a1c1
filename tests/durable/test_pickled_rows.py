"""A row of the durable database marked as a pickle is not loaded, and its run is reported as damaged."""

from __future__ import annotations

import asyncio
import base64
import pickle
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from cli.running_command import list_runs, start_command, wait_model_requests
from durable.crash_cases import wait_ended
from gateway.gateway_process import run_gateway_process, write_gateway_file

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

SECONDS = 150.0
ROWS = (
    ("workflow_input", "inputs", "py_pickle"),
    ("workflow_input", "inputs", "another"),
    ("workflow_input", "inputs", "holodeck_json"),
    ("operation_outputs", "output", "py_pickle"),
    ("operation_outputs", "output", "another"),
    ("operation_outputs", "error", "py_pickle"),
)
"""What holds the pickle, and the form that the row says it is in."""
ENDED_ROWS = (("workflow_output", "output"), ("workflow_output", "error"), ("workflow_input", "inputs"))


class Attack:
    """An object that makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._trace,)


def poison(database: Path, table: str, column: str, form: str, trace: Path) -> None:
    """Have the oldest row of a table hold a pickle, in a column and under the name of a form."""
    payload = base64.b64encode(pickle.dumps(Attack(trace))).decode()
    oldest = f"WHERE rowid = (SELECT MIN(rowid) FROM {table})"
    form_table = "operation_outputs" if table == "operation_outputs" else "workflow_status"
    with closing(sqlite3.connect(database)) as connection, connection:
        if column in ("output", "error"):
            connection.execute(f"UPDATE {table} SET output = NULL, error = NULL {oldest}")
        changed = connection.execute(f"UPDATE {table} SET {column} = ? {oldest}", (payload,)).rowcount
        (work_id,) = connection.execute(f"SELECT workflow_uuid FROM {table} {oldest}").fetchone()
        connection.execute(
            f"UPDATE {form_table} SET serialization = ? WHERE workflow_uuid = ?",
            (form, work_id),
        )
        assert changed == 1


@pytest.mark.proves("D-32")
@pytest.mark.parametrize(("table", "column", "form"), ROWS)
@async_test(SECONDS)
async def test_a_pickle_in_the_work_file_is_not_run_and_its_response_fails(
    tmp_path: Path, table: str, column: str, form: str
) -> None:
    never, trace = asyncio.Event(), tmp_path / "run"
    async with FaultyMCPServer() as mcp, ScriptedModel(call("echo", text="hi"), [wait(never)]).serve() as model:
        tools = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": mcp.url}
        file = write_gateway_file(tmp_path, model.url, mcp_servers=[tools], background={"durable": True})
        async with run_gateway_process(file) as first:
            status, begun, _ = await first.create_response(background=True)
            assert status == 200, begun
            await wait_model_requests(model, 2)
            first.stop(signal.SIGKILL)
            await first.wait_exit()
        poison(next(tmp_path.rglob("*.work")), table, column, form, trace)  # noqa: ASYNC240
        async with run_gateway_process(file) as second:
            found = await wait_ended(second, begun["id"])
            second.stop()
            await second.wait_exit()
        # A step that cannot be read is told in the log only.
        told = found["error"]["message"] + "".join(second.stderr_lines)
        assert (found["status"], "damaged" in told) == ("failed", True), found["error"]
        assert len(model.received) == 2, "no request was sent to the model"
        assert len(mcp.calls()) == 1
    assert not trace.exists()


@pytest.mark.proves("D-32")
@pytest.mark.parametrize(("table", "column"), ENDED_ROWS)
@async_test(SECONDS)
async def test_a_pickle_in_the_runs_of_a_user_is_not_run_and_the_others_are_listed(
    tmp_path: Path, table: str, column: str
) -> None:
    project, trace = AgentProject(tmp_path), tmp_path / "run"
    async with serve_scripted(say("one"), [wait(asyncio.Event())]) as model:
        project.write(model)
        async with start_command(project, "run", "--durable", "First") as run:
            first = await run.wait_run_id()
            await run.wait_exit()
        async with start_command(project, "run", "--durable", "Second") as run:
            second = await run.wait_run_id()
            await wait_model_requests(model, 2)
            await run.wait_exit(signal.SIGKILL)
        database = next(tmp_path.rglob("runs.db"))  # noqa: ASYNC240
        poison(database, table, column, "py_pickle", trace)
        shown = await project.run_holodeck("runs", "show", first)
        assert (shown.returncode, "Traceback" in shown.stderr) == (1, False)
        assert f"What is kept of {first} is damaged" in " ".join(shown.stderr.split())
        assert second in {run["id"] for run in await list_runs(project)}
    assert not trace.exists()
