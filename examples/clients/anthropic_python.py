# anthropic_python.py
import os

from anthropic import Anthropic

client = Anthropic(
    # The package adds the /v1 itself.
    base_url=os.environ.get("HOLODECK_URL", "http://127.0.0.1:8080/v1").removesuffix("/v1"),
    api_key=os.environ.get("HOLODECK_KEY", "none"),
)

# The gateway calls its own tool and answers.
message = client.messages.create(model="demo", max_tokens=1024, messages=[{"role": "user", "content": 'echo "hello"'}])
print(message.content[-1].text)

# The same as a stream.
with client.messages.stream(
    model="demo", max_tokens=1024, messages=[{"role": "user", "content": 'echo "hello"'}]
) as stream:
    print("".join(stream.text_stream))

# A tool of this program: the model calls it, this program runs it.
ticket_status = {
    "name": "ticket_status",
    "description": "Get the status of a ticket",
    "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}
messages = [{"role": "user", "content": "What is the status of ticket 7?"}]
message = client.messages.create(model="demo", max_tokens=1024, messages=messages, tools=[ticket_status])
call = next(block for block in message.content if block.type == "tool_use")
messages += [
    {"role": "assistant", "content": message.content},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "open"}]},
]
message = client.messages.create(model="demo", max_tokens=1024, messages=messages, tools=[ticket_status])
print(message.content[-1].text)
