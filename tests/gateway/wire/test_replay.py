"""A response that was never streamed can be streamed later, and says the same."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aio import aio
from gateway.wire.contract import event_problems
from gateway.wire.stage import Played, Servers, played, well_formed
from shelf import Shelf

from holodeck.gateway.wire.encoder import DONE, sse
from holodeck.gateway.wire.replay import replay
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
@aio
async def test_a_replayed_response_has_the_same_events_as_a_streamed_one(name: str) -> None:
    turns, body = RUNS[name]
    shelf = Shelf(add=lambda a, b: str(a + b), fail=lambda: ToolResult.failed("", "broken"))
    servers = Servers(labels={"add": "calc", "fail": "calc"})
    streamed = await played(ScriptedModel(*turns), body, shelf=shelf, servers=servers, dialect="open_responses")
    well_formed(streamed)
    events = [orjson.loads(payload) for payload in replay(streamed.resource, dialect="open_responses")]
    again = Played(**{**vars(streamed), "events": events})
    well_formed(again)
    assert again.types == streamed.types
    if "mcp" not in str(body):
        assert [line for event in events for line in event_problems(event)] == []


def test_an_event_is_one_block_of_server_sent_events_named_by_its_type() -> None:
    assert sse(b'{"type":"response.created","x":1}') == (
        b'event: response.created\ndata: {"type":"response.created","x":1}\n\n'
    )
    assert DONE == b"data: [DONE]\n\n"
