"""A call that runs as a task outlives the process that made it: the next one goes on polling the same task."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted, server_at
from async_tests import async_test
from cli.running_command import start_command
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.test_durable_runs import mcp_server_entry, wait_ended

from holodeck.testing import Era, FaultyMCPServer, Journal, ScriptedModel, call, say

SECONDS = 120.0  # two processes start, possibly on a busy machine
ERAS: tuple[Era, ...] = ("legacy", "modern")
DURABLE = {"durable": True}


def tool_outputs(received: Any) -> list[str]:
    """The results of tools that the model received with its latest turn."""
    return [each["content"] for each in received[-1].json["messages"] if each["role"] == "tool"]


@pytest.mark.parametrize(("era", "tool"), [("legacy", "task"), ("legacy", "optional_task"), ("modern", "task")])
@pytest.mark.proves("D-16", "D-32")
@async_test(SECONDS)
async def test_the_next_gateway_polls_the_task_of_a_killed_one(tmp_path: Path, era: Era, tool: str) -> None:
    model = ScriptedModel(call(tool, hold=True, text="the report"), say("done"))
    async with FaultyMCPServer(era=era) as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background=DURABLE)
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tasks/get")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        await mcp.end_tasks()
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
    assert found["status"] == "completed"
    assert tool_outputs(scripted.received) == ["the report"]
    assert len(mcp.calls()) == 1, "exactly one task was created"
    assert {each.params["taskId"] for each in mcp.requests if each.method == "tasks/get"} == {"task-1"}


@pytest.mark.proves("D-16", "D-32")
@async_test(SECONDS)
async def test_tasks_of_parallel_calls_are_each_gone_on_with(tmp_path: Path) -> None:
    both = [call("task", hold=True, text="one"), call("task", hold=True, text="two")]
    model = ScriptedModel(both, say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background=DURABLE)
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            count, polled = 0, set[str]()
            while polled != {"task-1", "task-2"}:
                count += 1
                polled = {each.params["taskId"] for each in await mcp.received("tasks/get", count=count)}
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        await mcp.end_tasks()
        async with run_gateway_process(file) as served:
            assert (await wait_ended(served, begun["id"]))["status"] == "completed"
    assert tool_outputs(scripted.received) == ["one", "two"]
    assert len(mcp.calls("task")) == 2


@pytest.mark.proves("D-16", "D-32")
@async_test(SECONDS)
async def test_a_task_that_its_server_has_forgotten_meanwhile_has_an_unknown_outcome(tmp_path: Path) -> None:
    model = ScriptedModel(call("task", hold=True), say("I will look first"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background=DURABLE)
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tasks/get")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        mcp.forget_tasks()
        async with run_gateway_process(file) as served:
            assert (await wait_ended(served, begun["id"]))["status"] == "completed"
    (told,) = tool_outputs(scripted.received)
    assert "does not know the task any more" in told
    assert "It is not known whether the call took effect." in told
    assert len(mcp.calls()) == 1


@pytest.mark.parametrize("era", ERAS)
@async_test(SECONDS)
async def test_cancelling_a_response_cancels_its_task(tmp_path: Path, era: Era) -> None:
    model = ScriptedModel(call("task", hold=True), say("never"))
    async with FaultyMCPServer(era=era) as mcp, model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background=DURABLE)
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tasks/get")
            await served.send("POST", f"/v1/responses/{begun['id']}/cancel")
            (cancelled,) = await mcp.received("tasks/cancel")
    assert cancelled.params["taskId"] == "task-1"


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_killed_run_at_a_terminal_goes_on_with_the_task_of_a_server_that_stores_it(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with serve_scripted(call("task", polls=30, text="the report"), say("done")) as model:
        project.write(model, project.npx_server("calc", tasks=tmp_path / "tasks.json"))
        async with start_command(project, "run", "--durable", "Do it") as first:
            await first.wait_run_id()
            await Journal(project.journal).received("tasks/get", within=30)
            await first.wait_exit(signal.SIGKILL)
        done = await project.run_holodeck("runs", "resume", "--last")
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert messages_of_turn(model, 1)[-1]["content"] == "the report"
    assert sum(each.method == "tools/call" for each in Journal(project.journal).requests) == 1
    assert len(Journal(project.journal).pids) == 2
    await project.wait_servers_gone()


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_a_run_that_is_left_with_ctrl_c_does_not_cancel_its_task(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with (
        serve_scripted(call("task", hold=True, text="the report"), say("done")) as model,
        FaultyMCPServer() as mcp,
    ):
        project.write(model, server_at("calc", mcp.url))
        async with start_command(project, "run", "--durable", "Do it") as first:
            await first.wait_run_id()
            await mcp.received("tasks/get")
            first.process.send_signal(signal.SIGINT)
            await first.wait_stderr("A call is under way")
            await first.wait_exit(signal.SIGINT)
        assert not [each for each in mcp.requests if each.method == "tasks/cancel"]
        await mcp.end_tasks()
        done = await project.run_holodeck("runs", "resume", "--last")
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
        assert messages_of_turn(model, 1)[-1]["content"] == "the report"
        assert len(mcp.calls()) == 1
