"""An agent of Pydantic AI on its OpenAI model, over the Responses API."""

from __future__ import annotations

from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY))
agent = Agent(model, instructions=INSTRUCTIONS, tools=[get_time])


async def ask(question: str) -> str:
    return str((await agent.run(question)).output)


async def ask_streamed(question: str) -> str:
    async with agent.run_stream(question) as run:
        return "".join([delta async for delta in run.stream_text(delta=True)])


ask_all(ask, ask_streamed)
