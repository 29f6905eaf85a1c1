"""The loop that Anthropic documents for tools in its `anthropic` package."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic
from client_program import API_KEY, BASE_URL, MODEL, ask_all, get_time

TOOL = {
    "name": "get_time",
    "description": "Get the time at a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
FUNCTIONS = {"get_time": get_time}
# This package adds the `/v1` itself.
client = AsyncAnthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY, max_retries=0)


async def ask(question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        message = await client.messages.create(model=MODEL, max_tokens=1024, messages=messages, tools=[TOOL])
        if message.stop_reason != "tool_use":
            return _text(message)
        messages += _run_functions(message)


async def ask_streamed(question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        async with client.messages.stream(model=MODEL, max_tokens=1024, messages=messages, tools=[TOOL]) as stream:
            message = await stream.get_final_message()
        if message.stop_reason != "tool_use":
            return _text(message)
        messages += _run_functions(message)


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _run_functions(message: Any) -> list[Any]:
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": FUNCTIONS[block.name](**block.input)}
        for block in message.content
        if block.type == "tool_use"
    ]
    return [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


ask_all(ask, ask_streamed)
