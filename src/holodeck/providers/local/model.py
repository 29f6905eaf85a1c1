"""The local provider: a small language model in this process, with tool calls.

A turn has one of two prompts: one in which the model chooses a tool from a short list or replies, constrained to JSON,
and one without tools in which it answers, used when a tool result is present or no tool may be called.

llama.cpp runs in one worker thread, which loads a model once and processes one request at a time. Chunks of an answer
are passed to the event loop through a queue. Closing the iterator of a request, or the thread's owner calling `close`,
stops the model at its next chunk.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

from holodeck.lib import log
from holodeck.lib.errors import ModelError
from holodeck.lib.escape import one_line
from holodeck.lib.extras import install_hint
from holodeck.lib.ids import new_id
from holodeck.models.generation import LOCAL_FIELDS
from holodeck.models.items import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Part,
    TextContent,
    Usage,
    text_message,
)
from holodeck.models.llm import LLM
from holodeck.models.model_io import CallDelta, FinishReason, ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolSpec
from holodeck.providers.encoding import OptionEncoder, require_supported
from holodeck.providers.local.weights import KNOWN_WEIGHTS, PROVIDER, require_model_file
from holodeck.providers.rehearsal.ranking import shortlist_tools
from holodeck.providers.tool_schemas.adapt import adapt_tool

# Tools offered to the model: with eight, the 0.5B model chose right in two cases of four; with three, in six of six.
LOCAL_SHORTLIST = 3

_REPLY = re.compile(r'\s*\{\s*"reply"\s*:\s*"')
_BROKEN_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{0,3}|(?<!\\)(?:\\\\)*\\)$")
_HALF_A_PAIR = re.compile(r"[\ud800-\udbff]$")
# Characters of the conversation in a prompt: with the tools, it fits the context.
LOCAL_PROMPT_CHARS = 8_000
# Characters of one tool result.
LOCAL_RESULT_CHARS = 2_000
# Tokens of an answer and of a choice: half a minute of output.
LOCAL_ANSWER_TOKENS = 512
LOCAL_CHOICE_TOKENS = 384
# Characters of a tool's description.
LOCAL_TOOL_CHARS = 300
_OPTIONS = OptionEncoder("local")
_CHOOSING = """\
Decide what to do about the last message. Answer with one JSON object and nothing else.
To call a tool: {"tool": "<name>", "arguments": {...}}. To answer without a tool: {"reply": "<text>"}.
Call a tool when it gives what the person asks for. Take arguments from the conversation only."""
_EXAMPLES = (
    ("What is the weather in Oslo? (tools: weather)", '{"tool": "weather", "arguments": {"city": "Oslo"}}'),
    ("Good morning! (tools: weather)", '{"reply": "Good morning! What can I do for you?"}'),
    ("Show me notes.txt (tools: read_file)", '{"tool": "read_file", "arguments": {"path": "notes.txt"}}'),
)
_ANSWERING = (
    "Answer the last message in a few sentences, from the tool results where there are some. Do not make things up."
)
# Tokens of the context: a longer prompt takes minutes to process on two cores.
LOCAL_CONTEXT_TOKENS = 4_096
# Seconds to wait at `close` for the chunk that is being computed.
LOCAL_CLOSE_TIMEOUT = 5.0
_NOT_INSTALLED = "The local model needs an extra that is not installed. Install it with: "


class ChoiceParser:
    """Parses the JSON of a choice while the model writes it."""

    def __init__(self) -> None:
        self._text = ""
        self._sent_chars = 0

    def add(self, text: str) -> str:
        """Add a chunk of the JSON and return the new text of a reply in it."""
        self._text += text
        match = _REPLY.match(self._text)
        if match is None:
            return ""
        reply = _parse_partial_string(self._text[match.end() :])
        new, self._sent_chars = reply[self._sent_chars :], max(self._sent_chars, len(reply))
        return new

    def parse_call(self) -> FunctionCall | None:
        """Return the call in the complete JSON, or None for a reply or anything else."""
        choice = _first_object(self._text)
        name, arguments = choice.get("tool"), choice.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return None
        text = json.dumps(arguments, ensure_ascii=False)
        return FunctionCall(call_id=new_id("call"), name=name, arguments=text)


def _parse_partial_string(encoded: str) -> str:
    """Return the text of a JSON string that may be incomplete."""
    end = re.search(r'(?<!\\)(?:\\\\)*"', encoded)
    inner = encoded[: end.end() - 1] if end else _BROKEN_ESCAPE.sub("", encoded)
    try:
        text = str(json.loads(f'"{inner}"', strict=False))
    except ValueError:
        return ""
    return text if end else _HALF_A_PAIR.sub("", text)


def _first_object(text: str) -> dict[str, Any]:
    start = text.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else ({}, 0)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Local:
    """Runs a GGUF model. It is loaded on the first request, and processes one request at a time."""

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        name: str | None = None,
        folder: Path | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self._requested_name, self._folder = name or (llm.name if llm else None), folder
        self._on_notice = on_notice or (lambda notice: log.warning("model.slow", notice=notice))
        self._engine: LlamaThread | None = None
        self._start_lock = asyncio.Lock()
        self._path: Path | None = None

    @property
    def name(self) -> str:
        """The name of known weights, else the name of the file or the configured name."""
        known = [
            weights.name for weights in KNOWN_WEIGHTS if self._path is not None and weights.file == self._path.name
        ]
        return (known or [self._path.stem if self._path else self._requested_name or "local"])[0]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Choose a tool, or answer. After a tool result, the model answers without tools."""
        require_supported(request, LOCAL_FIELDS, "local")
        engine = await self._require_engine()
        tools = self._select_tools(request)
        is_answer = not tools or has_result(request.items)
        events = self._stream_answer(engine, request) if is_answer else self._stream_choice(engine, request, tools)
        # Closing this iterator has to close the inner one, which stops the model.
        async with aclosing(events):
            async for event in events:
                yield event

    async def close(self) -> None:
        """Stop the model and release its weights."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def _require_engine(self) -> LlamaThread:
        async with self._start_lock:
            if self._engine is None:
                path = require_model_file(self._requested_name, self._folder)
                self._path = path
                self._on_notice(_speed_notice(path))
                engine = LlamaThread(path)
                try:
                    await engine.load()
                except BaseException:
                    await engine.close()
                    raise
                self._engine = engine
            return self._engine

    def _select_tools(self, request: ModelRequest) -> list[ToolSpec]:
        choice = request.tool_choice
        if choice.mode == "none":
            return []
        names = {choice.name} if choice.name else set(choice.allowed) if choice.allowed is not None else None
        offered = [tool for tool in request.tools if names is None or tool.name in names]
        shortlist = shortlist_tools(last_user_text(request.items), offered, LOCAL_SHORTLIST)
        return [adapt_tool(tool, "generic").spec for tool in shortlist]

    async def _stream_choice(
        self, engine: LlamaThread, request: ModelRequest, tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[ModelEvent, None]:
        choice = request.tool_choice
        body = build_choice_body(request, tools, may_reply=choice.mode != "required" and choice.name is None)
        parser, reply, summary = ChoiceParser(), "", _AnswerSummary()
        async with aclosing(engine.chat(body)) as chunks:
            async for chunk in chunks:
                new = parser.add(summary.read_chunk(chunk))
                if new:
                    reply += new
                    yield TextDelta(text=new)
        call = parser.parse_call()
        # The model was cut off before it wrote anything usable: let it answer without tools.
        if call is None and not reply:
            async with aclosing(self._stream_answer(engine, request)) as events:
                async for event in events:
                    yield event
            return
        if call is not None:
            yield CallDelta(index=0, call_id=call.call_id, name=call.name, arguments=call.arguments)
            yield summary.build_answered((call,), self.name, finish="tool_calls")
            return
        yield summary.build_answered((text_message("assistant", reply),), self.name)

    async def _stream_answer(self, engine: LlamaThread, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        text, summary = "", _AnswerSummary()
        async with aclosing(engine.chat(build_answer_body(request))) as chunks:
            async for chunk in chunks:
                new = summary.read_chunk(chunk)
                if new:
                    text += new
                    yield TextDelta(text=new)
        yield summary.build_answered((text_message("assistant", text),), self.name)


class _AnswerSummary:
    """Usage and finish reason of an answer, collected from its chunks."""

    def __init__(self) -> None:
        self._finish: FinishReason = "stop"
        self._usage = Usage()

    def read_chunk(self, chunk: Mapping[str, Any]) -> str:
        usage = chunk.get("usage")
        if isinstance(usage, Mapping):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(
                input_tokens=usage.get("prompt_tokens", 0),
                output_tokens=usage.get("completion_tokens", 0),
                cached_tokens=cached,
            )
        choices = chunk.get("choices") or [{}]
        if choices[0].get("finish_reason") == "length":
            self._finish = "length"
        delta = choices[0].get("delta") or {}
        return str(delta.get("content") or "")

    def build_answered(self, items: tuple[Item, ...], model: str, finish: FinishReason | None = None) -> ModelAnswer:
        return ModelAnswer(items=items, finish=finish or self._finish, usage=self._usage, model=model)


def _speed_notice(path: Path) -> str:
    """Return the notice about the speed of a model, shown before it is used."""
    known = next((weights for weights in KNOWN_WEIGHTS if weights.file == path.name), None)
    pace = (
        f"about {known.tokens_per_second:.0f} tokens a second on two cores, so a turn takes 5 to 30 seconds"
        if known
        else "a turn may take from seconds to minutes"
    )
    return f"The local model {known.name if known else path.name} runs on this machine's processor: {pace}."


def build_choice_body(request: ModelRequest, tools: Sequence[ToolSpec], *, may_reply: bool) -> dict[str, Any]:
    """Build a request whose output is constrained to a call of one of the tools or, if `may_reply`, a reply."""
    offered = "\n".join(map(_describe_tool, tools))
    system = "\n\n".join(filter(None, [request.instructions, _CHOOSING, f"Tools:\n{offered}"]))
    examples = [
        {"role": role, "content": text}
        for asked, answered in _EXAMPLES
        for role, text in (("user", asked), ("assistant", answered))
    ]
    conversation = _build_messages(request.items)
    return {
        "messages": [{"role": "system", "content": system}, *examples, *conversation],
        "response_format": {"type": "json_schema", "json_schema": {"schema": _choice_schema(tools, may_reply)}},
        "max_tokens": LOCAL_CHOICE_TOKENS,
        "temperature": 0,
    }


def build_answer_body(request: ModelRequest) -> dict[str, Any]:
    """Build a request without tools: with tools in the prompt, a small model answers a result with another call."""
    system = "\n\n".join(filter(None, [request.instructions, _ANSWERING]))
    body: dict[str, Any] = {
        "messages": [{"role": "system", "content": system}, *_build_messages(request.items)],
        "max_tokens": LOCAL_ANSWER_TOKENS,
    }
    if request.response_format is not None:
        schema = {"schema": dict(request.response_format)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif request.json_mode:
        body["response_format"] = {"type": "json_object"}
    _OPTIONS.write(request, body)
    return body


def last_user_text(items: Sequence[Item]) -> str:
    """Return the text of the last user message."""
    return next((item.text for item in reversed(items) if isinstance(item, Message) and item.role == "user"), "")


def has_result(items: Sequence[Item]) -> bool:
    """Return whether there is a tool result after the last user message."""
    for item in reversed(items):
        if isinstance(item, FunctionCallOutput):
            return True
        if isinstance(item, Message) and item.role == "user":
            return False
    return False


def _choice_schema(tools: Sequence[ToolSpec], may_reply: bool) -> dict[str, Any]:
    calls = [_object({"tool": {"const": tool.name}, "arguments": dict(tool.parameters)}) for tool in tools]
    reply = [_object({"reply": {"type": "string"}})] if may_reply else []
    return {"anyOf": [*calls, *reply]}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _describe_tool(tool: ToolSpec) -> str:
    fields = {name: _field_type(field) for name, field in tool.parameters.get("properties", {}).items()}
    return f"- {tool.name}: {one_line(tool.description, LOCAL_TOOL_CHARS)} {json.dumps(fields)}"


def _field_type(field: Any) -> Any:
    if not isinstance(field, Mapping):
        return "any"
    return field.get("enum") or field.get("type", "any")


def _build_messages(items: Sequence[Item]) -> list[dict[str, str]]:
    """Build messages from the end of the conversation, as many as fit, as plain text: small models know it best."""
    names = {item.call_id: item.name for item in items if isinstance(item, FunctionCall)}
    messages: list[dict[str, str]] = []
    remaining = LOCAL_PROMPT_CHARS
    for item in reversed(items):
        message = _encode_item(item, names)
        if message is None:
            continue
        if messages and remaining < len(message["content"]):
            break
        message["content"] = message["content"][-LOCAL_PROMPT_CHARS:]
        remaining -= len(message["content"])
        messages.append(message)
    return messages[::-1]


def _encode_item(item: Item, names: Mapping[str, str]) -> dict[str, str] | None:
    match item:
        case Message(role=role, content=content):
            return {"role": "system" if role == "developer" else role, "content": _text_of(content)}
        case FunctionCallOutput(call_id=call_id, content=content, is_error=is_error):
            result = _text_of(content)[:LOCAL_RESULT_CHARS]
            outcome = "failed" if is_error else "answered"
            return {"role": "user", "content": f"(The tool {names.get(call_id, 'asked')} {outcome}: {result})"}
        case _:
            return None


def _text_of(parts: Sequence[Part]) -> str:
    return "\n".join(
        part.text if isinstance(part, TextContent) else f"({part.type.replace('_', ' ')}, not shown)" for part in parts
    )


class LlamaThread:
    """A model in a worker thread. Loading blocks the interpreter for a second or two; answering does not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")
        # `Any`: a class of xllamacpp, which has no types.
        self._server: Any = None
        self._is_closed = threading.Event()

    async def load(self) -> None:
        """Load the weights, if they are not loaded. Raises `ModelError`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    async def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the chunks of one chat completion as they are produced. Closing the iterator stops the model."""
        loop, stop = asyncio.get_running_loop(), threading.Event()
        chunks: asyncio.Queue[Mapping[str, Any] | BaseException | None] = asyncio.Queue()

        def put_chunk(chunk: Mapping[str, Any] | BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

        self._thread.submit(self._chat, dict(body), put_chunk, stop)
        try:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
        finally:
            stop.set()

    async def close(self) -> None:
        """Stop the running request and release the weights, within `LOCAL_CLOSE_TIMEOUT`."""
        self._is_closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)
        shutdown = asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        await asyncio.wait([shutdown], timeout=LOCAL_CLOSE_TIMEOUT)
        self._server = None

    def _load(self) -> None:
        if self._server is not None:
            return
        # Spinning threads would occupy the core of the event loop. The library reads this once, when it is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            xllamacpp = importlib.import_module("xllamacpp")
        except ImportError:
            raise ModelError(_NOT_INSTALLED + install_hint("local"), provider=PROVIDER) from None
        # One core stays free for everything else.
        threads = max(1, (os.cpu_count() or 2) - 1)
        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx, params.n_parallel = LOCAL_CONTEXT_TOKENS, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.warmup, params.verbosity = False, -1
        # llama.cpp's server also listens on a loopback port: a random key makes it unusable for other processes.
        params.api_keys = [secrets.token_hex(32)]
        try:
            self._server = xllamacpp.Server(params)
        except Exception as error:
            reason = f"The local model could not be loaded from {self._path}: {error}"
            raise ModelError(f"{reason} Pull it again, or use another GGUF file.", provider=PROVIDER) from error

    def _chat(self, body: dict[str, Any], put_chunk: Any, stop: threading.Event) -> None:
        def on_chunk(chunk: Mapping[str, Any]) -> bool:
            put_chunk(_failure_of(chunk) or chunk)
            return stop.is_set() or self._is_closed.is_set()

        try:
            self._load()
            if not stop.is_set():
                answer = self._server.handle_chat_completions(
                    {**body, "stream": True, "stream_options": {"include_usage": True}}, on_chunk
                )
                if isinstance(answer, dict):
                    put_chunk(_failure_of(answer) or answer)
            put_chunk(None)
        except ModelError as error:
            put_chunk(error)
        except Exception as error:
            put_chunk(ModelError(f"The local model refused the request: {error}", provider=PROVIDER))


def _failure_of(chunk: Mapping[str, Any]) -> ModelError | None:
    error = chunk.get("error")
    if not isinstance(error, Mapping):
        return None
    return ModelError(
        f"The local model could not answer: {error.get('message')}", provider=PROVIDER, status=error.get("code")
    )
