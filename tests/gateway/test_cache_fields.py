"""What requests and answers say of prompt caches: hints, and the tokens that a provider has read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import ScriptedModel, say, spend
from holodeck.testing.model.scripted import DialectName

HINTS = {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": {"ttl": "30m"}}
BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
DIALECTS: tuple[DialectName, ...] = ("chat", "responses", "anthropic")


@pytest.mark.parametrize("dialect", DIALECTS)
@async_test(60)
async def test_hints_of_openai_s_apis_reach_models_that_have_them_and_are_never_an_error(
    tmp_path: Path, dialect: DialectName
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("ok")), dialect=dialect) as gateway:
        for path, name, kind in (
            ("/v1/responses", "input", "input_text"),
            ("/v1/chat/completions", "messages", "text"),
        ):
            asked = [{"role": "user", "content": [{"type": kind, "text": "Hi", **BREAKPOINT}]}]
            code, answer = await gateway.send("POST", path, {"model": MODEL, name: asked, **HINTS})
            assert code == 200, answer
        sent = gateway.model_requests
    if dialect == "anthropic":
        assert "prompt_cache" not in str(sent)
    if dialect == "responses":
        for body in sent:
            assert {name: body.get(name) for name in HINTS} == HINTS
            assert body["input"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}


@pytest.mark.parametrize("dialect", DIALECTS)
@async_test(60)
async def test_tokens_read_from_a_cache_and_written_to_it_are_told_by_each_api_and_counted(
    tmp_path: Path, dialect: DialectName
) -> None:
    model = ScriptedModel(lambda _: [say("ok"), spend(10_000, 100, cached=4_000, cache_write=2_000)])
    messages = [{"role": "user", "content": "Hi"}]
    async with run_gateway(tmp_path, model, dialect=dialect) as gateway:
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"})
        _, chat = await gateway.send("POST", "/v1/chat/completions", {"model": MODEL, "messages": messages})
        body = {"model": MODEL, "messages": messages, "max_tokens": 99}
        _, message = await gateway.send("POST", "/v1/messages", body)
        _, run = await gateway.send("GET", f"/v1/runs/{response['id']}")
        _, usage = await gateway.send("GET", "/v1/usage?bucket=day")
        metrics = (await gateway.send("GET", "/metrics"))[1].decode()
    for told, name in ((response["usage"], "input"), (chat["usage"], "prompt")):
        details: dict[str, Any] = told[f"{name}_tokens_details"]
        assert (told[f"{name}_tokens"], details["cached_tokens"], details["cache_write_tokens"]) == (
            10_000,
            4_000,
            2_000,
        )
    counts = {name: message["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")}
    assert counts == {"input_tokens": 4_000, "cache_read_input_tokens": 4_000}
    assert message["usage"]["cache_creation_input_tokens"] == 2_000
    assert (run["usage"]["cached_tokens"], run["usage"]["cache_write_tokens"]) == (4_000, 2_000)
    assert (usage["data"][0]["cached_tokens"], usage["data"][0]["cache_write_tokens"]) == (12_000, 6_000)
    for kind, count in (("cached_input", 12_000), ("cache_write_input", 6_000)):
        assert any(f'"{kind}"' in line and line.endswith(f" {count}.0") for line in metrics.splitlines())
