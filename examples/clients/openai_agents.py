# openai_agents.py
import asyncio
import os

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI


@function_tool
def ticket_status(number: int) -> str:
    """Get the status of a ticket."""
    return f"ticket {number} is open"


async def main() -> None:
    # Its traces would go to OpenAI, with your OpenAI key.
    set_tracing_disabled(True)
    client = AsyncOpenAI(
        base_url=os.environ.get("HOLODECK_URL", "http://127.0.0.1:8080/v1"),
        api_key=os.environ.get("HOLODECK_KEY", "none"),
    )
    model = OpenAIResponsesModel(model="demo", openai_client=client)
    agent = Agent(name="Helper", model=model, tools=[ticket_status])
    for question in ('echo "hello"', "What is the status of ticket 7?"):
        print((await Runner.run(agent, question)).final_output)


asyncio.run(main())
