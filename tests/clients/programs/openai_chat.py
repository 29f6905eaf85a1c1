"""The loop that OpenAI documents for chat completions in its `openai` package."""

from __future__ import annotations

import json
from typing import Any

from client_program import API_KEY, BASE_URL, MODEL, ask_all, get_time
from openai import AsyncOpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "Get the time at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
FUNCTIONS = {"get_time": get_time}
client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)


async def ask(question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        completion = await client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
        message = completion.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages += [message, *_run_functions(message.tool_calls)]


async def ask_streamed(question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        async with client.chat.completions.stream(model=MODEL, messages=messages, tools=[TOOL]) as stream:
            completion = await stream.get_final_completion()
        message = completion.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages += [message.model_dump(exclude_none=True), *_run_functions(message.tool_calls)]


def _run_functions(calls: Any) -> list[Any]:
    return [
        {
            "role": "tool",
            "tool_call_id": call.id,
            "content": FUNCTIONS[call.function.name](**json.loads(call.function.arguments)),
        }
        for call in calls
    ]


ask_all(ask, ask_streamed)
