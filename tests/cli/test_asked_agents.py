"""`holodeck run` with an agent file that names another one among its tools."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from agent_project import AgentProject, messages_of_turn, serve_scripted, server_at
from async_tests import async_test
from cli.running_command import start_command, wait_model_requests

from holodeck.testing import FaultyMCPServer, call, say, spend, wait
from holodeck.testing.model.scripted import ScriptedServer

ASK = "  - {type: agent, name: ask_helper, file: team/helper.yaml}"


def write_agents(folder: Path, model: ScriptedServer, *tools: str) -> AgentProject:
    """A project whose agent asks a helper with these tools; both have the same model."""
    project = AgentProject(folder)
    project.write(model, ASK)
    (project.path / "team").mkdir()
    text = (project.path / "agent.yaml").read_text().replace("name: demo", "name: helper\ndescription: Adds numbers")
    (project.path / "team" / "helper.yaml").write_text(text.replace(ASK, "\n".join(tools) or "  []"))
    return project


@async_test
async def test_an_agent_asks_another_one_of_a_file(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        turns = (
            [call("ask_helper", question="1 + 2?"), spend(10, 1)],
            [call("add", a=1, b=2), spend(20, 2)],
            [say("It is 3."), spend(30, 3)],
            [say("Three."), spend(40, 4)],
        )
        async with serve_scripted(*turns) as model:
            project = write_agents(tmp_path, model, server_at("calc", server.url))
            done = await project.run_holodeck("run", "How much?")
            assert (done.returncode, done.stdout) == (0, "Three.\n"), done.stderr
            assert "> ask_helper" in done.stderr
            assert "> helper > add  a=1, b=2" in done.stderr
            assert "2 turns, 1 tool call, 110 tokens" in done.stderr
            assert messages_of_turn(model, 1)[-1]["content"] == "1 + 2?"
            assert model.received[0].json["tools"][0]["function"]["description"].endswith("The agent: Adds numbers")


@async_test
async def test_an_approval_of_an_agent_that_is_asked_needs_a_person(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        turns = (call("ask_helper", question="1 + 2?"), call("add", a=1, b=2), say("I may not."), say("It may not."))
        async with serve_scripted(*turns) as model:
            project = write_agents(tmp_path, model, server_at("calc", server.url, more=", approval: always"))
            done = await project.run_holodeck("run", "--json", "How much?")
            assert json.loads(done.stdout)["text"] == "It may not."
            assert "approv" in messages_of_turn(model, 2)[-1]["content"]
        assert server.calls("add") == []


@async_test
async def test_the_events_of_an_agent_that_is_asked_are_inside_those_of_its_caller(tmp_path: Path) -> None:
    async with serve_scripted(call("ask_helper", question="Hi"), say("Hello."), say("It greets.")) as model:
        project = write_agents(tmp_path, model)
        done = await project.run_holodeck("run", "--events", "Greet")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    nested = [each for each in events if each["type"] == "agent.progressed"]
    assert {each["agent"] for each in nested} == {"helper"}
    assert [each["event"]["text"] for each in nested if each["event"]["type"] == "text.added"] == ["Hello."]


@async_test(240)
async def test_a_durable_run_goes_on_behind_the_answer_of_an_agent(tmp_path: Path) -> None:
    turns = (
        [call("ask_helper", question="Hi"), spend(1, 0)],
        [say("Hello."), spend(10, 0)],
        wait(asyncio.Event()),
        [say("It greets."), spend(100, 0)],
    )
    async with serve_scripted(*turns) as model:
        project = write_agents(tmp_path, model)
        async with start_command(project, "run", "--durable", "Greet") as first:
            await wait_model_requests(model, 3)
            await first.wait_exit(signal.SIGKILL)
        done = await project.run_holodeck("runs", "resume", "--last", "--json")
    result = json.loads(done.stdout)
    assert (result["text"], result["usage"]["total_tokens"]) == ("It greets.", 111)


@async_test
async def test_what_a_script_approves_of_an_agent_that_is_asked_is_shown_with_its_name(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        turns = (call("ask_helper", question="1 + 2?"), call("add", a=1, b=2), say("It is 3."), say("Three."))
        async with serve_scripted(*turns) as model:
            project = write_agents(tmp_path, model, server_at("calc", server.url, more=", approval: {always: [add]}"))
            done = await project.run_holodeck("run", "--approve", "calc.*", "How much?")
            assert (done.returncode, done.stdout) == (0, "Three.\n"), done.stderr
        assert len(server.calls("add")) == 1
    assert "Approved by --approve, without a question: helper: calc.add" in done.stderr
