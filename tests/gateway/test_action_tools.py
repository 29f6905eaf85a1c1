"""Shells, patches and computers that the client runs: functions for the model, items of their own for the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseComputerToolCall,
    ResponseFunctionShellToolCall,
)
from openai.types.responses.response_output_item import LocalShellCall

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, say

PNG = "data:image/png;base64,iVBORw0KGgo="
PREVIEW = {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "browser"}


def output_texts(request: dict[str, Any]) -> list[Any]:
    """What the model has received as outputs of its calls."""
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def offered(request: dict[str, Any]) -> dict[str, Any]:
    """The functions that the model was offered, by name."""
    return {tool["function"]["name"]: tool["function"] for tool in request["tools"]}


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_shell_call_is_parsed_by_the_stock_client_and_answered_with_its_output(tmp_path: Path) -> None:
    commands = ["ls", "cat nothing", "sleep 99"]
    model = ScriptedModel(call("shell", commands=commands, timeout_ms=900), say("One file."))
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        skill = {"name": "lint", "description": "Checks code.", "path": "skills/lint"}
        tool: Any = {"type": "shell", "environment": {"type": "local", "skills": [skill]}}
        first = await client.responses.create(model=MODEL, input="Look", tools=[tool])
        (called,) = first.output
        assert isinstance(called, ResponseFunctionShellToolCall)
        assert (called.action.commands, called.action.timeout_ms, called.status) == (commands, 900, "completed")
        results = [
            {"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "", "stderr": "no such file\n", "outcome": {"type": "exit", "exit_code": 1}},
            {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
        ]
        output: Any = {"type": "shell_call_output", "call_id": called.call_id, "output": results}
        second = await client.responses.create(model=MODEL, input=[output], tools=[tool], previous_response_id=first.id)
        assert second.output_text == "One file."
        function = offered(gateway.model_requests[0])["shell"]
        assert function["parameters"]["required"] == ["commands"]
        assert "lint in skills/lint: Checks code." in function["description"]
        (text,) = output_texts(gateway.model_requests[1])
        assert text == (
            "Command 1:\na.txt\nExit code: 0\n\n"
            "Command 2:\nStandard error:\nno such file\nExit code: 1\n\n"
            "Command 3:\nThe command was stopped: it took too long."
        )


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_patch_is_parsed_by_the_stock_client_and_a_failed_one_is_told_to_the_model(tmp_path: Path) -> None:
    steps = [
        call("apply_patch", type="create_file", path="a", diff="+hi"),
        call("apply_patch", type="delete_file", path="b"),
    ]
    async with run_gateway(tmp_path, ScriptedModel(steps, say("Half done."))) as gateway:
        client = await gateway.openai_client()
        tools: Any = [{"type": "apply_patch"}]
        first = await client.responses.create(
            model=MODEL, input="Edit", tools=tools, tool_choice={"type": "apply_patch"}
        )
        create, delete = first.output
        assert isinstance(create, ResponseApplyPatchToolCall)
        assert isinstance(delete, ResponseApplyPatchToolCall)
        assert create.operation.model_dump() == {"type": "create_file", "path": "a", "diff": "+hi"}
        assert delete.operation.model_dump() == {"type": "delete_file", "path": "b"}
        answers: Any = [
            {"type": "apply_patch_call_output", "call_id": create.call_id, "status": "completed"},
            {"type": "apply_patch_call_output", "call_id": delete.call_id, "status": "failed", "output": "Not there."},
        ]
        await client.responses.create(model=MODEL, input=answers, tools=tools, previous_response_id=first.id)
        assert output_texts(gateway.model_requests[1]) == ["The change is made.", "Error: Not there."]
        choice = gateway.model_requests[0]["tool_choice"]
        assert choice == {"type": "function", "function": {"name": "apply_patch"}}


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("key", ["call_id", "id"])
@async_test(30)
async def test_the_output_of_a_local_shell_names_its_call_in_either_way(tmp_path: Path, key: str) -> None:
    model = ScriptedModel(call("local_shell", command=["ls", "-l"], working_directory="/tmp"), say("Empty."))
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        tools: Any = [{"type": "local_shell"}]
        first = await client.responses.create(model=MODEL, input="Look", tools=tools)
        (called,) = first.output
        assert isinstance(called, LocalShellCall)
        assert (called.action.command, called.action.env, called.action.type) == (["ls", "-l"], {}, "exec")
        assert called.action.working_directory == "/tmp"
        output: Any = {"type": "local_shell_call_output", key: called.call_id, "output": "total 0"}
        await client.responses.create(model=MODEL, input=[output], tools=tools, previous_response_id=first.id)
        assert output_texts(gateway.model_requests[1]) == ["total 0"]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("kind", ["computer", "computer_use_preview"])
@async_test(30)
async def test_a_computer_gets_actions_and_the_model_sees_its_screenshot(tmp_path: Path, kind: str) -> None:
    click = {"type": "click", "x": 3, "y": 4, "button": "left"}
    actions: dict[str, Any] = {"actions": [click, {"type": "wait"}]} if kind == "computer" else {"action": click}
    model = ScriptedModel(call("computer", **actions), say("Clicked."))
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        tools: Any = [{"type": "computer"} if kind == "computer" else PREVIEW]
        choice: Any = {"type": kind}
        first = await client.responses.create(model=MODEL, input="Click", tools=tools, tool_choice=choice)
        (called,) = first.output
        assert isinstance(called, ResponseComputerToolCall)
        assert called.pending_safety_checks == []
        if kind == "computer":
            assert [each.type for each in called.actions or ()] == ["click", "wait"]
        else:
            assert called.action is not None
            assert called.action.model_dump(exclude_none=True) == click
            assert (
                "800 pixels wide and 600 high (browser)"
                in offered(gateway.model_requests[0])["computer"]["description"]
            )
        answer: Any = {
            "type": "computer_call_output",
            "call_id": called.call_id,
            "output": {"type": "computer_screenshot", "image_url": PNG},
            "acknowledged_safety_checks": [{"id": "sc_1", "code": "malicious", "message": "Careful."}],
        }
        await client.responses.create(model=MODEL, input=[answer], tools=tools, previous_response_id=first.id)
        assert PNG in str(gateway.model_requests[1]["messages"][2:])


@pytest.mark.proves("D-25", "D-28")
@async_test(30)
async def test_action_calls_are_streamed_stored_listed_and_taken_back_like_others(tmp_path: Path) -> None:
    calls = [
        call("shell", commands=["ls"]),
        call("local_shell", command=["ls"]),
        call("apply_patch", type="update_file", path="a", diff="@@\n-a\n+b"),
        call("computer", actions=[{"type": "screenshot"}]),
    ]
    kinds = ["shell_call", "local_shell_call", "apply_patch_call", "computer_call"]
    tools = [{"type": kind} for kind in ("shell", "local_shell", "apply_patch", "computer")]
    async with run_gateway(tmp_path, ScriptedModel(calls, say("Done."), say("Done."), chunk=5)) as gateway:
        body = {"model": MODEL, "input": "Go", "tools": tools, "stream": True}
        events = await gateway.stream("/v1/responses", body)
        first = events[-1]["response"]
        assert [item["type"] for item in first["output"]] == kinds
        added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
        assert [{**item, "status": "completed"} for item in added] == first["output"]
        replayed = await gateway.stream(f"/v1/responses/{first['id']}?stream=true")
        assert [event["type"] for event in replayed] == [event["type"] for event in events]
        _, stored = await gateway.send("GET", f"/v1/responses/{first['id']}")
        assert stored["output"] == first["output"]
        results: list[dict[str, Any]] = [
            {"output": [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
            {"output": "x"},
            {"status": "completed", "output": "x"},
            {"output": {"type": "computer_screenshot", "image_url": PNG}},
        ]
        answers = [
            {"type": f"{item['type']}_output", "call_id": item["call_id"], **result}
            for item, result in zip(first["output"], results, strict=True)
        ]
        follow = {"model": MODEL, "input": answers, "tools": tools, "previous_response_id": first["id"]}
        status, second = await gateway.send("POST", "/v1/responses", follow)
        assert status == 200, second
        go = {"role": "user", "content": "Go"}
        again = {"model": MODEL, "input": [go, *first["output"], *answers], "tools": tools}
        status, third = await gateway.send("POST", "/v1/responses", again)
        assert status == 200, third
        assert gateway.model_requests[1]["messages"] == gateway.model_requests[2]["messages"]
        _, listed = await gateway.send("GET", f"/v1/responses/{third['id']}/input_items?order=asc")
        assert [item["type"] for item in listed["data"]][1:] == [*kinds, *(f"{kind}_output" for kind in kinds)]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"commands": "ls"}', "do not fit the tool: commands:"),
        ('{"commands": ["ls"', "are not valid JSON"),
        ("[]", "must be a JSON object"),
    ],
)
@async_test(30)
async def test_arguments_that_are_no_action_go_back_to_the_model_as_an_error(
    tmp_path: Path, arguments: str, reason: str
) -> None:
    model = ScriptedModel(call_raw("shell", arguments), call("shell", commands=["ls"]))
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        first = await client.responses.create(model=MODEL, input="Look", tools=[{"type": "shell"}])
        failed, called = first.output
        assert (failed.type, called.type) == ("mcp_call", "shell_call")
        assert failed.type == "mcp_call"
        assert (failed.status, failed.name) == ("failed", "shell")
        (text,) = output_texts(gateway.model_requests[1])
        assert text.startswith(f"Error: The arguments {reason}")


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_turn_may_mix_a_shell_a_wrong_patch_and_a_tool_of_the_gateway(tmp_path: Path) -> None:
    mixed = [call("shell", commands=["ls"]), call("apply_patch", type="rename"), call("add", a=1, b=2)]
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(mixed, say("All.")), mcp={"sums": server}) as gateway,
    ):
        tools = [{"type": "shell"}, {"type": "apply_patch"}]
        body = {"model": MODEL, "input": "Go", "tools": tools}
        _, first = await gateway.send("POST", "/v1/responses", body)
        (called,) = first["output"]
        assert called["type"] == "shell_call"
        assert not server.calls()
        result = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
        answer = {"type": "shell_call_output", "call_id": called["call_id"], "output": result}
        follow = {**body, "input": [answer], "previous_response_id": first["id"]}
        status, second = await gateway.send("POST", "/v1/responses", follow)
        assert status == 200, second
        assert [(item["type"], item["status"]) for item in second["output"]] == [
            ("mcp_call", "failed"),
            ("mcp_call", "completed"),
            ("message", "completed"),
        ]
        shell, patch, add = output_texts(gateway.model_requests[1])
        assert (shell, add) == ("a\nExit code: 0", "3")
        assert "rename" in patch


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("tool", "param", "words"),
    [
        ({"type": "shell", "environment": {"type": "container_auto"}}, "tools[0].environment.type", "no containers"),
        (
            {"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}},
            "tools[0].environment.type",
            "your program runs the commands",
        ),
        ({"type": "computer_use_preview"}, "tools[0].display_width", "Missing required parameter"),
        ({"type": "apply_patch", "allowed_callers": ["programmatic"]}, "tools[0].allowed_callers", "'direct'"),
    ],
)
@async_test(30)
async def test_what_needs_a_container_or_lacks_a_field_is_refused(
    tmp_path: Path, tool: dict[str, Any], param: str, words: str
) -> None:
    async with run_gateway(tmp_path) as gateway:
        status, refused = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": [tool]})
        assert (status, refused["error"]["param"]) == (400, param)
        assert words in refused["error"]["message"]
