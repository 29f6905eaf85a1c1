"""An agent of Strands on its OpenAI model, over the Responses API."""

from __future__ import annotations

from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time
from strands import Agent, tool
from strands.models.openai_responses import OpenAIResponsesModel


def _build_agent() -> Agent:
    model = OpenAIResponsesModel(
        client_args={"base_url": BASE_URL, "api_key": API_KEY, "max_retries": 0}, model_id=MODEL
    )
    return Agent(model=model, tools=[tool(get_time)], system_prompt=INSTRUCTIONS, callback_handler=None)


async def ask(question: str) -> str:
    return str(await _build_agent().invoke_async(question)).strip()


async def ask_streamed(question: str) -> str:
    return "".join([event["data"] async for event in _build_agent().stream_async(question) if "data" in event])


ask_all(ask, ask_streamed)
