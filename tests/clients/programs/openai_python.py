"""The loop that OpenAI documents for its `openai` package: run each `function_call`, send the outputs, ask again."""

from __future__ import annotations

import json
from typing import Any

from client_program import API_KEY, BASE_URL, MODEL, ask_all, get_time
from openai import AsyncOpenAI

TOOL = {
    "type": "function",
    "name": "get_time",
    "description": "Get the time at a place.",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
        "additionalProperties": False,
    },
    "strict": True,
}
FUNCTIONS = {"get_time": get_time}
client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)


async def ask(question: str) -> str:
    """Send the whole history with each request."""
    items: list[Any] = [{"role": "user", "content": question}]
    while True:
        response = await client.responses.create(model=MODEL, input=items, tools=[TOOL])
        items += response.output
        outputs = _run_functions(response.output)
        if not outputs:
            return str(response.output_text)
        items += outputs


async def ask_streamed(question: str) -> str:
    """Continue from the response before."""
    items: list[Any] = [{"role": "user", "content": question}]
    previous = None
    while True:
        async with client.responses.stream(
            model=MODEL, input=items, tools=[TOOL], previous_response_id=previous
        ) as stream:
            response = await stream.get_final_response()
        items = _run_functions(response.output)
        if not items:
            return str(response.output_text)
        previous = response.id


def _run_functions(output: Any) -> list[Any]:
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": FUNCTIONS[item.name](**json.loads(item.arguments)),
        }
        for item in output
        if item.type == "function_call"
    ]


ask_all(ask, ask_streamed)
