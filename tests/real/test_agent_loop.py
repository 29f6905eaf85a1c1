"""The loop over servers that others wrote: the model is scripted, everything behind it is real."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest
from agent_of_file import load_runner
from async_tests import async_test
from engine.scripted_agent import offered_tools, tool_outputs
from real.marked_processes import new_mark, pids_with_mark
from real.project import START_SECONDS, RealProject

from holodeck.models.items import FunctionCallOutput, ImageContent
from holodeck.testing import ScriptedModel, call, say

AGENT = """
name: demo
tools:
  - type: mcp
    name: everything
    description: d
    command: npx
    server: "@modelcontextprotocol/server-everything"
    env: {HOLODECK_TEST_MARK: "${MARKED}"}
  - type: mcp
    name: files
    description: d
    command: npx
    server: "@modelcontextprotocol/server-filesystem"
    config: {allowed_directories: ["${workspaceFolder}/data"]}
  - type: mcp
    name: memory
    description: d
    command: npx
    server: "@modelcontextprotocol/server-memory"
    env: {MEMORY_FILE_PATH: "${workspaceFolder}/memory.jsonl"}
"""


@pytest.mark.proves("000:US1-1", "004:US2-1", "004:SC-001", "004:SC-002")
@async_test(START_SECONDS)
async def test_three_turns_and_five_calls_at_once_over_three_real_servers(project: RealProject) -> None:
    project.write("data/note.txt", "the note")
    project.write("agent.yaml", AGENT)
    fact = {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    model = ScriptedModel(
        [
            call("echo", message="hello"),
            call("read_text_file", path=str(project.path / "data/note.txt")),
            call("create_entities", entities=[fact]),
            call("get-tiny-image"),
            call("read_text_file", path="/etc/hostname"),
        ],
        call("search_nodes", query="Ada"),
        say("done"),
    )
    async with load_runner(
        project.path / "agent.yaml", model=model, environ={"MARKED": "-"}, home=project.home
    ) as agent:
        result = await agent.run("go")
    assert (result.status, result.turns, result.tool_calls) == ("completed", 3, 6)
    assert {"echo", "read_text_file", "create_entities"} <= offered_tools(model.requests[0])
    outputs = tool_outputs(model.requests[1])
    assert list(outputs) == [f"call_{number}" for number in range(1, 6)], "answers keep the order of the calls"
    assert outputs["call_1"] == ("Echo: hello", False)
    assert outputs["call_2"] == ("the note", False)
    assert outputs["call_5"][1], "a path outside the allowed folders is refused by the server"
    answers = [item for item in model.requests[1].items if isinstance(item, FunctionCallOutput)]
    assert any(isinstance(part, ImageContent) for part in answers[3].content)
    assert "wrote programs" in tool_outputs(model.requests[2])["call_6"][0]


@pytest.mark.proves("000:US5-2", "000:SC-006", "004:EDGE-1")
@async_test(START_SECONDS)
async def test_a_real_server_killed_in_a_turn_is_a_tool_error_and_the_run_goes_on(
    project: RealProject,
) -> None:
    project.write("data/note.txt", "the note")
    project.write("agent.yaml", AGENT)
    mark = new_mark()
    model = ScriptedModel(
        call("trigger-long-running-operation", duration=30, steps=30),
        [call("read_text_file", path=str(project.path / "data/note.txt")), call("echo", message="again")],
        say("done"),
    )
    environ = {"MARKED": mark}
    async with load_runner(project.path / "agent.yaml", model=model, environ=environ, home=project.home) as agent:
        async for event in agent.stream("go"):
            if event.type == "tool.progressed":
                for pid in pids_with_mark(mark):
                    # A process may end because another of them was killed.
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
    text, is_error = tool_outputs(model.requests[1])["call_1"]
    assert is_error
    assert "everything" in text
    outputs = tool_outputs(model.requests[2])
    assert outputs["call_2"] == ("the note", False)
    assert outputs["call_3"] == ("Echo: again", False), "it is started anew for the next call"
