# openai_python.py
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("HOLODECK_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("HOLODECK_KEY", "none"),
)

# The gateway calls its own tool and answers.
response = client.responses.create(model="demo", input='echo "hello"')
print(response.output_text)

# The same as a stream.
with client.responses.stream(model="demo", input='echo "hello"') as stream:
    print("".join(event.delta for event in stream if event.type == "response.output_text.delta"))

# A function of this program: the model calls it, this program runs it.
ticket_status = {
    "type": "function",
    "name": "ticket_status",
    "description": "Get the status of a ticket",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}
response = client.responses.create(model="demo", input="What is the status of ticket 7?", tools=[ticket_status])
call = next(item for item in response.output if item.type == "function_call")
response = client.responses.create(
    model="demo",
    previous_response_id=response.id,
    input=[{"type": "function_call_output", "call_id": call.call_id, "output": "open"}],
    tools=[ticket_status],
)
print(response.output_text)
