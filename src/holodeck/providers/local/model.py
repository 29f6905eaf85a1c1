"""The local provider: a small language model in this process, with tool calls.

A turn has one of two prompts: one in which the model chooses a tool from a short list or replies, constrained to JSON,
and one without tools in which it answers, used when a tool result is present or no tool may be called.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from holodeck.lib import log
from holodeck.lib.ids import new_id
from holodeck.models.generation import LOCAL_FIELDS
from holodeck.models.items import FunctionCall, Item, Usage, text_message
from holodeck.models.llm import LLM
from holodeck.models.model_io import CallDelta, FinishReason, ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolSpec
from holodeck.providers.encoding import require_supported
from holodeck.providers.local.llama_thread import LlamaThread
from holodeck.providers.local.prompt import build_answer_body, build_choice_body, has_result, last_user_text
from holodeck.providers.local.weights import KNOWN_WEIGHTS, require_model_file
from holodeck.providers.rehearsal.ranking import shortlist_tools
from holodeck.providers.tool_schemas.adapt import adapt_tool

# Tools offered to the model: with eight, the 0.5B model chose right in two cases of four; with three, in six of six.
LOCAL_SHORTLIST = 3

_REPLY = re.compile(r'\s*\{\s*"reply"\s*:\s*"')
_BROKEN_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{0,3}|(?<!\\)(?:\\\\)*\\)$")
_HALF_A_PAIR = re.compile(r"[\ud800-\udbff]$")


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
