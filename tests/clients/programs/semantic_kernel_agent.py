"""An agent of Semantic Kernel, over the Responses API."""

from __future__ import annotations

from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time
from openai import AsyncOpenAI
from semantic_kernel.agents import OpenAIResponsesAgent
from semantic_kernel.functions import kernel_function


class Clock:
    """The plugin with the client's own function."""

    get_time = staticmethod(kernel_function(get_time))


agent = OpenAIResponsesAgent(
    ai_model_id=MODEL,
    client=AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0),
    name="Clock",
    instructions=INSTRUCTIONS,
    plugins=[Clock()],
)


async def ask(question: str) -> str:
    return str((await agent.get_response(messages=question)).message.content)


async def ask_streamed(question: str) -> str:
    return "".join([str(part.message.content) async for part in agent.invoke_stream(messages=question)])


ask_all(ask, ask_streamed)
