# llamaindex_agent.py
import asyncio
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


def ticket_status(number: int) -> str:
    """Get the status of a ticket."""
    return f"ticket {number} is open"


async def main() -> None:
    model = OpenAILike(
        model="demo",
        api_base=os.environ.get("HOLODECK_URL", "http://127.0.0.1:8080/v1"),
        api_key=os.environ.get("HOLODECK_KEY", "none"),
        is_chat_model=True,
        is_function_calling_model=True,
    )
    agent = FunctionAgent(tools=[ticket_status], llm=model)
    for question in ('echo "hello"', "What is the status of ticket 7?"):
        print(await agent.run(question))


asyncio.run(main())
