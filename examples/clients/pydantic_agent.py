# pydantic_agent.py
import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(
    base_url=os.environ.get("HOLODECK_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("HOLODECK_KEY", "none"),
)
agent = Agent(OpenAIResponsesModel("demo", provider=provider))


@agent.tool_plain
def ticket_status(number: int) -> str:
    """Get the status of a ticket."""
    return f"ticket {number} is open"


for question in ('echo "hello"', "What is the status of ticket 7?"):
    print(agent.run_sync(question).output)
