"""A loop of tools of the `anthropic` package: plain and streamed in turn, all messages sent again each time.

Prints the version, the answer, and the usage and the model of each message: `python anthropic_turns.py BASE_URL MODEL`.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
from client_program import API_KEY, BASE_URL, MODEL

DESCRIPTION = "Look up one thing in the register of things, by its number. " * 4
TOOLS: list[Any] = [
    {
        "name": f"look_up_{number}",
        "description": DESCRIPTION,
        "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    }
    for number in range(20)
]
# This package adds the `/v1` itself, and no mark for the prompt cache.
client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY, max_retries=0)
messages: list[Any] = [{"role": "user", "content": "Where are they all?"}]
usages: list[Any] = []
models: list[str] = []
while True:
    request: dict[str, Any] = {"model": MODEL, "max_tokens": 1024, "system": "Be exact. " * 50}
    request |= {"tools": TOOLS, "messages": messages}
    if len(usages) % 2:
        with client.messages.stream(**request) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**request)
    usages.append(message.usage.model_dump())
    models.append(message.model)
    calls = [block for block in message.content if block.type == "tool_use"]
    if not calls:
        break
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": f"It is in {block.input['number']}. " * 10}
        for block in calls
    ]
    messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
text = "".join(block.text for block in message.content if block.type == "text")
print(json.dumps({"version": anthropic.__version__, "answer": text, "usages": usages, "models": models}))
