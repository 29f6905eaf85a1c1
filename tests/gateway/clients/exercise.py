"""What a program does with the stock `openai` package of any version. Prints what came of it as one JSON object.

Runs in an environment that has nothing but that package: `python exercise.py BASE_URL MODEL`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from openai import OpenAI, __version__
from pydantic import BaseModel


class Sum(BaseModel):
    """The answer that is parsed."""

    total: int


def main() -> None:
    with OpenAI(base_url=sys.argv[1], api_key="hd-anybody", max_retries=0) as client:
        seen = {"version": __version__} | exercise(client, sys.argv[2])
    print(json.dumps(seen))


def exercise(client: Any, model: str) -> dict[str, Any]:
    """Use everything once."""
    made = client.responses.create(model=model, input="sum")
    seen: dict[str, Any] = {"create": made.output_text}
    with client.responses.stream(model=model, input="sum") as stream:
        seen["stream"] = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        seen["final"] = stream.get_final_response().output_text
    seen["parse"] = client.responses.parse(model=model, input="json", text_format=Sum).output_parsed.total
    seen["retrieve"] = client.responses.retrieve(made.id).output_text
    seen["continue"] = client.responses.create(model=model, input="count", previous_response_id=made.id).output_text
    seen["input_items"] = [item.content[0].text for item in client.responses.input_items.list(made.id)]
    client.responses.delete(made.id)
    seen |= (
        _use_declared_server(client, model)
        | _use_background(client, model)
        | _use_conversation(client, model)
        | _use_chat(client, model)
    )
    seen["models"] = [each.id for each in client.models.list()]
    if hasattr(client.responses, "connect"):
        seen["connect"] = _use_websocket(client, model)
    return seen


def _use_declared_server(client: Any, model: str) -> dict[str, Any]:
    tool = {"type": "mcp", "server_label": "sums", "require_approval": "always"}
    asking = client.responses.create(model=model, input="sum", tools=[tool])
    request = asking.output[-1]
    yes = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    done = client.responses.create(model=model, input=[yes], tools=[tool], previous_response_id=asking.id)
    return {"asking": [type(item).__name__ for item in asking.output], "approved": [i.type for i in done.output]}


def _use_background(client: Any, model: str) -> dict[str, Any]:
    waiting = client.responses.create(model=model, input="slow", background=True)
    stopped = client.responses.cancel(waiting.id)
    stream = client.responses.create(model=model, input="sum", background=True, stream=True)
    first = next(iter(stream))
    stream.close()
    rest = list(client.responses.retrieve(first.response.id, stream=True, starting_after=first.sequence_number))
    numbers = [event.sequence_number for event in rest]
    return {
        "cancelled": stopped.status,
        "resumed": rest[-1].response.output_text,
        "gapless": numbers == list(range(1, len(rest) + 1)),
    }


def _use_conversation(client: Any, model: str) -> dict[str, Any]:
    kept = client.conversations.create(items=[{"type": "message", "role": "user", "content": "Remember me."}])
    said = client.responses.create(model=model, input="count", conversation=kept.id).output_text
    listed = [item.type for item in client.conversations.items.list(kept.id, order="asc")]
    return {"conversation": said, "listed": listed, "forgotten": client.conversations.delete(kept.id).deleted}


def _use_chat(client: Any, model: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "sum"}]
    whole = client.chat.completions.create(model=model, messages=messages)
    chunks = client.chat.completions.create(model=model, messages=messages, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return {"chat": whole.choices[0].message.content, "chat_stream": text}


def _use_websocket(client: Any, model: str) -> str:
    with client.responses.connect() as connection:
        connection.response.create(model=model, input="sum", store=False)
        for event in connection:
            if event.type == "response.completed":
                return str(event.response.output_text)
    return ""


if __name__ == "__main__":
    main()
