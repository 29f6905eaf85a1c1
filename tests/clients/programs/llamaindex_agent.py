"""An agent of LlamaIndex on its OpenAI model, over the Responses API."""

from __future__ import annotations

from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time
from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.llms.openai import OpenAIResponses


def _build_agent(*, streaming: bool) -> FunctionAgent:
    llm = OpenAIResponses(model=MODEL, api_base=BASE_URL, api_key=API_KEY, max_retries=0, context_window=100_000)
    return FunctionAgent(tools=[get_time], llm=llm, system_prompt=INSTRUCTIONS, streaming=streaming)


async def ask(question: str) -> str:
    return str(await _build_agent(streaming=False).run(question))


async def ask_streamed(question: str) -> str:
    run = _build_agent(streaming=True).run(question)
    answer = ""
    async for event in run.stream_events():
        if isinstance(event, AgentStream):
            answer += event.delta
    await run
    return answer


ask_all(ask, ask_streamed)
