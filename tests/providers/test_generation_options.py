"""Effort, verbosity and penalties reach the model in its own dialect, or are refused; none is dropped silently."""

from __future__ import annotations

from typing import Any

import pytest
from providers.model_exchange import exchange_error, model_request, run_exchange

from holodeck.testing import say
from holodeck.testing.model.scripted_server import DialectName

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
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("dialect", "option", "value"), UNSUPPORTED)
def test_an_option_that_a_dialect_lacks_is_refused(dialect: DialectName, option: str, value: Any) -> None:
    error = exchange_error(say("ok"), model_request("hello", **{option: value}), dialect=dialect)
    assert option in str(error)
    assert (error.status, error.is_retryable) == (400, False)
