"""Generation fields reach the model in its own dialect, or are refused; only hints are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from providers.model_exchange import exchange_error, model_request, run_exchange, run_with_timeout

from holodeck.models.generation import ANTHROPIC_FIELDS, CHAT_FIELDS, RESPONSES_FIELDS, APIFields
from holodeck.models.model_io import Logprob, TextDelta, ToolSpec
from holodeck.providers.openai_chat import ChatCompletions
from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import say_tokens, status, tier
from holodeck.testing.model.scripted import DialectName

OPTIONS: dict[str, Any] = {
    "effort": "low",
    "summary": "auto",
    "verbosity": "high",
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
}
EXPECTED: list[tuple[DialectName, dict[str, Any]]] = [
    (
        "chat",
        {"reasoning_effort": "low", "verbosity": "high", "presence_penalty": 0.5, "frequency_penalty": -0.5},
    ),
    (
        "responses",
        {
            "reasoning": {"effort": "low", "summary": "auto"},
            "text": {"verbosity": "high"},
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
        },
    ),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("dialect", "expected"), EXPECTED, ids=[dialect for dialect, _ in EXPECTED])
def test_options_are_sent_in_the_fields_of_the_dialect(dialect: DialectName, expected: dict[str, Any]) -> None:
    found = run_exchange(say("ok"), model_request("hello", **OPTIONS), dialect=dialect).body
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("effort", "sent"), [("high", "high"), ("minimal", "low"), ("none", None), (None, None)])
def test_effort_is_part_of_the_output_configuration_of_anthropic(effort: str | None, sent: str | None) -> None:
    found = run_exchange(say("ok"), model_request("hello", effort=effort), dialect="anthropic").body
    assert found.get("output_config", {}).get("effort") == sent


@pytest.mark.proves("D-25")
def test_stop_sequences_are_sent_where_the_dialect_has_them() -> None:
    chat = run_exchange(say("ok"), model_request("hello", stop=("Observation:",), seed=7)).body
    assert (chat["stop"], chat["seed"]) == (["Observation:"], 7)
    assert run_exchange(say("ok"), model_request("hello", stop=("x",)), dialect="anthropic").body["stop_sequences"] == [
        "x"
    ]


UNSUPPORTED: list[tuple[DialectName, str, Any]] = [
    ("anthropic", "presence_penalty", 0.5),
    ("anthropic", "frequency_penalty", -0.5),
    ("anthropic", "verbosity", "high"),
    ("anthropic", "seed", 0),
    ("responses", "seed", 0),
    ("responses", "stop", ("x",)),
    ("anthropic", "top_logprobs", 0),
    ("anthropic", "service_tier", "flex"),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("dialect", "option", "value"), UNSUPPORTED)
def test_an_option_that_a_dialect_lacks_is_refused(dialect: DialectName, option: str, value: Any) -> None:
    error = exchange_error(say("ok"), model_request("hello", **{option: value}), dialect=dialect)
    assert option in str(error)
    assert (error.status, error.is_retryable) == (400, False)
    assert error.code == "unsupported_parameter"


HINTS: dict[str, Any] = {
    "service_tier": "default",
    "prompt_cache_key": "cache-1",
    "safety_identifier": "person-1",
    "user": "ann",
}
SENT_HINTS: list[tuple[DialectName, dict[str, Any]]] = [
    ("chat", HINTS),
    ("responses", HINTS),
    ("anthropic", {"service_tier": "standard_only", "metadata": {"user_id": "person-1"}}),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("dialect", "expected"), SENT_HINTS, ids=[dialect for dialect, _ in SENT_HINTS])
def test_hints_are_sent_in_the_fields_that_the_dialect_has(dialect: DialectName, expected: dict[str, Any]) -> None:
    plain = run_exchange(say("ok"), model_request("hello"), dialect=dialect).body
    found = run_exchange(say("ok"), model_request("hello", **HINTS), dialect=dialect).body
    assert {name: value for name, value in found.items() if plain.get(name) != value} == expected


@pytest.mark.proves("D-25")
def test_the_older_field_for_the_end_user_serves_where_there_is_no_newer_one() -> None:
    found = run_exchange(say("ok"), model_request("hello", user="ann", service_tier="auto"), dialect="anthropic").body
    assert (found["metadata"], found["service_tier"]) == ({"user_id": "ann"}, "auto")


@pytest.mark.proves("D-25")
def test_a_json_object_is_asked_for_in_the_words_of_the_dialect() -> None:
    request = model_request("hello", json_mode=True)
    assert run_exchange(say("{}"), request).body["response_format"] == {"type": "json_object"}
    assert run_exchange(say("{}"), request, dialect="responses").body["text"] == {"format": {"type": "json_object"}}


TOKENS = (
    Logprob(token="Hel", logprob=-0.25, bytes=(72, 101, 108), top=(Logprob(token="Hal", logprob=-2.5),)),
    Logprob(token="lo", logprob=-0.5),
)


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_log_probabilities_arrive_with_the_tokens_that_they_belong_to(dialect: DialectName) -> None:
    found = run_exchange(say_tokens(*TOKENS), model_request("hello", top_logprobs=1), dialect=dialect)
    assert [event.logprobs for event in found.events if isinstance(event, TextDelta)] == [(TOKENS[0],), (TOKENS[1],)]
    assert found.message == "Hello"
    assert found.body["top_logprobs"] == 1


@pytest.mark.proves("D-25")
def test_log_probabilities_without_alternatives_are_asked_for_without_a_number() -> None:
    request = model_request("hello", top_logprobs=0)
    chat, responses = (run_exchange(say("ok"), request, dialect=dialect).body for dialect in ("chat", "responses"))
    assert chat["logprobs"] is True
    assert responses["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert "top_logprobs" not in chat.keys() | responses.keys()


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_the_answer_has_the_service_tier_that_the_provider_reports(dialect: DialectName) -> None:
    assert run_exchange([say("ok"), tier("priority")], dialect=dialect).answer.service_tier == "priority"
    assert run_exchange(say("ok"), dialect=dialect).answer.service_tier is None


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_an_extra_body_is_merged_into_the_body(dialect: DialectName) -> None:
    request = model_request("hello", extra_body={"top_k": 20, "thinking": {"type": "enabled"}})
    found = run_exchange(say("ok"), request, dialect=dialect).body
    assert (found["top_k"], found["thinking"]) == (20, {"type": "enabled"})


@pytest.mark.proves("D-25")
def test_an_identifier_that_a_server_refuses_is_left_out_from_then_on() -> None:
    def script(received: Any) -> Any:
        unknown = {"detail": [{"type": "extra_forbidden", "loc": ["body", "prompt_cache_key"], "msg": "forbidden"}]}
        return status(422, unknown) if "prompt_cache_key" in received.json else say("ok")

    async def ask_twice() -> tuple[list[str], list[dict[str, Any]]]:
        async with ScriptedModel(script).serve() as server:
            model = ChatCompletions(base_url=server.url, model="m")
            texts = [
                "".join([event.text async for event in model.stream(request) if isinstance(event, TextDelta)])
                for request in (model_request("hello", prompt_cache_key="k", user="ann"),) * 2
            ]
            await model.close()
            return texts, [received.json for received in server.received]

    texts, bodies = run_with_timeout(ask_twice())
    assert texts == ["ok", "ok"]
    assert [(body.get("prompt_cache_key"), body["user"]) for body in bodies] == [
        ("k", "ann"),
        (None, "ann"),
        (None, "ann"),
    ]


@pytest.mark.proves("D-25")
def test_a_refusal_that_only_names_an_identifier_is_reported() -> None:
    refusal = status(400, {"error": {"message": "roles must alternate user/assistant"}})
    error = exchange_error(lambda _: refusal, model_request("hello", user="ann"))
    assert "roles must alternate" in str(error)


FULL_REQUEST = model_request(
    "hello",
    instructions="Be short.",
    tools=(ToolSpec(name="add"),),
    parallel_tool_calls=False,
    response_format={"type": "object"},
    temperature=0.5,
    top_p=0.5,
    max_tokens=20,
    effort="low",
    **HINTS,
)


@pytest.mark.parametrize(
    ("dialect", "fields", "more"),
    [
        ("chat", CHAT_FIELDS, {"stop": ("x",), "seed": 1, "top_logprobs": 2, "verbosity": "low"}),
        ("responses", RESPONSES_FIELDS, {"presence_penalty": 1, "frequency_penalty": 1, "top_logprobs": 2}),
        ("anthropic", ANTHROPIC_FIELDS, {"stop": ("x",)}),
    ],
)
def test_every_member_that_a_dialect_writes_is_known_as_its_own(
    dialect: DialectName, fields: APIFields, more: dict[str, Any]
) -> None:
    """A file with the same name in `extra_body` is refused by that list."""
    found = run_exchange(say("{}"), replace(FULL_REQUEST, **more), dialect=dialect).body
    assert not found.keys() - fields.body
