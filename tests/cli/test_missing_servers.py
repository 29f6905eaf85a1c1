"""A server that is not there: named at the end of a run, and the end of one that cannot do without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agent_project import AgentProject, serve_scripted, server_at
from async_tests import async_test
from engine.scripted_agent import open_agent, server_entry

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

NOWHERE = "http://127.0.0.1:9/mcp"
CASES = "test_cases: [{name: one, input: Hi, ground_truth: Hello}]\n"


@async_test(60)
async def test_a_run_names_at_its_end_which_servers_were_missing(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with serve_scripted(say("Hello."), say("Hello."), say("Hello.")) as model, FaultyMCPServer() as calc:
        project.write(model, server_at("files", NOWHERE), server_at("calc", calc.url))
        done = await project.run_holodeck("run", "Hi")
        data = await project.run_holodeck("run", "--json", "Hi")
        other = project.path / "my agents" / "other.yaml"
        other.parent.mkdir()
        (project.path / "agent.yaml").rename(other)
        elsewhere = await project.run_holodeck("run", "my agents/other.yaml", "Hi")
    assert (done.returncode, done.stdout) == (0, "Hello.\n")
    assert done.stderr.splitlines()[-1].endswith("; missing servers: files")
    assert " To check it: holodeck mcp doctor files\n" in done.stderr
    assert " To check it: holodeck mcp doctor files -f 'my agents/other.yaml'\n" in elsewhere.stderr
    (missing,) = json.loads(data.stdout)["missing_servers"]
    assert (missing["name"], missing["required"]) == ("files", False)
    assert "cannot be reached" in missing["reason"]


@async_test(60)
async def test_a_run_says_why_a_server_that_hangs_at_its_start_is_missing(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    reason = "Server 'hang' (start): it did not answer within 1 s ('startup_timeout')."
    async with serve_scripted(say("Hello."), say("Hello.")) as model:
        project.write(model, project.npx_server("hang", "hangs-at-start", more=", startup_timeout: 1"))
        done = await project.run_holodeck("run", "Hi")
        data = await project.run_holodeck("run", "--json", "Hi")
        project.write(model, project.npx_server("hang", "hangs-at-start", more=", startup_timeout: 1, required: true"))
        failed = await project.run_holodeck("run", "Hi")
    assert f"hang is not available: {reason}" in done.stderr
    assert [missing["reason"] for missing in json.loads(data.stdout)["missing_servers"]] == [reason]
    assert f"The server 'hang' is required and missing. {reason}" in failed.stderr
    assert "Traceback" not in done.stderr + data.stderr + failed.stderr


@async_test(60)
async def test_a_cache_that_cannot_be_written_is_named_and_not_the_program(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with serve_scripted(say("Hello.")) as model:
        project.write(model, project.npx_server("calc"))
        project.env["XDG_CACHE_HOME"] = "/proc/none"
        done = await project.run_holodeck("run", "Hi")
    assert "the folder for npx cannot be written (No such file or directory: /proc/none" in done.stderr
    assert "Set XDG_CACHE_HOME to one that can." in done.stderr
    assert "is not on PATH" not in done.stderr


@async_test(60)
async def test_nothing_is_missing_when_every_server_is_there(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with serve_scripted(say("Hello."), say("Hello.")) as model, FaultyMCPServer() as calc:
        project.write(model, server_at("calc", calc.url, more=", required: true"))
        done = await project.run_holodeck("run", "Hi")
        data = await project.run_holodeck("run", "--json", "Hi")
    assert "missing" not in done.stderr
    assert json.loads(data.stdout)["missing_servers"] == []


@pytest.mark.parametrize(
    ("command", "stdin"), [(["run", "Hi"], ""), (["chat"], "Hi\n"), (["test"], ""), (["run", "--durable", "Hi"], "")]
)
@async_test(60)
async def test_without_a_required_server_the_model_gets_no_request(
    tmp_path: Path, command: list[str], stdin: str
) -> None:
    project = AgentProject(tmp_path)
    async with serve_scripted(say("Hello.")) as model, FaultyMCPServer() as calc:
        project.write(
            model, server_at("calc", calc.url), server_at("files", NOWHERE, more=", required: true"), more=CASES
        )
        done = await project.run_holodeck(*command, stdin=stdin)
        assert not model.received
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "The server 'files' is required and missing. Server 'files' (connect): " in said
    assert "Traceback" not in said


@async_test
async def test_a_required_server_that_dies_during_a_run_does_not_end_it(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="a"), call("echo", text="b"), say("Done."))
    async with (
        FaultyMCPServer() as calc,
        open_agent(tmp_path, model, [server_entry("calc", calc.url, required=True)]) as agent,
    ):
        await agent.mcp.specs()
        calc.misbehave("dies-mid-call", on="tools/call:echo", times=1)
        result = await agent.run("Go")
    assert (result.status, result.text) == ("completed", "Done.")


@async_test
async def test_in_python_the_result_names_what_was_missing(tmp_path: Path) -> None:
    model = ScriptedModel(say("Hello."))
    async with open_agent(
        tmp_path, model, [server_entry("files", NOWHERE), server_entry("db", NOWHERE, required=True)]
    ) as agent:
        result = await agent.run("Hi")
    assert result.error is not None
    assert (result.status, result.error.code, result.turns) == ("failed", "server_unavailable", 1)
    assert [(one.name, one.required) for one in result.missing_servers] == [("files", False), ("db", True)]
    assert not model.requests
