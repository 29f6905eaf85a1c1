"""Generation fields of a request reach the model, and the response says what the provider reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.models.model_io import Logprob
from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import say_tokens, tier

TOKENS = (
    Logprob(token="Hel", logprob=-0.25, bytes=(72, 101, 108), top=(Logprob(token="Hal", logprob=-2.5, bytes=(72,)),)),
    Logprob(token="lo", logprob=-0.5),
)
FIRST = {
    "token": "Hel",
    "logprob": -0.25,
    "bytes": [72, 101, 108],
    "top_logprobs": [{"token": "Hal", "logprob": -2.5, "bytes": [72]}],
}
SECOND = {"token": "lo", "logprob": -0.5, "bytes": [108, 111], "top_logprobs": []}
FIELDS: dict[str, Any] = {
    "service_tier": "flex",
    "prompt_cache_key": "cache-1",
    "safety_identifier": "person-1",
    "user": "ann",
    "stop": ["END"],
    "seed": 7,
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": MODEL, "input": "Hi"},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]},
}


def _gateway_with(model: dict[str, Any]) -> dict[str, Any]:
    return {"models": [{"name": MODEL, "model": model}]}


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("path", QUESTIONS)
@async_test(30)
async def test_each_field_reaches_the_model_and_the_used_tier_comes_back(tmp_path: Path, path: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel([say("ok"), tier("priority")], say("ok"))) as gateway:
        status, said = await gateway.send("POST", path, {**QUESTIONS[path], **FIELDS})
        _, plain = await gateway.send("POST", path, QUESTIONS[path])
        assert status == 200, said
        assert {name: gateway.model_requests[0].get(name) for name in FIELDS} == FIELDS
        assert not gateway.model_requests[1].keys() & FIELDS.keys()
        assert (said["service_tier"], plain["service_tier"]) == ("priority", "default")
        if path == "/v1/responses":
            asked = {name: value for name, value in FIELDS.items() if name != "service_tier"}
            assert {name: said[name] for name in asked} == asked


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("path", "wish"),
    [
        ("/v1/responses", {"text": {"format": {"type": "json_object"}}}),
        ("/v1/chat/completions", {"response_format": {"type": "json_object"}}),
    ],
)
@async_test(30)
async def test_a_json_object_is_asked_of_the_model_and_enforced(
    tmp_path: Path, path: str, wish: dict[str, Any]
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("no object"), say('{"a": 1}'))) as gateway:
        status, said = await gateway.send("POST", path, {**QUESTIONS[path], **wish})
        assert status == 200, said
        assert '{"a": 1}' in str(said)
        assert [body["response_format"] for body in gateway.model_requests] == [{"type": "json_object"}] * 2


@pytest.mark.proves("D-25")
@async_test(30)
async def test_log_probabilities_are_in_the_parts_and_events_of_a_response(tmp_path: Path) -> None:
    wish = {**QUESTIONS["/v1/responses"], "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    async with run_gateway(tmp_path, ScriptedModel(*[say_tokens(*TOKENS)] * 2)) as gateway:
        _, whole = await gateway.send("POST", "/v1/responses", wish)
        events = await gateway.stream("/v1/responses", {**wish, "stream": True})
        replayed = await gateway.stream(f"/v1/responses/{whole['id']}?stream=true")
        body = gateway.model_requests[0]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 1)
    assert whole["top_logprobs"] == 1
    assert whole["output"][0]["content"][0]["logprobs"] == [FIRST, SECOND]
    assert _logprobs_of(events, "response.output_text.delta") == [[FIRST], [SECOND]]
    assert _logprobs_of(events, "response.output_text.done") == [[FIRST, SECOND]]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [FIRST, SECOND]
    assert _logprobs_of(replayed, "response.output_text.delta") == [[FIRST, SECOND]]
    assert _logprobs_of(replayed, "response.output_text.done") == [[FIRST, SECOND]]


def _logprobs_of(events: list[dict[str, Any]], kind: str) -> list[Any]:
    return [event["logprobs"] for event in events if event["type"] == kind]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_log_probabilities_are_in_the_choices_and_chunks_of_a_completion(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(*[say_tokens(*TOKENS)] * 2)) as gateway:
        client = await gateway.openai_client()
        wish: Any = {**QUESTIONS["/v1/chat/completions"], "logprobs": True, "top_logprobs": 1}
        whole = await client.chat.completions.create(**wish)
        chunks = [chunk async for chunk in await client.chat.completions.create(**wish, stream=True)]
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.model_dump() == {"content": [FIRST, SECOND], "refusal": None}
    found = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs is not None]
    assert [each.model_dump()["content"] for each in found] == [[FIRST], [SECOND]]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("path", QUESTIONS)
@pytest.mark.parametrize(("field", "value"), [("presence_penalty", 1), ("service_tier", "flex")])
@async_test(30)
async def test_a_field_that_the_provider_does_not_have_is_refused_by_its_name(
    tmp_path: Path, path: str, field: str, value: Any
) -> None:
    async with run_gateway(tmp_path, **_gateway_with({"provider": "rehearsal"})) as gateway:
        for more in ({}, {"stream": True}):
            status, said = await gateway.send("POST", path, {**QUESTIONS[path], field: value, **more})
            assert (status, said["error"]["code"], said["error"]["param"]) == (400, "unsupported_parameter", field)
            assert "rehearsal" in said["error"]["message"]
        hints = {"prompt_cache_key": "k", "safety_identifier": "p", "user": "ann", "service_tier": "auto"}
        assert (await gateway.send("POST", path, {**QUESTIONS[path], **hints}))[0] == 200


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("path", QUESTIONS)
@async_test(30)
async def test_a_parameter_that_the_operator_allows_goes_to_the_model(tmp_path: Path, path: str) -> None:
    async with ScriptedModel(*[say("ok")] * 3).serve() as model:
        llm = {
            "provider": "openai_compatible",
            "name": "m",
            "endpoint": model.url,
            "seed": 1,
            "stop": ["X"],
            "extra_body": {"top_k": 20, "min_p": 0.1},
            "allow_extra_parameters": ["top_k"],
            "headers": {"X-Team": "${TEAM_TOKEN}"},
        }
        environ = {"TEAM_TOKEN": "token-of-the-team"}
        async with run_gateway(tmp_path, environ=environ, **_gateway_with(llm)) as gateway:
            await gateway.send("POST", path, QUESTIONS[path])
            status, said = await gateway.send("POST", path, {**QUESTIONS[path], "top_k": 5, "seed": 2})
            assert status == 200, said
            refused, why = await gateway.send("POST", path, {**QUESTIONS[path], "min_p": 0.5})
    names = ("top_k", "min_p", "seed", "stop")
    sent = [[received.json[name] for name in names] for received in model.received]
    assert sent == [[20, 0.1, 1, ["X"]], [5, 0.1, 2, ["X"]]]
    assert model.received[0].headers["x-team"] == "token-of-the-team"
    assert (refused, why["error"]["code"], why["error"]["param"]) == (400, "unknown_parameter", "min_p")
    assert "allow_extra_parameters" in why["error"]["message"]
