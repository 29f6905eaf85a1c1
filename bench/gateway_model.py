"""The model behind every gateway that is measured: chat completions at zero think time, as little of it as works."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import orjson

EVENTS = 200
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
_USAGE = {"prompt_tokens": 10, "completion_tokens": EVENTS, "total_tokens": 10 + EVENTS}


class Model(asyncio.Protocol):
    """One connection. The name of the model says how it answers: plain, stream, paced, tool or wait."""

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
        if b"/chat/completions" in head.partition(b"\r\n")[0]:
            self._answer(orjson.loads(body))
        else:
            self._refuse("there is nothing but chat completions here")

    def _answer(self, request: dict[str, Any]) -> None:
        name = request["model"]
        last = request["messages"][-1]
        if name == "tool":
            self._answer_with_tool(request, last)
        elif not request.get("stream"):
            self._send_message({"content": WORD}, "stop", streamed=False)
        elif name == "stream":
            self._transport.write(_CHUNKED)
            for number in range(EVENTS):
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
        body = orjson.dumps(answer)
        self._transport.write(_HEAD % (b"application/json", b"Content-Length: %d" % len(body)) + body)

    def _send_paced(self, remaining: int) -> None:
        self._transport.write(_DELTAS[remaining % 2] if remaining else _END)
        if remaining:
            self._timer = asyncio.get_running_loop().call_later(PACE, self._send_paced, remaining - 1)


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
