"""`response_format`: an answer fits it, or the run fails and says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, messages_of_turn, serve_scripted
from async_tests import async_test
from engine.scripted_agent import open_agent, open_agent_with_server
from gateway.running_gateway import MODEL, run_gateway

from holodeck.lib.limits import DEFAULT_ANSWER_BYTES, MIB
from holodeck.models.items import Message
from holodeck.testing import ScriptedModel
from holodeck.testing.model.script import call, finish, say, spend

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
    "additionalProperties": False,
}
COSTLY = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}$"}}, "required": ["code"]}
FORMAT: Any = {"type": "json_schema", "name": "sum", "schema": SCHEMA}


@async_test
async def test_a_wrong_answer_goes_back_to_the_model_with_the_reason_and_only_the_right_one_is_returned(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(
        [say('{"total": "three"}'), spend(10, 1)], [say("Sorry!"), spend(20, 2)], [say('{"total": 3}'), spend(30, 3)]
    )
    async with open_agent(tmp_path, model, response_format=SCHEMA) as agent:
        result = await agent.run("Add")
    assert (result.status, result.text, result.turns) == ("completed", '{"total": 3}', 1)
    assert [item.text for item in result.items if isinstance(item, Message)] == ['{"total": 3}']
    assert (result.usage.input_tokens, result.usage.output_tokens) == (60, 6)
    reasons = [request.items[-1] for request in model.requests[1:]]
    assert all(isinstance(item, Message) and item.role == "user" for item in reasons)
    first, second = (item.text for item in reasons if isinstance(item, Message))
    assert "total" in first
    assert "number" in first
    assert "not valid JSON" in second


@async_test
async def test_a_model_that_never_fits_fails_the_run_after_two_corrections(tmp_path: Path) -> None:
    model = ScriptedModel(*[say('{"sum": 3}')] * 3)
    async with open_agent(tmp_path, model, response_format=SCHEMA) as agent:
        result = await agent.run("Add")
    assert result.status == "failed"
    assert result.error is not None
    assert "no answer that fits 'response_format' in 3 tries" in result.error.message
    assert "total" in result.error.message
    assert len(model.requests) == 3


@async_test
async def test_a_schema_that_takes_long_to_check_is_enforced_too(tmp_path: Path) -> None:
    model = ScriptedModel(say('{"code": "abc"}'), say('{"code": "ABC"}'))
    async with open_agent(tmp_path, model, response_format=COSTLY) as agent:
        result = await agent.run("Code?")
    assert (result.status, result.text) == ("completed", '{"code": "ABC"}')


@async_test
async def test_words_before_a_tool_call_and_an_answer_that_was_cut_are_not_corrected(tmp_path: Path) -> None:
    model = ScriptedModel([say("Let me see."), call("add", a=1, b=2)], [say('{"tot'), finish("length")])
    async with open_agent_with_server(tmp_path, model, response_format=SCHEMA) as (agent, _):
        result = await agent.run("Add")
    assert (result.status, result.tool_calls, len(model.requests)) == ("incomplete", 1, 2)


@async_test
async def test_an_endless_answer_is_cut_and_not_buffered_until_it_fits(tmp_path: Path) -> None:
    model = ScriptedModel([say("x" * MIB) for _ in range(64)])
    async with open_agent(tmp_path, model, response_format=SCHEMA) as agent:
        result = await agent.run("Add")
    assert (result.status, result.cause, len(model.requests)) == ("incomplete", "max_output_tokens", 1)
    assert len(result.text) == DEFAULT_ANSWER_BYTES


@async_test(60)
async def test_a_command_whose_model_never_fits_ends_with_1_and_the_reason(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with serve_scripted(*[say("three")] * 3) as model:
        project.write(model, more=f"response_format: {json.dumps(SCHEMA)}\n")
        done = await project.run_holodeck("run", "Add")
        assert done.returncode == 1
        assert done.stdout == ""
        assert "no answer that fits 'response_format' in 3 tries: it is not valid JSON" in done.stderr
        assert "does not fit the JSON Schema" in messages_of_turn(model, 2)[-1]["content"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
@async_test
async def test_a_gateway_streams_an_answer_only_once_it_fits(tmp_path: Path, path: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say('{"sum": 3}'), say('{"total": 3}'), chunk=2)) as running:
        client = await running.openai_client()
        if path == "/v1/responses":
            async with client.responses.stream(model=MODEL, input="Add", text={"format": FORMAT}) as stream:
                answer = (await stream.get_final_response()).output_text
        else:
            format_: Any = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA}}
            sent_messages: Any = [{"role": "user", "content": "Add"}]
            async with client.chat.completions.stream(
                model=MODEL, messages=sent_messages, response_format=format_
            ) as chunks:
                answer = (await chunks.get_final_completion()).choices[0].message.content or ""
        assert json.loads(answer) == {"total": 3}
        assert len(running.model_requests) == 2


@async_test
async def test_a_gateway_says_why_no_answer_fits(tmp_path: Path) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {
            "messages": [{"role": "user", "content": "Add"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "sum", "schema": SCHEMA}},
        },
        "/v1/messages": {
            "max_tokens": 99,
            "messages": [{"role": "user", "content": "Add"}],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
        "/v1/responses": {"input": "Add", "text": {"format": FORMAT}},
    }
    async with run_gateway(tmp_path, ScriptedModel(*[say("three")] * 12)) as running:
        for path, fields in bodies.items():
            body = {"model": MODEL, **fields}
            status, said = await running.send("POST", path, body)
            # Packages repeat 408, 409, 429 and 5xx by themselves: each would be three more requests to the model.
            assert status == 422, path
            assert "no answer that fits 'response_format'" in said["error"]["message"]
        assert (said["error"]["type"], said["error"]["code"]) == ("model_error", "answer_does_not_fit")
        events = await running.stream("/v1/responses", {**body, "stream": True})
        assert events[-1]["type"] == "response.failed"
        assert "no answer that fits" in events[-1]["response"]["error"]["message"]
        assert events[-1]["response"]["output"] == []


@async_test
async def test_a_format_that_is_no_schema_is_refused_before_the_model_gets_a_request(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("{}"))) as running:
        wrong = {**FORMAT, "schema": {"type": "banana"}}
        body = {"model": MODEL, "input": "Add", "text": {"format": wrong}}
        status, said = await running.send("POST", "/v1/responses", body)
        assert (status, running.model_requests) == (400, [])
        assert "not a valid JSON Schema" in said["error"]["message"]
