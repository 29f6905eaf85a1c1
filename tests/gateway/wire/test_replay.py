"""A response that was never streamed can be streamed later, with the same events."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from async_tests import async_test
from fake_executor import FakeExecutor
from gateway.wire.open_responses_contract import event_contract_problems
from gateway.wire.scripted_run import DeclaredServers, RunOutcome, check_well_formed, play_run

from holodeck.gateway.wire.response.event_encoder import SSE_DONE, encode_sse
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.lib.errors import ModelError
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
    assert encode_sse(b'{"type":"response.created","x":1}') == (
        b'event: response.created\ndata: {"type":"response.created","x":1}\n\n'
    )
    assert SSE_DONE == b"data: [DONE]\n\n"
