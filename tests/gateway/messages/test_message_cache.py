"""Marks for the prompt cache at `/v1/messages`: a client's arrive as they are; without any, there are ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from async_tests import async_test
from gateway.messages.message_client import join_events, run_tools, stream_message
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import PromptCache, ScriptedModel, call, say, spend

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


def build_claude_code_body(messages: list[Any]) -> dict[str, Any]:
    """A request in the form of Claude Code: two marks in `system`, one at the end of the newest message."""
    mark = {"type": "ephemeral"}
    *before, last = messages
    *parts, end = last["content"]
    return {
        "model": MODEL,
        "max_tokens": 32_000,
        "stream": True,
        "metadata": {"user_id": "user_1_account__session_2"},
        "system": [
            {"type": "text", "text": "You are a Claude agent.", "cache_control": mark},
            {"type": "text", "text": LONG, "cache_control": mark},
        ],
        "tools": [
            {"name": name, "description": LONG, "input_schema": {"type": "object", "properties": {}}}
            for name in ("Bash", "Read", "Edit")
        ],
        "messages": [*before, {**last, "content": [*parts, {**end, "cache_control": mark}]}],
    }


@async_test(60)
async def test_requests_in_the_form_of_claude_code_keep_their_three_marks_and_read_from_the_cache(
    tmp_path: Path,
) -> None:
    cache = PromptCache(minimum=256)
    model = ScriptedModel(call("Read", file_path="a"), call("Read", file_path="b"), say("Done."))
    async with run_gateway(tmp_path, model, dialect="anthropic", prompt_cache=cache) as gateway:
        messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Read both."}]}]
        sent = []
        while True:
            sent.append(build_claude_code_body(messages))
            message = join_events(await stream_message(gateway, sent[-1]))
            if message["stop_reason"] != "tool_use":
                break
            messages += run_tools(message, {"Read": "A line of the file. " * 20})
        arrived = gateway.model_requests
    assert [marks_of(body) for body in arrived] == [3, 3, 3]
    assert [body["system"] for body in arrived] == [body["system"] for body in sent]
    assert [body["tools"] for body in arrived] == [body["tools"] for body in sent]
    assert [body["messages"][-1]["content"][-1]["cache_control"] for body in arrived] == [{"type": "ephemeral"}] * 3
    for before, usage in zip(cache.billed, cache.billed[1:], strict=False):
        assert usage.cached_tokens == before.cached_tokens + before.cache_write_tokens
        assert usage.cached_tokens > 0.8 * usage.input_tokens
