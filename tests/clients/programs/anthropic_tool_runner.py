"""The tool runner of the `anthropic` package, which runs functions of the program by itself."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic, beta_async_tool
from client_program import API_KEY, BASE_URL, MODEL, ask_all
from client_program import get_time as find_time

# This package adds the `/v1` itself.
client = AsyncAnthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY, max_retries=0)


@beta_async_tool
async def get_time(place: str) -> str:
    """Get the time at a place.

    Args:
        place: The name of the place.
    """
    return find_time(place)


async def ask(question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=1024, messages=messages, tools=[get_time])
    return _text(await runner.until_done())


async def ask_streamed(question: str) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=1024, messages=messages, tools=[get_time], stream=True
    )
    answer = ""
    async for stream in runner:
        answer = _text(await stream.get_final_message())
    return answer


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


ask_all(ask, ask_streamed)
