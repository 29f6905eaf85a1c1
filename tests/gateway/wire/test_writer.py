"""What a client sees of a run: the order of events, the items, the resource, and the contract."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from async_tests import async_test
from fake_executor import FakeExecutor
from gateway.wire.open_responses_contract import contract_problems, event_contract_problems
from gateway.wire.scripted_run import DeclaredServers, RunOutcome, check_well_formed, play_run

from holodeck.lib.errors import ModelError
from holodeck.models.items import FunctionCallOutput, ImageContent, TextContent
from holodeck.testing import ScriptedModel, call, fail, finish, say, spend, think, wait
from holodeck.testing.model.script import call_raw

FUNCTION = {"type": "function", "name": "ask_client", "parameters": {"type": "object", "properties": {}}}


def check_contract(seen: RunOutcome) -> None:
    """Check each event and the resource against Open Responses."""
    check_well_formed(seen)
    assert [line for event in seen.events for line in event_contract_problems(event)] == []
    assert contract_problems("ResponseResource", seen.resource) == []


@pytest.mark.proves("D-25")
@async_test
async def test_a_plain_answer_has_the_events_that_clients_expect_in_their_order() -> None:
    seen = await play_run(ScriptedModel([say("Hello there"), spend(7, 3, cached=2)], chunk=6))
    check_contract(seen)
    assert seen.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert seen.resource["output"][0]["content"][0]["text"] == "Hello there"
    assert seen.resource["usage"]["total_tokens"] == 10
    assert seen.resource["usage"]["input_tokens_details"]["cached_tokens"] == 2
    assert (seen.resource["status"], seen.resource["created_at"]) == ("completed", 1_700_000_000)
    assert isinstance(seen.resource["completed_at"], int)


@pytest.mark.proves("D-26", "D-25")
@async_test
async def test_tools_of_the_operator_show_as_calls_with_their_outputs_and_the_contract_holds() -> None:
    executor = FakeExecutor(add=lambda a, b: str(a + b))
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4)], say("3 and 7"), chunk=5)
    seen = await play_run(model, executor=executor)
    check_contract(seen)
    assert [item["type"] for item in seen.resource["output"]] == [
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert [item["output"] for item in seen.resource["output"][2:4]] == ["3", "7"]
    assert seen.resource["tools"] == []
    assert len(executor.calls) == 2


@pytest.mark.proves("D-25")
@async_test
async def test_a_function_of_the_client_is_streamed_and_ends_the_response_as_completed() -> None:
    model = ScriptedModel([say("Let me ask."), call("ask_client", question="why?")], chunk=4)
    seen = await play_run(model, {"tools": [FUNCTION]})
    check_contract(seen)
    assert seen.resource["status"] == "completed"
    item_events = [(event["type"], event["item"]["type"]) for event in seen.events if "output_item" in event["type"]]
    kinds = ("response.output_item.added", "response.output_item.done")
    assert item_events == [(kind, item) for item in ("message", "function_call") for kind in kinds], (
        "one after the other"
    )
    assert len(seen.events_of_type("response.function_call_arguments.delta")) > 1
    [function_call] = [item for item in seen.resource["output"] if item["type"] == "function_call"]
    assert orjson.loads(function_call["arguments"]) == {"question": "why?"}
    assert seen.resource["tools"] == [{**FUNCTION, "description": None, "strict": None}]


@pytest.mark.proves("D-25")
@async_test
async def test_several_calls_of_client_functions_are_streamed_one_after_the_other() -> None:
    """Agno and others process only the item that was added last."""
    turn = [call("ask_client", place="Rome"), call_raw("ask_client", ""), call("ask_client", place="Oslo")]
    seen = await play_run(ScriptedModel(turn, chunk=4), {"tools": [FUNCTION]})
    check_contract(seen)
    order = [(e["type"].rpartition(".")[2], e["output_index"]) for e in seen.events if "output_item" in e["type"]]
    # A call that may still get arguments is not done, so an empty one ends with the turn.
    assert order == [("added", 0), ("done", 0), ("added", 1), ("added", 2), ("done", 1), ("done", 2)]
    assert [item["arguments"] for item in seen.resource["output"]] == ['{"place":"Rome"}', "", '{"place":"Oslo"}']


@pytest.mark.proves("D-23", "004:US2-4")
@async_test
async def test_a_mixed_turn_shows_only_the_clients_call_and_requires_action() -> None:
    executor = FakeExecutor(add=lambda a, b: str(a + b))
    model = ScriptedModel([call("add", a=1, b=2), call("ask_client")], say("Now I know."))
    paused = await play_run(model, {"tools": [FUNCTION]}, executor=executor, client_kind="open_responses")
    check_contract(paused)
    assert [(item["type"], item["name"]) for item in paused.resource["output"]] == [("function_call", "ask_client")]
    assert (paused.resource["status"], paused.types[-1]) == ("requires_action", "response.completed")
    assert executor.calls == []
    answer = {"type": "function_call_output", "call_id": "call_2", "output": "because"}
    context = (*paused.request.input.items, *paused.result.items)
    resumed = await play_run(
        model,
        {"tools": [FUNCTION], "input": [answer]},
        executor=executor,
        context=context,
        pending=paused.result.pending,
    )
    check_contract(resumed)
    kinds = [item["type"] for item in resumed.resource["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert (resumed.resource["status"], len(executor.calls)) == ("completed", 1)
    output_ids = [item.call_id for item in model.requests[1].items if isinstance(item, FunctionCallOutput)]
    assert output_ids == ["call_1", "call_2"]


@pytest.mark.parametrize("dialect", ["openai", "open_responses"])
@async_test
async def test_reasoning_has_the_event_names_of_the_contract_that_the_client_speaks(dialect: Any) -> None:
    seen = await play_run(ScriptedModel([think("Hmm, let me see"), say("Yes.")], chunk=5), client_kind=dialect)
    check_well_formed(seen)
    name = "response.reasoning_text" if dialect == "openai" else "response.reasoning"
    assert len(seen.events_of_type(f"{name}.delta")) == 3
    assert len(seen.events_of_type(f"{name}.done")) == 1
    assert seen.resource["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hmm, let me see"}]
    if dialect == "open_responses":
        check_contract(seen)


@async_test
async def test_a_client_that_asks_for_a_summary_gets_the_thoughts_as_one() -> None:
    seen = await play_run(ScriptedModel([think("Because."), say("Yes.")]), {"reasoning": {"summary": "auto"}})
    check_contract(seen)
    assert seen.resource["output"][0]["summary"] == [{"type": "summary_text", "text": "Because."}]


@async_test
async def test_images_of_tools_are_parts_of_the_output() -> None:
    picture = (TextContent(text="look"), ImageContent(data="aGk=", mime_type="image/png"))
    seen = await play_run(ScriptedModel(call("draw"), say("Nice.")), executor=FakeExecutor(draw=lambda: picture))
    check_contract(seen)
    assert seen.resource["output"][1]["output"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
    ]


@pytest.mark.parametrize(("reason", "wire"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
@async_test
async def test_an_answer_that_was_cut_ends_incomplete_with_its_reason(reason: Any, wire: str) -> None:
    seen = await play_run(ScriptedModel([say("half"), finish(reason)]))
    check_contract(seen)
    assert seen.types[-1] == "response.incomplete"
    assert (seen.resource["status"], seen.resource["incomplete_details"]) == ("incomplete", {"reason": wire})
    assert seen.resource["completed_at"] is None


@pytest.mark.parametrize("is_durable", [False, True])
@async_test
async def test_a_failed_run_sends_the_error_and_then_ends_as_failed_with_its_output(is_durable: bool) -> None:
    model = ScriptedModel(call("add", a=1, b=2), [say("It is"), fail(ModelError("The model is on holiday."))])
    seen = await play_run(model, executor=FakeExecutor(add=lambda a, b: str(a + b)), is_durable=is_durable)
    check_contract(seen)
    error, last = seen.events[-2:]
    assert (error["type"], last["type"]) == ("error", "response.failed")
    assert (error["error"]["type"], error["code"]) == ("server_error", "server_error")
    assert seen.resource["error"] == {"code": "server_error", "message": error["message"]}
    kinds = [(item["type"], item["status"]) for item in seen.resource["output"]]
    assert kinds == [
        ("function_call", "completed"),
        ("function_call_output", "completed"),
        ("message", "incomplete"),
    ]


@async_test
async def test_a_cancelled_run_ends_with_one_last_event_and_its_status() -> None:
    step = wait(asyncio.Event())

    async def cancel(task: asyncio.Task[Any]) -> None:
        await step.reached.wait()
        task.cancel()

    seen = await play_run(ScriptedModel([say("I am"), step]), during=cancel)
    check_contract(seen)
    assert (seen.types[-1], seen.resource["status"]) == ("response.incomplete", "cancelled")
    assert seen.resource["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("is_declared", [False, True], ids=["portable", "openai"])
@async_test
async def test_a_run_that_is_cancelled_in_the_middle_of_a_call_closes_the_call(is_declared: bool) -> None:
    running = asyncio.Event()

    async def slow() -> str:
        running.set()
        await asyncio.Event().wait()
        return "never"

    async def cancel(task: asyncio.Task[Any]) -> None:
        await running.wait()
        task.cancel()

    servers = DeclaredServers(labels={"slow": "calc"})
    body = {"tools": [{"type": "mcp", "server_label": "calc"}]} if is_declared else {}
    seen = await play_run(
        ScriptedModel(call("slow")), body, executor=FakeExecutor(slow=slow), declared=servers, during=cancel
    )
    check_well_formed(seen)
    last = seen.resource["output"][-1]
    assert (last["type"], last["status"]) == ("mcp_call" if is_declared else "function_call_output", "incomplete")
    assert seen.resource["status"] == "cancelled"


@pytest.mark.proves("D-24")
@async_test
async def test_a_client_function_outside_the_allowed_tools_comes_with_its_error_output() -> None:
    other = {"type": "function", "name": "other"}
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "other"}]}
    model = ScriptedModel(call("ask_client"), say("I may not."))
    seen = await play_run(model, {"tools": [FUNCTION, other], "tool_choice": choice})
    check_contract(seen)
    assert [item["type"] for item in seen.resource["output"]] == ["function_call", "function_call_output", "message"]
    assert "not allowed" in seen.resource["output"][1]["output"]


@async_test
async def test_a_run_that_is_not_streamed_has_the_same_resource() -> None:
    def script() -> ScriptedModel:
        return ScriptedModel([think("hm"), call("add", a=1, b=2)], say("three"), chunk=2)

    streamed = await play_run(script(), executor=FakeExecutor(add=lambda a, b: str(a + b)))
    silent = await play_run(script(), executor=FakeExecutor(add=lambda a, b: str(a + b)), is_silent=True)
    assert silent.events == []
    blank = {"id": "", "call_id": ""}
    assert [{**item, **blank} for item in silent.resource["output"]] == [
        {**item, **blank} for item in streamed.resource["output"]
    ]


@async_test
async def test_a_stream_can_hide_the_sizes_of_its_deltas() -> None:
    body = {"stream": True, "stream_options": {"include_obfuscation": True}}
    seen = await play_run(ScriptedModel(say("a longer sentence than one delta"), chunk=5), body)
    check_contract(seen)
    sizes = {
        len(event["delta"]) + len(event["obfuscation"]) for event in seen.events_of_type("response.output_text.delta")
    }
    assert sizes == {16}
