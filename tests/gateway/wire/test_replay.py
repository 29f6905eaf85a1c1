"""A response that was never streamed can be streamed later, with the same events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from async_tests import async_test
from durable.crash_cases import list_standing
from fake_executor import FakeExecutor
from gateway.wire.open_responses_contract import event_contract_problems
from gateway.wire.scripted_run import CREATED_AT, DeclaredServers, RunOutcome, check_well_formed, play_run

from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.response.output_items import SSE_DONE, encode_sse
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib.errors import ModelError
from holodeck.models.events import Event, ItemFinished, RunFinished, RunResult, RunStarted, TextAdded, TurnStarted
from holodeck.models.items import text_message
from holodeck.testing import ScriptedModel, call, fail, finish, say, think
from holodeck.tools.executor import ToolResult

MCP = {"tools": [{"type": "mcp", "server_label": "calc"}, {"type": "function", "name": "ask_client"}]}
RUNS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "plain": ([say("Hello there")], {}),
    "thinking": ([[think("hm"), say("Hello")]], {}),
    "summary": ([[think("hm"), say("Hello")]], {"reasoning": {"summary": "auto"}}),
    "tools": ([call("add", a=1, b=2), say("3")], {}),
    "mcp": ([call("add", a=1, b=2), call("fail"), say("3")], MCP),
    "client": ([call("ask_client")], MCP),
    "cut": ([[say("Hel"), finish("length")]], {}),
    "failed": ([[say("Hel"), fail(ModelError("gone"))]], {}),
    "empty": ([say("")], {}),
}


@pytest.mark.proves("D-28")
@pytest.mark.parametrize("name", RUNS)
@async_test
async def test_a_replayed_response_has_the_same_events_as_a_streamed_one(name: str) -> None:
    turns, body = RUNS[name]
    executor = FakeExecutor(add=lambda a, b: str(a + b), fail=lambda: ToolResult.failure("", "broken"))
    servers = DeclaredServers(labels={"add": "calc", "fail": "calc"})
    streamed = await play_run(
        ScriptedModel(*turns), body, executor=executor, declared=servers, client_kind="open_responses"
    )
    check_well_formed(streamed)
    events = [orjson.loads(payload) for payload in replay_events(streamed.resource, client_kind="open_responses")]
    again = RunOutcome(**{**vars(streamed), "events": events})
    check_well_formed(again)
    assert again.types == streamed.types
    if "mcp" not in str(body):
        assert [line for event in events for line in event_contract_problems(event)] == []


def test_an_event_is_one_block_of_server_sent_events_named_by_its_type() -> None:
    assert encode_sse([b'{"type":"response.created","x":1}']) == (
        b'event: response.created\ndata: {"type":"response.created","x":1}\n\n'
    )
    assert SSE_DONE == b"data: [DONE]\n\n"


def test_a_process_that_dies_before_it_tells_of_a_new_answer_leaves_each_index_to_one_item() -> None:
    answer = replace(text_message("assistant", "Right."), id="msg_2")
    broken: list[Event] = [TurnStarted(turn=1, tools=0), TextAdded(item_id="msg_1", text="Wro")]
    stored: list[Event] = [
        TurnStarted(turn=1, tools=0, is_replayed=True),
        TextAdded(item_id="msg_2", text="Right."),
        ItemFinished(item=answer),
    ]
    started = RunStarted(run_id="run_1", model="demo")
    finished = RunFinished(result=RunResult(status="completed", text="Right.", items=(answer,)))
    servers = DeclaredServers(labels={"add": "calc"})
    for rest in ([finished], [TurnStarted(turn=2, tools=0), finished]):
        sent = _durable_writer(servers, None).feed(started, *broken)
        heir = _durable_writer(servers, SentEvents(sent))
        events = [orjson.loads(each) for each in (*sent, *heir.feed(started, *stored), *heir.feed(*rest))]
        added, done = (
            [event["output_index"] for event in events if event["type"] == f"response.output_item.{kind}"]
            for kind in ("added", "done")
        )
        assert added == sorted(done) == [0, 1, 2], "the tools of a server, what is void, and the answer"
        assert [item["id"] for item in list_standing(events)][1:] == ["msg_2"]
        assert list_standing(events) == heir.build_resource()["output"]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_turn_that_begins_anew_after_a_takeover_is_announced_again() -> None:
    servers = DeclaredServers(labels={"add": "calc"})
    answer = replace(text_message("assistant", "Right."), id="msg_2")
    started = RunStarted(run_id="run_1", model="demo")
    sent = _durable_writer(servers, None).feed(started)
    heir = _durable_writer(servers, SentEvents(sent))
    turns: list[Event] = [
        started,
        TurnStarted(turn=1, tools=0),
        TextAdded(item_id="msg_1", text="Wro"),
        TurnStarted(turn=1, tools=0, is_restarted=True),
        TextAdded(item_id="msg_2", text="Right."),
        ItemFinished(item=answer),
        RunFinished(result=RunResult(status="completed", text="Right.", items=(answer,))),
    ]
    events = [orjson.loads(each) for each in (*sent, *heir.feed(*turns))]
    assert list_standing(events) == heir.build_resource()["output"]


def _durable_writer(servers: DeclaredServers, sent: SentEvents | None) -> ResponseWriter:
    request = read_request({"model": "demo", "input": "hello", "background": True, **MCP})
    return ResponseWriter(
        request, response_id="resp_1", created_at=CREATED_AT, servers=servers, is_durable=True, sent_events=sent
    )
