# langchain_agent.py
import os

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def ticket_status(number: int) -> str:
    """Get the status of a ticket."""
    return f"ticket {number} is open"


model = ChatOpenAI(
    model="demo",
    base_url=os.environ.get("HOLODECK_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("HOLODECK_KEY", "none"),
    use_responses_api=True,
)
agent = create_agent(model, tools=[ticket_status])
for question in ('echo "hello"', "What is the status of ticket 7?"):
    result = agent.invoke({"messages": [{"role": "user", "content": question}]})
    print(result["messages"][-1].text)
