"""A history costs as many steps as it has items, however it comes, and whatever API the model has.

Four times the items take at most four times the steps: what is done once for a request is not done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from counted_calls import CountedCalls
from gateway.conversation_client import GET_TIME
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.test_truncation import served_model

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.scripted import DialectName

FEW = 100
MANY = 4 * FEW
# A transcript that is too long is written again with shorter outputs: more often for a longer one.
TOLERANCE = 1.05
GO = {"role": "user", "content": "Go."}
RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"
SEAL = {"store": False, "include": ["reasoning.encrypted_content"]}
Request = Callable[[int], Awaitable[None]]


def function_call(number: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "get_time", "arguments": "{}"}


def output(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": "noon"}


def shell_call(number: int) -> dict[str, Any]:
    action = {"type": "exec", "command": ["ls"], "env": {}}
    ids = {"id": f"lsh_{number}", "call_id": f"c{number}"}
    return {"type": "local_shell_call", **ids, "status": "completed", "action": action}


def approval_request(number: int) -> dict[str, Any]:
    call_of = {"server_label": "sums", "name": "add", "arguments": "{}"}
    return {"type": "mcp_approval_request", "id": f"mcpr_{number:040}", **call_of}


def approval(number: int) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{number:040}", "approve": True}


def mcp_call(number: int) -> dict[str, Any]:
    request = approval_request(number)
    ids = {"id": f"mcp_{number:040}", "approval_request_id": request["id"]}
    return {**request, "type": "mcp_call", **ids, "output": "3"}


def turns(count: int) -> list[Any]:
    return [each for number in range(count // 3) for each in (GO, function_call(number), output(number))]


# Items of the Responses API, by what is in them.
HISTORIES: dict[str, Callable[[int], list[Any]]] = {
    "messages": lambda count: [GO, {"role": "assistant", "content": "Yes."}] * (count // 2),
    "a call in each turn": turns,
    "all calls in one turn": lambda count: [*map(function_call, range(count // 2)), *map(output, range(count // 2))],
    "texts between a call and its output": lambda count: [
        function_call(0),
        *[{"role": "assistant", "content": "Yes."}] * count,
        output(0),
    ],
    "calls of a server": lambda count: [each for number in range(count // 2) for each in (GO, mcp_call(number))],
    "approved calls": lambda count: [
        each for kind in (approval_request, approval, mcp_call) for each in map(kind, range(count // 3))
    ],
    "calls that nobody approved": lambda count: [
        each for number in range(count // 2) for each in (approval_request(number), GO)
    ],
    "commands of a shell": lambda count: [
        each
        for number in range(count // 2)
        for each in (shell_call(number), {"type": "local_shell_call_output", "id": f"lsh_{number}", "output": "ok"})
    ],
}


def chat_messages(count: int) -> list[Any]:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(count)]
    answers = [{"role": "tool", "tool_call_id": each["id"], "content": "noon"} for each in calls]
    called = [{"role": "assistant", "tool_calls": [each]} for each in calls]
    return [each for pair in zip([GO] * count, called, answers, strict=True) for each in pair]


def anthropic_messages(count: int) -> list[Any]:
    calls = [{"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}} for number in range(count)]
    answers = [{"type": "tool_result", "tool_use_id": each["id"], "content": "noon"} for each in calls]
    each_in_its_turn = [
        entry
        for called, answered in zip(calls, answers, strict=True)
        for entry in ({"role": "assistant", "content": [called]}, {"role": "user", "content": [answered]})
    ]
    # Both shapes, with other ids: each call in its turn, then all in one.
    others = [{**each, "id": f"d{each['id']}"} for each in calls]
    other_answers = [{**each, "tool_use_id": f"d{each['tool_use_id']}"} for each in answers]
    return [GO, *each_in_its_turn, {"role": "assistant", "content": others}, {"role": "user", "content": other_answers}]


async def post(gateway: RunningGateway, path: str, **body: Any) -> Any:
    status, answer = await gateway.send("POST", path, {"model": MODEL, **body})
    assert status == 200, answer
    return answer


def as_input(gateway: RunningGateway, build: Callable[[int], list[Any]], **more: Any) -> Request:
    async def request(count: int) -> None:
        await post(gateway, RESPONSES, input=[*build(count), GO], tools=[GET_TIME], **more)

    return request


async def find_growing(requests: dict[str, Request], few: int = FEW) -> dict[str, list[int]]:
    """Return the requests whose steps grow faster than their history, with their steps for both lengths."""
    found: dict[str, list[int]] = {}
    for name, request in requests.items():
        steps: list[int] = []
        # The first one of its kind builds what all later ones use.
        for count in (1, few, 4 * few):
            work = CountedCalls()
            with work.counting():
                await request(count)
            steps.append(work.count)
        if steps[2] > 4 * steps[1] * TOLERANCE:
            found[name] = steps[1:]
    return found


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses"])
@async_test(120)
async def test_a_history_in_a_request_takes_steps_in_proportion_to_its_items(
    tmp_path: Path, dialect: DialectName
) -> None:
    model = ScriptedModel(*[say("Yes.")] * 40)
    async with run_gateway(tmp_path, model, dialect=dialect, is_checked=False) as gateway:
        requests = {name: as_input(gateway, build) for name, build in HISTORIES.items()}
        requests[CHAT] = lambda count: post(gateway, CHAT, messages=[*chat_messages(count), GO])
        requests[MESSAGES] = lambda count: post(gateway, MESSAGES, messages=anthropic_messages(count), max_tokens=9)
        assert await find_growing(requests) == {}


@async_test(120)
async def test_a_stored_history_takes_steps_in_proportion_to_its_items(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(*[say("Yes.")] * 20), is_checked=False) as gateway:
        previous = {
            count: (await post(gateway, RESPONSES, input=[*turns(count), GO], tools=[GET_TIME]))["id"]
            for count in (1, FEW, MANY)
        }
        conversations = {count: await store_conversation(gateway, [*turns(count), GO]) for count in (1, FEW, MANY)}
        requests: dict[str, Request] = {
            "previous_response_id": lambda count: post(
                gateway, RESPONSES, input="More.", previous_response_id=previous[count]
            ),
            "all of it again with previous_response_id": lambda count: post(
                gateway, RESPONSES, input=[*turns(count), GO], previous_response_id=previous[count]
            ),
            "conversation": lambda count: post(gateway, RESPONSES, input="More.", conversation=conversations[count]),
            "reading a response": lambda count: read(gateway, f"{RESPONSES}/{previous[count]}"),
            "reading its input": lambda count: read(gateway, f"{RESPONSES}/{previous[count]}/input_items?limit=100"),
            "reading a run": lambda count: read(gateway, f"/v1/runs/{previous[count]}"),
        }
        assert await find_growing(requests) == {}


@async_test(120)
async def test_a_history_that_is_made_shorter_takes_steps_in_proportion_to_its_items(tmp_path: Path) -> None:
    async with ScriptedModel(*[say("Yes.")] * 40).serve() as model:
        models = [served_model(model.url, context_tokens=4_000)]
        async with run_gateway(tmp_path, models=models, is_checked=False) as gateway:
            compacted = {"context_management": [{"type": "compaction", "compact_threshold": 1_000}]}
            requests = {
                "truncation": as_input(gateway, turns, truncation="auto"),
                "compaction": as_input(gateway, turns, **compacted),
                "its route": lambda count: post(gateway, f"{RESPONSES}/compact", input=[*turns(count), GO]),
            }
            # Fewer would not be made shorter.
            assert await find_growing(requests, few=1_000) == {}


@async_test(120)
async def test_sealed_calls_take_steps_in_proportion_to_their_number(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=number, b=1) for number in range(MANY // 2)], *[say("Yes.")] * 10)
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, mcp_output="openai", is_checked=False) as gateway,
    ):
        client = await gateway.http_client()
        async with client.post(RESPONSES, json={"model": MODEL, "input": [GO], **SEAL}) as sent:
            items: Sequence[Any] = (await sent.json())["output"]
        calls = [each for each in items if each["type"] == "mcp_call"]
        sealed = [each for each in items if each.get("encrypted_content")]
        assert len(calls) == len(sealed) == MANY // 2
        requests = {
            "sealed alone": as_input(gateway, lambda count: list(sealed[: count // 2]), **SEAL),
            "beside the calls": as_input(gateway, lambda count: [*calls[: count // 2], *sealed[: count // 2]], **SEAL),
        }
        assert await find_growing(requests) == {}


async def store_conversation(gateway: RunningGateway, items: Sequence[Any]) -> str:
    _, conversation = await gateway.send("POST", "/v1/conversations", {})
    path = f"/v1/conversations/{conversation['id']}/items"
    for start in range(0, len(items), 20):
        status, answer = await gateway.send("POST", path, {"items": items[start : start + 20]})
        assert status == 200, answer
    return str(conversation["id"])


async def read(gateway: RunningGateway, path: str) -> None:
    status, answer = await gateway.send("GET", path)
    assert status == 200, answer
