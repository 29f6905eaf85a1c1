"""An agent of Haystack on its OpenAI generator, over the Responses API."""

from __future__ import annotations

from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, StreamingChunk
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

generator = OpenAIResponsesChatGenerator(
    model=MODEL, api_base_url=BASE_URL, api_key=Secret.from_token(API_KEY), max_retries=0
)
agent = Agent(chat_generator=generator, tools=[create_tool_from_function(get_time)], system_prompt=INSTRUCTIONS)


async def ask(question: str) -> str:
    result = await agent.run_async(messages=[ChatMessage.from_user(question)])
    return str(result["messages"][-1].text)


async def ask_streamed(question: str) -> str:
    pieces = []

    async def receive(chunk: StreamingChunk) -> None:
        pieces.append(chunk.content)

    await agent.run_async(messages=[ChatMessage.from_user(question)], streaming_callback=receive)
    return "".join(pieces)


ask_all(ask, ask_streamed)
