"""The model behind every gateway that is measured, at zero think time, as little of it as works.

It answers chat completions, which ours and LiteLLM ask for, and `/v1/responses`, which smg and agentic-api ask for.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

MODELS = ("plain", "long", "stream", "paced", "tool", "wait")
EVENTS = 200
LONG_TOKENS = 500
"""Tokens of the answer of the model `long`, each an event where it is streamed."""
WORD = "word "
OTHER_WORD = "more "
"""Every second event: LiteLLM takes a model that repeats one word for a broken one."""
TOOL = "echo"
TOOL_TEXT = "hello"
"""What the tool is asked to say, and must have said before the model is content."""
PACE = 0.005
"""Seconds between two events of the model that writes as a real one does: each is read and passed on by itself."""

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n"
_CHUNKED = _HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked")
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b"
_NUMBERS = itertools.count(1)
"""For ids: agentic-api stores what it gets under them."""
_USAGE = {"prompt_tokens": 10, "completion_tokens": EVENTS, "total_tokens": 10 + EVENTS}


class Model(asyncio.Protocol):
    """One connection. The name of the model, one of `MODELS`, says how it answers."""

    def __init__(self) -> None:
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        lowered = head.lower()
        if not end:
            return
        if b"transfer-encoding: chunked" in lowered:
            if not rest.endswith(b"0\r\n\r\n"):
                return
            body = _join_chunks(rest)
        else:
            body = rest
            if len(rest) < int(lowered.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0):
                return
        self._buffer = b""
        line = head.partition(b"\r\n")[0]
        if b"/chat/completions" in line:
            self._answer(orjson.loads(body))
        elif b"/responses" in line:
            self._answer_response(orjson.loads(body))
        elif line.startswith(b"GET"):
            self._send_json({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})
        else:
            self._refuse("there are only chat completions and responses here")

    def _answer(self, request: dict[str, Any]) -> None:
        name = request["model"]
        last = request["messages"][-1]
        if name == "tool":
            self._answer_with_tool(request, last)
        elif not request.get("stream"):
            self._send_message({"content": WORD * _length_of(name)}, "stop", streamed=False)
        elif name in ("stream", "long"):
            self._transport.write(_CHUNKED)
            for number in range(_length_of(name)):
                self._transport.write(_DELTAS[number % 2])
            self._transport.write(_END)
        elif name == "paced":
            self._transport.write(_CHUNKED)
            self._send_paced(EVENTS)
        elif name == "wait":
            self._transport.write(_CHUNKED + _DELTAS[0])
        else:
            self._send_message({"content": WORD}, "stop", streamed=True)

    def _answer_with_tool(self, request: dict[str, Any], last: dict[str, Any]) -> None:
        """Call the tool, then finish once its output has arrived."""
        streamed = bool(request.get("stream"))
        offered = [tool["function"]["name"] for tool in request.get("tools", ())]
        name = next((name for name in offered if name.endswith(TOOL)), None)
        if name is None:
            self._refuse(f"the tool is not offered, only: {offered}")
        elif last["role"] != "tool":
            call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": _ARGUMENTS}}
            self._send_message({"tool_calls": [call]}, "tool_calls", streamed=streamed)
        elif TOOL_TEXT not in str(last["content"]):
            self._refuse(f"the tool was not called: {last}")
        else:
            self._send_message({"content": WORD}, "stop", streamed=streamed)

    def _answer_response(self, request: dict[str, Any]) -> None:
        """Answer as `/v1/responses` does. Of the models only plain, long, stream and tool are asked for here."""
        name, items = request["model"], request["input"]
        is_answered = isinstance(items, list) and items[-1].get("type") == "function_call_output"
        offered = [tool["name"] for tool in request.get("tools") or () if tool["type"] == "function"]
        called = next((tool for tool in offered if tool.endswith(TOOL)), None)
        if name == "tool" and not is_answered and called is None:
            self._refuse(f"the tool is not offered, only: {offered}")
        elif name == "tool" and not is_answered:
            self._send_response(request, {"type": "function_call", "name": called, "arguments": _ARGUMENTS})
        elif name == "tool" and TOOL_TEXT not in str(items[-1]["output"]):
            self._refuse(f"the tool was not called: {items[-1]}")
        else:
            words = [(WORD, OTHER_WORD)[number % 2] for number in range(_length_of(name))]
            self._send_response(request, {"type": "message", "role": "assistant"}, words)

    def _send_response(self, request: dict[str, Any], item: dict[str, Any], words: Sequence[str] = ()) -> None:
        finished = _finished_item(item, "".join(words))
        response = _response(request, [finished])
        if not request.get("stream"):
            self._send_json(response)
            return
        self._transport.write(_CHUNKED)
        for event in _response_events(request, finished, words, response):
            self._transport.write(event)
        self._transport.write(b"0\r\n\r\n")

    def _refuse(self, why: str) -> None:
        body = orjson.dumps({"error": {"message": why}})
        self._transport.write(_BAD_REQUEST % (len(body), body))

    def _send_message(self, message: dict[str, Any], finish: str, *, streamed: bool) -> None:
        if streamed:
            calls = [{"index": 0, **call} for call in message.get("tool_calls", ())]
            delta = {**message, "tool_calls": calls} if calls else message
            self._transport.write(_CHUNKED + _event(_chunk(delta)) + _last_events(finish))
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
        answer = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": _USAGE,
        }
        self._send_json(answer)

    def _send_json(self, answer: dict[str, Any]) -> None:
        body = orjson.dumps(answer)
        self._transport.write(_HEAD % (b"application/json", b"Content-Length: %d" % len(body)) + body)

    def _send_paced(self, remaining: int) -> None:
        self._transport.write(_DELTAS[remaining % 2] if remaining else _END)
        if remaining:
            self._timer = asyncio.get_running_loop().call_later(PACE, self._send_paced, remaining - 1)


def _length_of(name: str) -> int:
    """Return the number of words, or events, in the answer of a model."""
    return {"long": LONG_TOKENS, "stream": EVENTS}.get(name, 1)


def _finished_item(item: dict[str, Any], text: str) -> dict[str, Any]:
    if item["type"] == "function_call":
        return {"id": f"fc_{next(_NUMBERS)}", "call_id": "call_1", "status": "completed", **item}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": f"msg_{next(_NUMBERS)}", "status": "completed", "content": [part], **item}


def _response(request: dict[str, Any], output: list[dict[str, Any]], status: str = "completed") -> dict[str, Any]:
    """Return the object of `/v1/responses`, with the fields that the strictest of its readers wants."""
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 10, "output_tokens": EVENTS, "total_tokens": 10 + EVENTS, **details}
    return {
        "id": f"resp_{next(_NUMBERS)}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": request["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": request.get("tools") or [],
        "usage": usage if status == "completed" else None,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
    }


def _response_events(
    request: dict[str, Any], item: dict[str, Any], words: Sequence[str], response: dict[str, Any]
) -> Iterator[bytes]:
    """Yield the events of a streamed response with one item, encoded as chunks."""
    place = {"item_id": item["id"], "output_index": 0}
    empty: dict[str, Any] = {"content": []} if "content" in item else {"arguments": ""}
    started = {**item, "status": "in_progress", **empty}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": _response(request, [], "in_progress")}),
        ("response.in_progress", {"response": _response(request, [], "in_progress")}),
        ("response.output_item.added", {"output_index": 0, "item": started}),
    ]
    if words:
        text = "".join(words)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        place = {**place, "content_index": 0}
        events.append(("response.content_part.added", {**place, "part": part}))
        events += [("response.output_text.delta", {**place, "delta": word, "logprobs": []}) for word in words]
        events.append(("response.output_text.done", {**place, "text": text, "logprobs": []}))
        events.append(("response.content_part.done", {**place, "part": {**part, "text": text}}))
    else:
        events.append(("response.function_call_arguments.delta", {**place, "delta": item["arguments"]}))
        events.append(("response.function_call_arguments.done", {**place, "arguments": item["arguments"]}))
    events.append(("response.output_item.done", {"output_index": 0, "item": item}))
    events.append(("response.completed", {"response": response}))
    for number, (kind, event) in enumerate(events):
        data = orjson.dumps({"type": kind, "sequence_number": number, **event})
        encoded = b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
        yield b"%x\r\n%b\r\n" % (len(encoded), encoded)


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


def _encode_chunk(data: bytes) -> bytes:
    event = b"data: %b\n\n" % data
    return b"%x\r\n%b\r\n" % (len(event), event)


def _event(chunk: dict[str, Any]) -> bytes:
    return _encode_chunk(orjson.dumps(chunk))


def _last_events(finish: str) -> bytes:
    usage = {**_chunk({}), "choices": [], "usage": _USAGE}
    return _event(_chunk({}, finish)) + _event(usage) + _encode_chunk(b"[DONE]") + b"0\r\n\r\n"


_ARGUMENTS = orjson.dumps({"text": TOOL_TEXT}).decode()
_DELTAS = [_event(_chunk({"content": word})) for word in (WORD, OTHER_WORD)]
_END = _last_events("stop")


def _join_chunks(rest: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return b"".join(parts)
        parts.append(rest[:length])
        rest = rest[length + 2 :]


async def main() -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    # The stock loop: uvloop would send a whole burst at once, and no model does.
    server = await loop.create_server(Model, "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await over.wait()


if __name__ == "__main__":
    asyncio.run(main())
