"""A client that declares MCP servers sees lists, calls, typed errors and requests for approval, as OpenAI has them."""

from __future__ import annotations

from typing import Any

import pytest
from async_tests import async_test
from fake_executor import FakeExecutor
from gateway.wire.open_responses_contract import event_contract_problems
from gateway.wire.scripted_run import DeclaredServers, RunOutcome, check_well_formed, play_run

from holodeck.gateway.continuation.approvals import decide_calls
from holodeck.gateway.wire.request.body import read_request
from holodeck.lib.errors import BadRequestError
from holodeck.models.items import BinaryContent, FunctionCall, FunctionCallOutput, ImageContent, TextContent
from holodeck.testing import ScriptedModel, call, say
from holodeck.tools.executor import ToolResult

DECLARED = {"tools": [{"type": "mcp", "server_label": "calc", "require_approval": "never"}]}
FUNCTION = {"type": "function", "name": "ask_client"}
CALC = DeclaredServers(labels={"add": "calc", "fail": "calc"})


def build_executor() -> FakeExecutor:
    return FakeExecutor(add=lambda a, b: str(a + b), fail=lambda: ToolResult.failure("", "broken"))


def kinds(seen: RunOutcome) -> list[str]:
    return [item["type"] for item in seen.resource["output"]]


@pytest.mark.proves("D-26")
@async_test
async def test_a_declared_server_has_the_events_that_sdks_expect() -> None:
    seen = await play_run(
        ScriptedModel(call("add", a=2, b=3), say("5")), DECLARED, executor=build_executor(), declared=CALC
    )
    check_well_formed(seen)
    assert seen.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.output_item.done",
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    listed, called, _ = seen.resource["output"]
    assert [tool["name"] for tool in listed["tools"]] == ["add", "fail"]
    assert listed["id"].startswith("mcpl_")
    assert called["id"].startswith("mcp_")
    assert {key: called[key] for key in ("server_label", "name", "status", "output", "error")} == {
        "server_label": "calc",
        "name": "add",
        "status": "completed",
        "output": "5",
        "error": None,
    }
    assert seen.resource["tools"][0]["type"] == "mcp"


@pytest.mark.proves("D-26")
@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({}, {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "broken"}]}),
        (
            {"error_kind": "protocol", "error_code": -32050},
            {"type": "mcp_protocol_error", "code": -32050, "message": "broken"},
        ),
        ({"error_kind": "http", "error_code": 503}, {"type": "http_error", "code": 503, "message": "broken"}),
    ],
)
@async_test
async def test_a_failed_call_says_what_kind_of_failure_it_was(metadata: dict[str, Any], error: dict[str, Any]) -> None:
    broken = FakeExecutor(fail=lambda: ToolResult.failure("", "broken", **metadata))
    seen = await play_run(ScriptedModel(call("fail"), say("sorry")), DECLARED, executor=broken, declared=CALC)
    check_well_formed(seen)
    assert "response.mcp_call.failed" in seen.types
    assert (seen.resource["output"][1]["status"], seen.resource["output"][1]["error"]) == ("failed", error)


@async_test
async def test_a_server_that_cannot_be_listed_shows_as_a_failed_list() -> None:
    servers = DeclaredServers(labels={}, failed={"calc": "Error retrieving tool list from MCP server: it is down"})
    seen = await play_run(ScriptedModel(say("no tools")), DECLARED, declared=servers)
    check_well_formed(seen)
    assert "response.mcp_list_tools.failed" in seen.types
    assert seen.resource["output"][0]["error"].endswith("it is down")


@async_test
async def test_a_list_that_is_in_the_context_is_not_shown_again() -> None:
    first = await play_run(
        ScriptedModel(call("add", a=1, b=1), say("2")), DECLARED, executor=build_executor(), declared=CALC
    )
    again = [*first.resource["output"], {"role": "user", "content": "and now?"}]
    model = ScriptedModel(say("4"))
    second = await play_run(model, {**DECLARED, "input": again}, executor=build_executor(), declared=CALC)
    check_well_formed(second)
    assert kinds(second) == ["message"]
    outputs = [item for item in model.requests[0].items if isinstance(item, FunctionCallOutput)]
    assert [item.content for item in outputs] == [(TextContent(text="2"),)]


@async_test
async def test_a_declared_and_an_ambient_server_each_show_in_their_own_way() -> None:
    both = FakeExecutor(add=lambda a, b: str(a + b), look=lambda: "seen")
    seen = await play_run(
        ScriptedModel([call("add", a=1, b=1), call("look")], say("ok")), DECLARED, executor=both, declared=CALC
    )
    check_well_formed(seen)
    assert kinds(seen) == ["mcp_list_tools", "mcp_call", "function_call", "function_call_output", "message"]


@async_test
async def test_an_operator_may_force_the_portable_form() -> None:
    model = ScriptedModel(call("add", a=1, b=1), say("2"))
    seen = await play_run(model, {}, executor=build_executor(), declared=CALC, mode="portable")
    check_well_formed(seen)
    assert [line for event in seen.events for line in event_contract_problems(event)] == []
    assert kinds(seen) == ["function_call", "function_call_output", "message"]


@pytest.mark.proves("D-26")
@async_test
async def test_a_call_that_needs_approval_runs_with_its_exact_arguments_once_approved() -> None:
    tools = build_executor()
    servers = DeclaredServers(labels={"add": "calc"}, approval=frozenset({"add"}))
    model = ScriptedModel(call("add", a=2, b=3), say("5"))
    paused = await play_run(model, DECLARED, executor=tools, declared=servers)
    check_well_formed(paused)
    assert (kinds(paused), paused.resource["status"]) == (["mcp_list_tools", "mcp_approval_request"], "completed")
    assert tools.calls == []
    request = paused.resource["output"][1]
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    follow_up = read_request({"model": "demo", "input": [answer], **DECLARED})
    waiting = paused.result.pending
    decided = decide_calls(waiting, [each.call_id for each in waiting], follow_up.input.approvals)
    assert decided.run == waiting
    done = await play_run(
        model,
        {**DECLARED, "input": [answer]},
        executor=tools,
        declared=servers,
        context=(*paused.request.input.items, *paused.result.items),
        pending=decided.run,
        approved=decided.approved,
        listed_servers={"calc"},
    )
    check_well_formed(done)
    assert kinds(done) == ["mcp_call", "message"]
    assert done.resource["output"][0]["approval_request_id"] == request["id"]
    assert tools.calls == [("add", {"a": 2, "b": 3})]


@async_test
async def test_a_refused_call_has_an_error_output_with_the_reason() -> None:
    servers = DeclaredServers(labels={"add": "calc"}, approval=frozenset({"add"}))
    paused = await play_run(ScriptedModel(call("add", a=2, b=3)), DECLARED, executor=build_executor(), declared=servers)
    request_id = paused.resource["output"][1]["id"]
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": request_id,
        "approve": False,
        "reason": "too dear",
    }
    follow_up = read_request({"model": "demo", "input": [answer]})
    waiting = paused.result.pending
    decided = decide_calls(waiting, [each.call_id for each in waiting], follow_up.input.approvals)
    assert decided.run == ()
    [output] = decided.refused
    assert output.is_error
    assert isinstance(output.content[0], TextContent)
    assert "too dear" in output.content[0].text
    unknown = read_request({"model": "demo", "input": [{**answer, "approval_request_id": "mcpr_other"}]})
    with pytest.raises(BadRequestError) as caught:
        decide_calls(waiting, [each.call_id for each in waiting], unknown.input.approvals)
    assert caught.value.param == "input[0].approval_request_id"


def test_pending_calls_that_need_no_approval_run_and_undecided_ones_are_refused() -> None:
    free = FunctionCall(call_id="a", name="free", arguments="{}", id="fc_a")
    guarded = FunctionCall(call_id="b", name="danger", arguments="{}", id="fc_b")
    decided = decide_calls([free, guarded], ["b"], [])
    assert (decided.run, decided.approved) == ((free,), frozenset())
    assert [output.call_id for output in decided.refused] == ["b"]


@async_test
async def test_a_client_that_stores_nothing_sends_the_request_for_approval_back_with_the_answer() -> None:
    servers = DeclaredServers(labels={"add": "calc"}, approval=frozenset({"add"}))
    paused = await play_run(ScriptedModel(call("add", a=2, b=3)), DECLARED, executor=build_executor(), declared=servers)
    request = paused.resource["output"][1]
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    follow_up = read_request({"model": "demo", "input": [{"role": "user", "content": "add"}, request, answer]})
    [waiting] = follow_up.input.pending_calls
    assert (waiting.name, waiting.arguments) == ("add", request["arguments"])
    assert decide_calls([waiting], [waiting.call_id], follow_up.input.approvals).run == (waiting,)


@pytest.mark.proves("D-23")
@pytest.mark.parametrize(("client", "status"), [("open_responses", "requires_action"), ("openai", "completed")])
@async_test
async def test_a_turn_with_a_client_function_and_an_approval_requires_action(client: str, status: str) -> None:
    servers = DeclaredServers(labels={"add": "calc"}, approval=frozenset({"add"}))
    model = ScriptedModel([call("add", a=1, b=1), call("ask_client")])
    body = {"tools": [*DECLARED["tools"], FUNCTION]}
    seen = await play_run(model, body, executor=build_executor(), declared=servers, client_kind=client)
    check_well_formed(seen)
    # The tool runner of OpenAI's package takes every other status than `completed` for a failure.
    assert (kinds(seen), seen.resource["status"]) == (
        ["mcp_list_tools", "function_call", "mcp_approval_request"],
        status,
    )


@async_test
async def test_a_picture_from_a_server_is_named_in_the_call_and_shown_to_the_model() -> None:
    picture = ImageContent(data="aGk=", mime_type="image/png")
    model = ScriptedModel(call("draw"), say("nice"))
    servers = DeclaredServers(labels={"draw": "calc"})
    seen = await play_run(model, DECLARED, executor=FakeExecutor(draw=lambda: (picture,)), declared=servers)
    assert seen.resource["output"][1]["output"] == "[image: image/png, 2 bytes]"
    [output] = [item for item in model.requests[1].items if isinstance(item, FunctionCallOutput)]
    assert output.content == (picture,)


@async_test
async def test_a_resource_link_keeps_its_uri_in_the_call() -> None:
    link = BinaryContent(uri="notes://today", name="today", mime_type="text/plain", is_link=True)
    servers = DeclaredServers(labels={"find": "calc"})
    executor = FakeExecutor(find=lambda: (link,))
    seen = await play_run(ScriptedModel(call("find"), say("ok")), DECLARED, executor=executor, declared=servers)
    assert "notes://today" in seen.resource["output"][1]["output"]
