"""MCP servers behind `/v1/responses`, as seen by the client, the model and the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.wire.open_responses_contract import contract_problems, event_contract_problems

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GET_TIME = {
    "type": "function",
    "name": "get_time",
    "description": "The time.",
    "parameters": {"type": "object"},
    "strict": False,
}


def _declared(**more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "sums", "require_approval": "never", **more}


async def _ask(gateway: RunningGateway, **body: Any) -> dict[str, Any]:
    status, answer = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", **body})
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


def _types(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.proves("D-26", "D-25", "004:US1-2", "004:FR-004")
@async_test(30)
async def test_the_portable_mcp_output_follows_the_open_contract(tmp_path: Path) -> None:
    model = ScriptedModel(*[turn for _ in range(2) for turn in (call("add", a=1, b=2), say("3."))], chunk=2)
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, mcp_output="portable") as gateway,
    ):
        whole = await _ask(gateway)
        assert not contract_problems("ResponseResource", whole)
        assert _types(whole) == ["function_call", "function_call_output", "message"]
        assert whole["tools"] == []
        events = await gateway.stream("/v1/responses", {"model": MODEL, "input": "Go", "stream": True})
        for event in events:
            assert not event_contract_problems(event), event
        streamed = events[-1]["response"]
        assert _types(streamed) == _types(whole)
        status, stored = await gateway.send("GET", f"/v1/responses/{streamed['id']}")
        assert (status, stored) == (200, streamed)
        again = await gateway.stream(f"/v1/responses/{streamed['id']}?stream=true&starting_after=3")
        assert again == events[4:]


@pytest.mark.proves("D-26", "D-25")
@async_test(30)
async def test_a_declared_server_shows_in_openai_s_form_and_its_tools_are_listed_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), call("fail", message="no"), say("It failed."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, tools=[_declared(allowed_tools=["add", "fail"])])
        assert _types(first) == ["mcp_list_tools", "mcp_call", "message"]
        assert [tool["name"] for tool in first["output"][0]["tools"]] == ["add", "fail"]
        assert [tool["annotations"] for tool in first["output"][0]["tools"]] == [{}, {}], "the AI SDK takes no null"
        assert (first["output"][1]["output"], first["output"][1]["status"]) == ("3", "completed")
        assert [tool["function"]["name"] for tool in gateway.model_requests[0]["tools"]] == ["add", "fail"]
        second = await _ask(gateway, tools=[_declared()], previous_response_id=first["id"])
        assert _types(second) == ["mcp_call", "message"]
        assert second["output"][0]["status"] == "failed"
        assert second["output"][0]["error"]["type"] == "mcp_tool_execution_error"


@pytest.mark.proves("D-26", "D-23")
@pytest.mark.parametrize("rule", ["always", {"always": {"tool_names": ["add"]}}, {"never": {"tool_names": ["echo"]}}])
@async_test(30)
async def test_a_call_waits_for_approval_and_then_runs_with_exactly_its_arguments(tmp_path: Path, rule: Any) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), call("add", a=5, b=5), say("As you wish."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        tools = [_declared(require_approval=rule)]
        first = await _ask(gateway, tools=tools)
        assert (first["status"], _types(first)) == ("completed", ["mcp_list_tools", "mcp_approval_request"])
        assert not server.calls()
        approval_request = first["output"][1]
        yes = {"type": "mcp_approval_response", "approval_request_id": approval_request["id"], "approve": True}
        second = await _ask(gateway, tools=tools, previous_response_id=first["id"], input=[yes])
        assert _types(second) == ["mcp_call", "message"]
        assert second["output"][0]["approval_request_id"] == approval_request["id"]
        assert [one.params["arguments"] for one in server.calls("add")] == [{"a": 1, "b": 2}]
        third = await _ask(gateway, tools=tools, previous_response_id=second["id"], input="5 + 5?")
        no = {
            "type": "mcp_approval_response",
            "approval_request_id": third["output"][-1]["id"],
            "approve": False,
            "reason": "too large",
        }
        fourth = await _ask(gateway, tools=tools, previous_response_id=third["id"], input=[no])
        assert _types(fourth) == ["message"]
        assert len(server.calls("add")) == 1
        assert "too large" in gateway.model_requests[-1]["messages"][-1]["content"]
        status, error = await gateway.send(
            "POST",
            "/v1/responses",
            {"model": MODEL, "tools": tools, "previous_response_id": fourth["id"], "input": [yes]},
        )
        assert (status, error["error"]["type"]) == (400, "invalid_request")


@pytest.mark.proves("D-26")
@async_test(30)
async def test_a_tool_that_require_approval_exempts_runs_without_approval(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="hi"), say("hi"))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        rule = {"never": {"tool_names": ["echo"]}, "always": {"tool_names": ["add"]}}
        assert _types(await _ask(gateway, tools=[_declared(require_approval=rule)]))[1:] == ["mcp_call", "message"]


@pytest.mark.proves("D-23", "004:US2-4")
@async_test(30)
async def test_a_mixed_turn_waits_for_the_client_across_requests(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("get_time")], say("3, at noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        events = await gateway.stream(
            "/v1/responses", {"model": MODEL, "input": "Go", "tools": [GET_TIME], "stream": True}
        )
        assert events[-1]["type"] == "response.completed"
        first = events[-1]["response"]
        assert (first["status"], _types(first)) == ("requires_action", ["function_call"])
        assert first["output"][0]["name"] == "get_time"
        assert not server.calls()
        output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "noon"}
        second = await _ask(gateway, previous_response_id=first["id"], input=[output], tools=[GET_TIME])
        assert second["status"] == "completed"
        assert [one.params["arguments"] for one in server.calls()] == [{"a": 1, "b": 2}]
        outputs = {
            m["tool_call_id"]: m["content"] for m in gateway.model_requests[-1]["messages"] if m["role"] == "tool"
        }
        assert sorted(outputs.values()) == ["3", "noon"]
        status, error = await gateway.send(
            "POST", "/v1/responses", {"model": MODEL, "previous_response_id": first["id"], "input": "Never mind"}
        )
        assert (status, error["error"]["code"]) == (400, "missing_tool_output")


@pytest.mark.proves("D-23")
@async_test(30)
async def test_a_mixed_turn_waits_for_the_client_in_a_conversation(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("get_time")], say("3, at noon."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, conversation = await gateway.send("POST", "/v1/conversations", {})
        first = await _ask(gateway, conversation=conversation["id"], tools=[GET_TIME])
        assert (first["status"], _types(first)) == ("requires_action", ["function_call"])
        output = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "noon"}
        second = await _ask(gateway, conversation=conversation["id"], input=[output], tools=[GET_TIME])
        assert (second["status"], len(server.calls("add"))) == ("completed", 1)
        await _ask(gateway, conversation=conversation["id"], tools=[GET_TIME])
        assert len(server.calls("add")) == 1
        for request in gateway.model_requests[1:]:
            outputs = {m["tool_call_id"]: m["content"] for m in request["messages"] if m["role"] == "tool"}
            assert sorted(outputs.values()) == ["3", "noon"]


@pytest.mark.proves("D-23")
@async_test(30)
async def test_an_unstored_mixed_turn_runs_the_gateway_s_calls_at_once(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("get_time")])
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        response = await _ask(gateway, tools=[GET_TIME], store=False)
        assert response["status"] == "completed"
        assert len(server.calls("add")) == 1
        assert (await gateway.send("GET", f"/v1/responses/{response['id']}"))[0] == 404


@pytest.mark.proves("D-24")
@pytest.mark.parametrize(
    "narrowed",
    [
        {"tools": [_declared(allowed_tools=["echo"])]},
        {"tools": [_declared(allowed_tools={"tool_names": ["echo"]})]},
        {"tools": [_declared(allowed_tools={"read_only": True})]},
        {
            "tools": [_declared()],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "mcp", "server_label": "sums", "name": "echo"}],
            },
        },
    ],
)
@async_test(30)
async def test_a_tool_outside_the_allowed_ones_is_never_called(tmp_path: Path, narrowed: dict[str, Any]) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Then not."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        assert (await _ask(gateway, **narrowed))["status"] == "completed"
        assert not server.calls()
        tool_message = gateway.model_requests[1]["messages"][-1]
        assert (tool_message["role"], "add" in tool_message["content"]) == ("tool", True)


def _guarded(server: FaultyMCPServer, approval: Any) -> list[dict[str, Any]]:
    return [{"name": "sums", "type": "mcp", "description": "s", "url": server.url, "approval": approval}]


@pytest.mark.proves("D-26", "D-12")
@pytest.mark.parametrize("rule", ["always", {"always": ["ad*"], "never": ["echo"]}])
@async_test(30)
async def test_the_operator_s_approval_rule_applies_even_if_the_client_waives_approval(
    tmp_path: Path, rule: Any
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), call("add", a=5, b=5), say("As you wish."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp_servers=_guarded(server, rule)) as gateway:
        tools = [_declared(require_approval="never")]
        first = await _ask(gateway, tools=tools)
        assert (first["status"], _types(first)) == ("completed", ["mcp_list_tools", "mcp_approval_request"])
        assert not server.calls()
        yes = {"type": "mcp_approval_response", "approval_request_id": first["output"][1]["id"], "approve": True}
        second = await _ask(gateway, tools=tools, previous_response_id=first["id"], input=[yes])
        assert _types(second) == ["mcp_call", "message"]
        assert [one.params["arguments"] for one in server.calls("add")] == [{"a": 1, "b": 2}]
        third = await _ask(gateway, tools=tools, previous_response_id=second["id"], input="5 + 5?")
        assert _types(third) == ["mcp_approval_request"], "an approval is for one call"
        no = {"type": "mcp_approval_response", "approval_request_id": third["output"][0]["id"], "approve": False}
        await _ask(gateway, tools=tools, previous_response_id=third["id"], input=[no])
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-26", "D-12")
@async_test(30)
async def test_an_unstored_call_can_be_approved(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp_servers=_guarded(server, "always")) as gateway,
    ):
        tools = [_declared(require_approval="never")]
        first = await _ask(gateway, tools=tools, store=False)
        yes = {"type": "mcp_approval_response", "approval_request_id": first["output"][1]["id"], "approve": True}
        input_items = [{"role": "user", "content": "Go"}, *first["output"], yes]
        assert _types(await _ask(gateway, tools=tools, input=input_items, store=False)) == ["mcp_call", "message"]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-26", "D-12", "D-25")
@pytest.mark.parametrize("mcp_output", ["openai", "portable"])
@async_test(30)
async def test_a_client_that_declares_no_server_gets_no_call_that_needs_approval(
    tmp_path: Path, mcp_output: str
) -> None:
    model = ScriptedModel(
        lambda got: say("No.") if got.json["messages"][-1]["role"] == "tool" else call("add", a=1, b=2)
    )
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp_servers=_guarded(server, "always"), mcp_output=mcp_output) as gateway,
    ):
        plain = await _ask(gateway)
        assert (plain["status"], _types(plain)[-1]) == ("completed", "message")
        assert "needs a person's approval" in gateway.model_requests[-1]["messages"][-1]["content"]
        client = await gateway.openai_client()
        chat = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Go"}])
        assert chat.choices[0].message.content == "No."
        assert "needs a person's approval" in gateway.model_requests[-1]["messages"][-1]["content"]
        assert not server.calls()


@pytest.mark.proves("D-26", "D-12")
@pytest.mark.parametrize("mcp_output", ["openai", "portable"])
@async_test(30)
async def test_a_client_that_declares_the_server_is_asked_for_approval(tmp_path: Path, mcp_output: str) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(
            tmp_path,
            ScriptedModel(call("add", a=1, b=2), say("3.")),
            mcp_servers=_guarded(server, "always"),
            mcp_output=mcp_output,
        ) as gateway,
    ):
        client = await gateway.openai_client()
        tools: Any = [_declared()]
        first = await client.responses.create(model=MODEL, input="Go", tools=tools)
        assert [item.type for item in first.output] == ["mcp_list_tools", "mcp_approval_request"]
        assert not server.calls()
        yes: Any = {"type": "mcp_approval_response", "approval_request_id": first.output[1].id, "approve": True}
        second = await client.responses.create(model=MODEL, input=[yes], tools=tools, previous_response_id=first.id)
        assert [item.type for item in second.output] == ["mcp_call", "message"]


@pytest.mark.proves("D-27")
@async_test(30)
async def test_a_server_that_a_request_declares_by_url_is_not_contacted_by_default(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, run_gateway(tmp_path, ScriptedModel()) as gateway:
        tool = _declared(server_label="other", server_url=server.url)
        status, error = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": [tool]})
        assert (status, error["error"]["param"]) == (400, "tools[0].server_url")
        assert "does not allow servers that a request names by their address" in error["error"]["message"]
        assert not server.requests


@pytest.mark.proves("004:US2-1")
@async_test(30)
async def test_images_from_tools_reach_the_model(tmp_path: Path) -> None:
    model = ScriptedModel(call("image"), say("One pixel."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, mcp_output="portable") as gateway,
    ):
        response = await _ask(gateway)
        parts = [
            p for m in gateway.model_requests[1]["messages"] if isinstance(m["content"], list) for p in m["content"]
        ]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        assert [url.partition(",")[0] for url in urls] == ["data:image/png;base64"]
        assert not contract_problems("ResponseResource", response)
        (output,) = [item for item in response["output"] if item["type"] == "function_call_output"]
        assert [part["type"] for part in output["output"]] == ["input_image"]


@pytest.mark.proves("004:US2-2", "004:US4-1", "004:US4-2", "004:SC-002", "004:FR-008")
@async_test(30)
async def test_each_call_goes_to_the_server_that_has_the_tool_and_the_first_one_wins(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("regional", region="eu")], say("Done."))
    async with (
        FaultyMCPServer() as first,
        FaultyMCPServer(era="modern") as second,
        run_gateway(tmp_path, model, mcp={"one": first, "two": second}) as gateway,
    ):
        await _ask(gateway)
        assert [one.name for one in first.calls()] == ["add"]
        assert [one.name for one in second.calls()] == ["regional"]


@pytest.mark.proves("004:US2-3", "004:FR-018")
@async_test(30)
async def test_an_error_of_a_tool_is_sent_to_the_model_and_the_run_continues(tmp_path: Path) -> None:
    model = ScriptedModel(call("fail", message="disk on fire"), call("protocol_error"), say("Sorry."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        assert (await _ask(gateway))["status"] == "completed"
        assert "disk on fire" in gateway.model_requests[1]["messages"][-1]["content"]
        assert "The tool broke" in gateway.model_requests[2]["messages"][-1]["content"]


@pytest.mark.proves("D-26")
@async_test(30)
async def test_a_server_that_a_client_did_not_declare_is_not_called_even_if_the_model_tries(tmp_path: Path) -> None:
    model = ScriptedModel(say("Hi."), call("add", a=1, b=2), say("Well."))
    async with (
        FaultyMCPServer() as sums,
        FaultyMCPServer(era="modern") as other,
        run_gateway(tmp_path, model, mcp={"sums": sums, "other": other}) as gateway,
    ):
        await _ask(gateway)
        offered = [tool["function"]["name"] for tool in gateway.model_requests[0]["tools"]]
        assert "add" in offered
        answer = await _ask(gateway, tools=[_declared(server_label="other", require_approval="never")])
        assert [item["status"] for item in answer["output"] if item["type"] == "mcp_call"] == ["failed"]
        assert not sums.calls()
