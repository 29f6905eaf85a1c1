"""An agent of Microsoft's Agent Framework, over the Responses API."""

from __future__ import annotations

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time

client = OpenAIChatClient(model=MODEL, api_key=API_KEY, base_url=BASE_URL)
agent = Agent(client, INSTRUCTIONS, tools=[get_time])


async def ask(question: str) -> str:
    return str((await agent.run(question)).text)


async def ask_streamed(question: str) -> str:
    stream = agent.run(question, stream=True)
    async for _update in stream:
        pass
    return str((await stream.get_final_response()).text)


ask_all(ask, ask_streamed)
