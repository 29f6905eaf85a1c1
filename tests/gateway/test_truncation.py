"""`truncation: auto`: the oldest items are left out of a context that is too long for its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from gateway.test_compaction import long_conversation, message, texts_of

from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import status

TOO_LONG = status(400, {"error": {"message": "Too many tokens.", "code": "context_length_exceeded"}})


def served_model(url: str, **more: Any) -> dict[str, Any]:
    llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": url, **more}
    return {"name": MODEL, "model": llm}


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_oldest_items_are_left_out_with_whole_calls_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with ScriptedModel(say("Yes.")).serve() as model:
        models = [served_model(model.url, context_tokens=4_000)]
        async with run_gateway(tmp_path, models=models) as gateway:
            history = [message("developer", "Be brief."), *long_conversation(8), message("user", "And now?")]
            body = {"model": MODEL, "input": history, "truncation": "auto", "instructions": "Speak French."}
            code, answer = await gateway.send("POST", "/v1/responses", body)
            assert (code, answer["truncation"]) == (200, "auto"), answer
        (asked,) = (received.json for received in model.received)
    texts = texts_of(asked)
    assert texts[:2] == ["Speak French.", "Be brief."]
    assert texts[-1] == "And now?"
    assert "Question 7" in texts
    assert "Question 0" not in texts
    called = [each["id"] for entry in asked["messages"] for each in entry.get("tool_calls", ())]
    answered = [entry["tool_call_id"] for entry in asked["messages"] if entry["role"] == "tool"]
    assert called == answered != []
    assert any("gateway.context_truncated left_out=" in record.getMessage() for record in caplog.records)


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_provider_that_finds_the_context_too_long_is_asked_once_more_with_less(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(TOO_LONG, say("Yes."), TOO_LONG, TOO_LONG)) as gateway:
        history = [*long_conversation(8), message("user", "And now?")]
        body = {"model": MODEL, "input": history, "truncation": "auto"}
        code, _ = await gateway.send("POST", "/v1/responses", body)
        assert code == 200
        first, second = map(texts_of, gateway.model_requests)
        assert "Question 0" in first
        assert second == first[-len(second) :]
        assert len("".join(second)) <= len("".join(first)) / 2
        code, answer = await gateway.send("POST", "/v1/responses", body)
        assert (code, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert len(gateway.model_requests) == 4


@pytest.mark.proves("D-25")
@async_test(30)
async def test_without_truncation_a_context_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    async with ScriptedModel(TOO_LONG).serve() as model:
        models = [served_model(model.url, context_tokens=4_000)]
        async with run_gateway(tmp_path, models=models) as gateway:
            body = {"model": MODEL, "input": [*long_conversation(8), message("user", "And now?")]}
            code, answer = await gateway.send("POST", "/v1/responses", body)
    assert (code, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert len(model.received) == 1
