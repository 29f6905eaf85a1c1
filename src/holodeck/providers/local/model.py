"""A small real model in this process: it chooses among a few tools, and answers in a prompt of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from holodeck.lib import log
from holodeck.lib.limits import LOCAL_SHORTLIST
from holodeck.models.exchange import Answered, CallDelta, FinishReason, ModelEvent, ModelRequest, TextDelta, ToolSpec
from holodeck.models.items import Item, Usage, said
from holodeck.models.llm import LLM
from holodeck.providers.local.engine import Engine
from holodeck.providers.local.prompt import answering, choosing, has_result, last_request
from holodeck.providers.local.weights import KNOWN, find
from holodeck.providers.local.writing import Writing
from holodeck.providers.rehearsal import shortlist
from holodeck.providers.schemas import adapt


class Local:
    """Runs a GGUF model. Loads it on the first request; requests wait for each other."""

    def __init__(
        self,
        llm: LLM | None = None,
        *,
        name: str | None = None,
        folder: Path | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        self._wanted, self._folder = name or (llm.name if llm else None), folder
        self._on_notice = on_notice or (lambda notice: log.warning("model.slow", notice=notice))
        self._engine: Engine | None = None
        self._starting = asyncio.Lock()
        self._path: Path | None = None

    @property
    def name(self) -> str:
        """The model's name, or that of its file."""
        known = [weights.name for weights in KNOWN if self._path is not None and weights.file == self._path.name]
        return (known or [self._path.stem if self._path else self._wanted or "local"])[0]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Choose a tool, or answer. A tool's result is answered without looking at the tools again."""
        engine = await self._ready()
        tools = self._tools(request)
        is_answer = not tools or has_result(request.items)
        events = self._answer(engine, request) if is_answer else self._choose(engine, request, tools)
        async with aclosing(events):  # who leaves this iterator stops the model, not only the reading of it
            async for event in events:
                yield event

    async def close(self) -> None:
        """Stop and let go of the weights."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    async def _ready(self) -> Engine:
        async with self._starting:
            if self._engine is None:
                path = find(self._wanted, self._folder)
                self._path = path
                self._on_notice(_warning(path))
                engine = Engine(path)
                try:
                    await engine.load()
                except BaseException:
                    await engine.close()
                    raise
                self._engine = engine
            return self._engine

    def _tools(self, request: ModelRequest) -> list[ToolSpec]:
        choice = request.tool_choice
        if choice.mode == "none":
            return []
        names = {choice.name} if choice.name else set(choice.allowed) if choice.allowed is not None else None
        offered = [tool for tool in request.tools if names is None or tool.name in names]
        few = shortlist(last_request(request.items), offered, LOCAL_SHORTLIST)
        return [adapt(tool, "generic").spec for tool in few]

    async def _choose(
        self, engine: Engine, request: ModelRequest, tools: Sequence[ToolSpec]
    ) -> AsyncGenerator[ModelEvent, None]:
        choice = request.tool_choice
        body = choosing(request, tools, may_reply=choice.mode != "required" and choice.name is None)
        writing, told, end = Writing(), "", _End()
        async with aclosing(engine.chat(body)) as pieces:
            async for piece in pieces:
                new = writing.add(end.read(piece))
                if new:
                    told += new
                    yield TextDelta(text=new)
        call = writing.call()
        if call is None and not told:  # it was cut off before it said anything that can be used
            async with aclosing(self._answer(engine, request)) as events:
                async for event in events:
                    yield event
            return
        if call is not None:
            yield CallDelta(index=0, call_id=call.call_id, name=call.name, arguments=call.arguments)
            yield end.answered((call,), self.name, finish="tool_calls")
            return
        yield end.answered((said("assistant", told),), self.name)

    async def _answer(self, engine: Engine, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        text, end = "", _End()
        async with aclosing(engine.chat(answering(request))) as pieces:
            async for piece in pieces:
                new = end.read(piece)
                if new:
                    text += new
                    yield TextDelta(text=new)
        yield end.answered((said("assistant", text),), self.name)


class _End:
    """What the pieces of an answer say besides its words."""

    def __init__(self) -> None:
        self._finish: FinishReason = "stop"
        self._usage = Usage()

    def read(self, piece: Mapping[str, Any]) -> str:
        usage = piece.get("usage")
        if isinstance(usage, Mapping):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(
                input_tokens=usage.get("prompt_tokens", 0),
                output_tokens=usage.get("completion_tokens", 0),
                cached_tokens=cached,
            )
        choices = piece.get("choices") or [{}]
        if choices[0].get("finish_reason") == "length":
            self._finish = "length"
        delta = choices[0].get("delta") or {}
        return str(delta.get("content") or "")

    def answered(self, items: tuple[Item, ...], model: str, finish: FinishReason | None = None) -> Answered:
        return Answered(items=items, finish=finish or self._finish, usage=self._usage, model=model)


def _warning(path: Path) -> str:
    """How slow it will be, before it is."""
    known = next((weights for weights in KNOWN if weights.file == path.name), None)
    pace = (
        f"about {known.tokens_per_second:.0f} tokens a second on two cores, so a turn takes 5 to 30 seconds"
        if known
        else "a turn may take from seconds to minutes"
    )
    return f"The local model {known.name if known else path.name} runs on this machine's processor: {pace}."
