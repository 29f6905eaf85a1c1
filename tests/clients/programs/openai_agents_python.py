"""An agent of OpenAI's `openai-agents` package."""

from __future__ import annotations

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)
agent = Agent(
    name="Clock",
    instructions=INSTRUCTIONS,
    model=OpenAIResponsesModel(model=MODEL, openai_client=client),
    tools=[function_tool(get_time)],
)


async def ask(question: str) -> str:
    return str((await Runner.run(agent, question)).final_output)


async def ask_streamed(question: str) -> str:
    run = Runner.run_streamed(agent, question)
    async for _event in run.stream_events():
        pass
    return str(run.final_output)


ask_all(ask, ask_streamed)
