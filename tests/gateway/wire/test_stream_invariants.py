"""Whatever a model does, its stream is well formed, fulfils the contract, and can be replayed."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fake_executor import FakeExecutor
from gateway.wire.open_responses_contract import contract_problems, event_contract_problems
from gateway.wire.scripted_run import CREATED_AT, DeclaredServers, RunOutcome, check_well_formed, play_run
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.gateway.sealing import SealKeys
from holodeck.gateway.wire.request.body import read_request
from holodeck.gateway.wire.response.replay import replay_events
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib.errors import ModelError
from holodeck.models.events import RunStarted
from holodeck.models.items import Message, Reasoning
from holodeck.testing import ScriptedModel, call, call_raw, fail, finish, say, think
from holodeck.tools.executor import ToolResult

texts = st.text(st.characters(codec="utf-8"), max_size=12)
steps = st.one_of(
    texts.map(say),
    st.tuples(texts, st.booleans()).map(lambda pair: think(pair[0], **({"mark": "s"} if pair[1] else {}))),
    st.sampled_from([call("add", a=1, b=2), call("fail"), call("ask_client", q="?"), call("unknown"), call("danger")]),
    st.just(call_raw("add", '{"a": 1,')),
    st.sampled_from([finish("length"), fail(ModelError("gone"))]),
)
turns = st.lists(st.lists(steps, max_size=4), max_size=3)
MCP = {"type": "mcp", "server_label": "calc", "require_approval": "never"}
CLIENT = {"type": "function", "name": "ask_client"}
SEAL = SealKeys([b"k" * 32]).for_caller("a")
SERVERS = DeclaredServers(
    labels={"add": "calc", "fail": "calc", "danger": "calc"}, approval=frozenset({"danger"}), failed={"down": "it is"}
)


def stream(script: list[Any], *, chunk: int, dialect: Any, is_declared: bool, **body: Any) -> RunOutcome:
    tools = [MCP, CLIENT] if is_declared else [CLIENT]
    executor = FakeExecutor(
        add=lambda a, b: str(a + b),
        fail=lambda: ToolResult.failure("", "broken"),
        danger=lambda: "never without asking",
    )
    model = ScriptedModel(*script, say("The end."), chunk=chunk)
    full_body = {"tools": tools, **body}
    return asyncio.run(
        play_run(model, full_body, executor=executor, declared=SERVERS, client_kind=dialect, seal=SEAL),
    )


def check_text_is_complete(seen: RunOutcome) -> None:
    """The output has all text and reasoning of the model exactly once, unless the run failed or was cancelled."""
    if seen.result.status in ("failed", "cancelled"):
        return
    output = seen.resource["output"]
    spoken = [item.text for item in seen.result.items if isinstance(item, Message)]
    shown = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    assert "".join(shown) == "".join(spoken)
    thought = [item.text for item in seen.result.items if isinstance(item, Reasoning)]
    parts = [[*item["summary"], *item.get("content", ())] for item in output if item["type"] == "reasoning"]
    assert "".join(part["text"] for each in parts for part in each) == "".join(thought)


@settings(max_examples=80, deadline=None)
@given(turns, st.integers(1, 6), st.booleans(), st.booleans())
def test_any_run_without_declared_servers_keeps_the_contract(
    script: list[Any], chunk: int, wants_summary: bool, wants_encrypted: bool
) -> None:
    body: dict[str, Any] = {"reasoning": {"summary": "auto"}} if wants_summary else {}
    if wants_encrypted:
        body["include"] = ["reasoning.encrypted_content"]
    seen = stream(script, chunk=chunk, dialect="open_responses", is_declared=False, **body)
    check_well_formed(seen)
    check_text_is_complete(seen)
    assert [line for event in seen.events for line in event_contract_problems(event)] == []
    assert contract_problems("ResponseResource", seen.resource) == []
    again = [orjson.loads(payload) for payload in replay_events(seen.resource, client_kind="open_responses")]
    check_well_formed(RunOutcome(**{**vars(seen), "events": again}))
    assert [line for event in again for line in event_contract_problems(event)] == []


@settings(max_examples=60, deadline=None)
@given(turns, st.integers(1, 6))
def test_any_run_with_declared_servers_is_well_formed_and_can_be_sent_back(script: list[Any], chunk: int) -> None:
    seen = stream(script, chunk=chunk, dialect="openai", is_declared=True)
    check_well_formed(seen)
    check_text_is_complete(seen)
    again = [orjson.loads(payload) for payload in replay_events(seen.resource)]
    check_well_formed(RunOutcome(**{**vars(seen), "events": again}))
    read_request({"model": "m", "input": [*seen.resource["output"], {"role": "user", "content": "go on"}]})


def test_a_background_response_is_queued_first() -> None:
    writer = ResponseWriter(
        read_request({"model": "m", "input": "hi", "background": True}), response_id="resp_1", created_at=CREATED_AT
    )
    events = [orjson.loads(each) for each in [*writer.write_queued(), *writer.feed(RunStarted(run_id="r", model="m"))]]
    assert [(event["type"], event["response"]["status"]) for event in events] == [
        ("response.created", "queued"),
        ("response.queued", "queued"),
        ("response.in_progress", "in_progress"),
    ]
    assert [line for event in events for line in event_contract_problems(event)] == []
    assert (writer.sequence, writer.is_finished) == (3, False)
