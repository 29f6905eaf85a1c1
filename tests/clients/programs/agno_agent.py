"""An agent of Agno on its OpenAI model, over the Responses API."""

from __future__ import annotations

from agno.agent import Agent
from agno.models.openai import OpenAIResponses
from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time

agent = Agent(
    model=OpenAIResponses(id=MODEL, base_url=BASE_URL, api_key=API_KEY, max_retries=0),
    tools=[get_time],
    instructions=INSTRUCTIONS,
    telemetry=False,
)


async def ask(question: str) -> str:
    return str((await agent.arun(question)).content)


async def ask_streamed(question: str) -> str:
    return "".join(
        [event.content or "" async for event in agent.arun(question, stream=True) if hasattr(event, "content")]
    )


ask_all(ask, ask_streamed)
