"""Marks for the prompt cache at `/v1/messages`: a client's arrive as they are; without any, there are ours."""

from __future__ import annotations

import itertools
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


TURNS = 10
CODE_TOOLS = ("Bash", "Edit", "Read", "Write", "Skill", "Workflow", "WebFetch", "WebSearch", "NotebookEdit", "Monitor")


def build_claude_code_body(messages: list[Any]) -> dict[str, Any]:
    """A request in the form of Claude Code 2: two marks in `system`, one at the end of the newest message.

    That is at first an instruction among the messages, which is a plain text in later requests.
    """
    mark = {"type": "ephemeral"}
    *before, last = messages
    *parts, end = last["content"]
    return {
        "model": MODEL,
        "max_tokens": 32_000,
        "stream": True,
        "metadata": {"user_id": orjson.dumps({"device_id": "d", "account_uuid": "", "session_id": "s"}).decode()},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cc_entrypoint=sdk-cli;"},
            {"type": "text", "text": "You are a Claude agent.", "cache_control": mark},
            {"type": "text", "text": LONG, "cache_control": mark},
        ],
        "tools": [
            {"name": name, "description": LONG, "input_schema": {"type": "object", "properties": {}}}
            for name in CODE_TOOLS
        ],
        "messages": [
            *({**each, "content": each["content"][0]["text"]} if each["role"] == "system" else each for each in before),
            {**last, "content": [*parts, {**end, "cache_control": mark}]},
        ],
    }


def as_blocks(messages: list[Any]) -> list[Any]:
    """Messages in one of the forms that mean the same: blocks instead of plain texts, without defaults."""

    def block(content: Any) -> Any:
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    found = []
    for message in messages:
        parts = [
            {**part, "content": block(part["content"])} if "content" in part else part
            for part in block(message["content"])
        ]
        kept = [{name: value for name, value in part.items() if (name, value) != ("is_error", False)} for part in parts]
        found.append({**message, "content": kept})
    return found


@async_test(60)
async def test_requests_in_the_form_of_claude_code_arrive_as_they_are_and_read_from_the_cache(tmp_path: Path) -> None:
    cache = PromptCache(minimum=256)
    calls = [call("Read", file_path=str(number)) for number in range(TURNS - 1)]
    async with run_gateway(
        tmp_path, ScriptedModel(*calls, say("Done.")), dialect="anthropic", prompt_cache=cache
    ) as gateway:
        messages: list[Any] = [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"},
                    {"type": "text", "text": "Read all."},
                ],
            },
            {"role": "system", "content": [{"type": "text", "text": LONG}]},
        ]
        sent = []
        while True:
            sent.append(build_claude_code_body(messages))
            message = join_events(await stream_message(gateway, sent[-1]))
            if message["stop_reason"] != "tool_use":
                break
            answer, results = run_tools(message, {"Read": "A line of the file. " * 20})
            messages += [answer, {**results, "content": [{**part, "is_error": False} for part in results["content"]]}]
        arrived = gateway.model_requests
    assert len(arrived) == TURNS
    for body, original in zip(arrived, sent, strict=True):
        assert marks_of(body) == 3
        assert (body["system"], body["tools"]) == (original["system"], original["tools"])
        assert as_blocks(body["messages"]) == as_blocks(original["messages"])
    for before, usage in itertools.pairwise(cache.billed):
        assert usage.cached_tokens == before.cached_tokens + before.cache_write_tokens
        assert usage.cached_tokens >= 0.9 * usage.input_tokens
