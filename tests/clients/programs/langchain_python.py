"""An agent of LangChain on its OpenAI model, over the Responses API."""

from __future__ import annotations

from client_program import API_KEY, BASE_URL, INSTRUCTIONS, MODEL, ask_all, get_time
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

model = ChatOpenAI(base_url=BASE_URL, api_key=API_KEY, model=MODEL, use_responses_api=True, max_retries=0)
agent = create_agent(model, [get_time], system_prompt=INSTRUCTIONS)


async def ask(question: str) -> str:
    state = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
    return str(state["messages"][-1].text)


async def ask_streamed(question: str) -> str:
    answer = ""
    async for message, _ in agent.astream(
        {"messages": [{"role": "user", "content": question}]}, stream_mode="messages"
    ):
        if message.type == "AIMessageChunk":
            answer += message.text
    return answer


ask_all(ask, ask_streamed)
