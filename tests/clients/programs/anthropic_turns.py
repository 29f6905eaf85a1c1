"""A loop of tools of the `anthropic` package, whose prompts are cached.

`python anthropic_turns.py BASE_URL MODEL HOW` prints the version, the answer, and the usage and the model of each
message. HOW is `plain`, all messages sent again each time and streamed every other time; `marked`, the same with marks
for the cache; or `runner`, where the package runs the tools.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
from anthropic import beta_tool
from client_program import API_KEY, BASE_URL, MODEL, QUESTIONS

DESCRIPTION = "Look up one thing in the register of things, by its number. " * 4
SYSTEM = "Be exact. " * 50
NAMES = [f"look_up_{number}" for number in range(20)]
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
MARK = {"type": "ephemeral"}
# This package adds the `/v1` itself, and no mark for the prompt cache.
client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY, max_retries=0)
usages: list[Any] = []
models: list[str] = []


def look_up(number: int) -> str:
    return f"It is in {number}. " * 10


def note(message: Any) -> Any:
    usages.append(message.usage.model_dump())
    models.append(message.model)
    return message


def ask(messages: list[Any], *, is_marked: bool) -> Any:
    tools: list[Any] = [{"name": name, "description": DESCRIPTION, "input_schema": SCHEMA} for name in NAMES]
    system: list[Any] = [{"type": "text", "text": SYSTEM}]
    if is_marked:
        tools[-1]["cache_control"] = system[-1]["cache_control"] = MARK
        *before, last = messages
        *parts, end = last["content"]
        messages = [*before, {**last, "content": [*parts, {**end, "cache_control": MARK}]}]
    request: dict[str, Any] = {"model": MODEL, "max_tokens": 1024, "system": system, "tools": tools}
    request["messages"] = messages
    if len(usages) % 2:
        with client.messages.stream(**request) as stream:
            return note(stream.get_final_message())
    return note(client.messages.create(**request))


def loop(messages: list[Any], *, is_marked: bool) -> Any:
    while True:
        message = ask(messages, is_marked=is_marked)
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return message
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": look_up(block.input["number"])}
            for block in calls
        ]
        messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


def run(messages: list[Any]) -> Any:
    tools = [beta_tool(look_up, name=name, description=DESCRIPTION) for name in NAMES]
    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=1024, system=SYSTEM, tools=tools, messages=messages
    )
    return [note(message) for message in runner][-1]


question: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Where are they all?"}]}]
message = run(question) if QUESTIONS == ["runner"] else loop(question, is_marked=QUESTIONS == ["marked"])
text = "".join(block.text for block in message.content if block.type == "text")
print(json.dumps({"version": anthropic.__version__, "answer": text, "usages": usages, "models": models}))
