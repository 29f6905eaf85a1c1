"""A server that is not there: named at the end of a run, and the end of one that cannot do without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agents import Project, at, scripted
from aio import aio
from engine.scene import agent_with, server

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

NOWHERE = "http://127.0.0.1:9/mcp"
CASES = "test_cases: [{name: one, input: Hi, ground_truth: Hello}]\n"


@aio(60)
async def test_a_run_names_at_its_end_which_servers_were_missing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    async with scripted(say("Hello."), say("Hello.")) as model, FaultyMCPServer() as calc:
        project.write(model, at("files", NOWHERE), at("calc", calc.url))
        done = await project.holodeck("run", "Hi")
        data = await project.holodeck("run", "--json", "Hi")
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert done.stderr.splitlines()[-1].endswith("; missing servers: files")
    (missing,) = json.loads(data.stdout)["missing_servers"]
    assert (missing["name"], missing["required"]) == ("files", False)
    assert "cannot be reached" in missing["reason"]


@aio(60)
async def test_nothing_is_missing_when_every_server_is_there(tmp_path: Path) -> None:
    project = Project(tmp_path)
    async with scripted(say("Hello."), say("Hello.")) as model, FaultyMCPServer() as calc:
        project.write(model, at("calc", calc.url, more=", required: true"))
        done = await project.holodeck("run", "Hi")
        data = await project.holodeck("run", "--json", "Hi")
    assert "missing" not in done.stderr
    assert json.loads(data.stdout)["missing_servers"] == []


@pytest.mark.parametrize(
    ("command", "stdin"), [(["run", "Hi"], ""), (["chat"], "Hi\n"), (["test"], ""), (["run", "--durable", "Hi"], "")]
)
@aio(60)
async def test_without_a_required_server_no_model_is_asked(tmp_path: Path, command: list[str], stdin: str) -> None:
    project = Project(tmp_path)
    async with scripted(say("Hello.")) as model, FaultyMCPServer() as calc:
        project.write(model, at("calc", calc.url), at("files", NOWHERE, more=", required: true"), more=CASES)
        done = await project.holodeck(*command, stdin=stdin)
        assert not model.received
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "The server 'files' is required and missing. Server 'files' (connect): " in said
    assert "Traceback" not in said


@aio
async def test_a_required_server_that_dies_during_a_run_does_not_end_it(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="a"), call("echo", text="b"), say("Done."))
    async with (
        FaultyMCPServer() as calc,
        agent_with(tmp_path, model, [server("calc", calc.url, required=True)]) as agent,
    ):
        await agent.mcp.specs()
        calc.misbehave("dies-mid-call", on="tools/call:echo", times=1)
        result = await agent.run("Go")
    assert (result.status, result.text) == ("completed", "Done.")


@aio
async def test_in_python_the_result_names_what_was_missing(tmp_path: Path) -> None:
    model = ScriptedModel(say("Hello."))
    async with agent_with(tmp_path, model, [server("files", NOWHERE), server("db", NOWHERE, required=True)]) as agent:
        result = await agent.run("Hi")
    assert result.error is not None
    assert (result.status, result.error.code, result.turns) == ("failed", "server_unavailable", 1)
    assert [(one.name, one.required) for one in result.missing_servers] == [("files", False), ("db", True)]
    assert not model.requests
