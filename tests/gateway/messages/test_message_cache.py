"""Marks for the prompt cache at `/v1/messages`: a client's arrive as they are; without any, there are ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import PromptCache, ScriptedModel, say, spend

HOUR = {"type": "ephemeral", "ttl": "1h"}
LONG = "A rule for all cases. " * 100
BODY: dict[str, Any] = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}


def marks_of(body: Any) -> int:
    return orjson.dumps(body).count(b'"cache_control"')


@async_test(60)
async def test_marks_of_a_client_arrive_and_its_usage_says_what_they_did(tmp_path: Path) -> None:
    cache = PromptCache(minimum=256)
    system = [{"type": "text", "text": LONG, "cache_control": HOUR}]
    tools = [{"name": "t", "description": LONG, "input_schema": {"type": "object"}, "cache_control": HOUR}]
    said = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    marked = {**BODY, "system": system, "tools": tools, "messages": [{"role": "user", "content": [said]}]}
    model = ScriptedModel(lambda _: [say("ok"), spend(0, 5)])
    async with run_gateway(tmp_path, model, dialect="anthropic", prompt_cache=cache) as gateway:
        found = []
        more = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "And now?"}]
        for body in (marked, {**marked, "messages": [*marked["messages"], *more]}):
            code, answer = await gateway.send("POST", "/v1/messages", body)
            assert code == 200, answer
            found.append(answer["usage"])
        sent = gateway.model_requests
        assert [marks_of(each) for each in sent] == [3, 3]
        assert (sent[0]["system"], sent[0]["tools"][0]["cache_control"]) == (system, HOUR)
        assert sent[0]["messages"][0]["content"] == [said]
        first, second = found
        assert first["cache_creation_input_tokens"] == sum(first["cache_creation"].values()) > 0
        assert (
            first["cache_creation"]["ephemeral_1h_input_tokens"] > first["cache_creation"]["ephemeral_5m_input_tokens"]
        )
        assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
        assert 0 < second["input_tokens"] < 50

        code, _ = await gateway.send("POST", "/v1/messages", {**BODY, "cache_control": HOUR})
        assert (code, gateway.model_requests[-1]["cache_control"]) == (200, HOUR)
        many = [{**said, "text": str(number)} for number in range(5)]
        code, refused = await gateway.send(
            "POST", "/v1/messages", {**BODY, "messages": [{"role": "user", "content": many}]}
        )
        assert code == 400
        assert "A maximum of 4 blocks" in refused["error"]["message"]
        code, answer = await gateway.send("POST", "/v1/messages", {**BODY, "system": LONG})
        assert (code, marks_of(gateway.model_requests[-1])) == (200, 2)
        assert answer["usage"]["cache_creation_input_tokens"] > 0
