"""Stores the full text of results that were cut for the model, and the `read_result` tool that reads from them.

A `ResultReader` belongs to the `Toolbox` of one run. It stores at most `MAX_STORED_RESULTS` texts, the oldest being
deleted first, within a byte budget that it shares; `close` deletes all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holodeck.lib.bounded_cache import BoundedCache
from holodeck.lib.byte_budget import ByteBudget, OverBudgetError
from holodeck.models.items import ContentBlock, TextContent
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import CallRules, CallTarget, ToolCall, ToolExecutor, ToolKind, ToolResult

# Characters of one result that are sent to the model: about 6,000 tokens. The rest is read with `read_result`.
MODEL_RESULT_CHARS = 24_000
# Cut results that one run stores for reading; when there are more, the oldest is deleted.
MAX_STORED_RESULTS = 64
# Lines that one call of `read_result` returns when it does not say how many.
_DEFAULT_LINES = 200

READ_RESULT = "read_result"
_READ_RESULT_SPEC = ToolSpec(
    name=READ_RESULT,
    description="Read more of a tool result that was cut. Give the result's id, and lines or characters to read.",
    parameters={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id that the cut result names"},
            "start_line": {"type": "integer", "minimum": 1, "description": "First line to read, counted from 1"},
            "lines": {"type": "integer", "minimum": 1, "description": "How many lines (default 200)"},
            "start_char": {"type": "integer", "minimum": 0, "description": "First character, instead of lines"},
            "chars": {"type": "integer", "minimum": 1, "description": "How many characters"},
        },
        "required": ["id"],
    },
)


class ResultReader(ToolExecutor):
    """Cuts long results, stores their full text, and executes `read_result`, offered while a text is stored."""

    def __init__(self, *, limit: int = MODEL_RESULT_CHARS, budget: ByteBudget | None = None) -> None:
        """`limit`: characters of one result that stay uncut. `budget`: holds the stored texts until `close`.

        A text that does not fit into the budget is cut as well, but the rest of it cannot be read.
        """
        self._limit = limit
        self._budget = shared = budget or ByteBudget()
        # The types in an annotation: `BoundedCache[str, str](...)` takes longer than the rest of a small run's toolbox.
        self._stored_texts: BoundedCache[str, str] = BoundedCache(
            max_entries=MAX_STORED_RESULTS, on_delete=lambda _key, text: shared.release(len(text))
        )

    @property
    def kind(self) -> ToolKind:
        return ToolKind.BUILTIN

    def close(self) -> None:
        """Delete every stored text and release its bytes. May be called twice."""
        self._stored_texts.clear()

    async def specs(self) -> Sequence[ToolSpec]:
        return (_READ_RESULT_SPEC,) if self._stored_texts else ()

    def can_execute(self, name: str) -> bool:
        return name == READ_RESULT and bool(self._stored_texts)

    def find_rules(self, call: ToolCall) -> CallRules:
        return CallRules(target=CallTarget(server="", tool=call.name), is_recorded=False)

    def may_repeat(self, name: str) -> bool:
        """Return True for the tool of this executor: reading changes nothing."""
        return name == READ_RESULT

    def shorten_result(self, result: ToolResult) -> ToolResult:
        """Return the result with its long texts cut. Their full text is stored under the id of the call."""
        if sum([len(block.text) for block in result.content if isinstance(block, TextContent)]) <= self._limit:
            return result
        texts = [block for block in result.content if isinstance(block, TextContent) and len(block.text) > self._limit]
        keys = {id(block): result.call_id + (f".{index}" if index else "") for index, block in enumerate(texts)}
        return replace(
            result, content=tuple(self._shorten_block(block, keys.get(id(block))) for block in result.content)
        )

    async def execute(self, call: ToolCall) -> ToolResult:
        text = self._stored_texts.get(str(call.arguments.get("id")))
        if text is None:
            known = ", ".join(self._stored_texts) or "none"
            return ToolResult.failure(call.call_id, f"There is no stored result of this id. Stored: {known}.")
        return ToolResult(call_id=call.call_id, content=(TextContent(text=self._build_excerpt(text, call)),))

    def _store(self, key: str, text: str) -> None:
        self._budget.acquire(len(text))
        # Replaces an older text: some models give one id to several calls.
        self._stored_texts.set(key, text, len(text))

    def _build_excerpt(self, text: str, call: ToolCall) -> str:
        start_char = call.arguments.get("start_char")
        if isinstance(start_char, int):
            size = min(int(call.arguments.get("chars", self._limit)), self._limit)
            part = text[start_char : start_char + size]
            return f"{part}\n[characters {start_char} to {start_char + len(part)} of {len(text)}]"
        lines = text.splitlines()
        first = max(int(call.arguments.get("start_line", 1)), 1)
        chosen = lines[first - 1 : first - 1 + int(call.arguments.get("lines", _DEFAULT_LINES))]
        part = "\n".join(chosen)
        note = f"[lines {first} to {first + len(chosen) - 1} of {len(lines)}]"
        if len(part) > self._limit:
            return f"{part[: self._limit]}\n{note} [cut: read characters instead, with start_char]"
        return f"{part}\n{note}"

    def _shorten_block(self, block: ContentBlock, key: str | None) -> ContentBlock:
        if key is None or not isinstance(block, TextContent):
            return block
        try:
            self._store(key, block.text)
        except OverBudgetError:
            note = (
                f"[cut: the first {self._limit} of {len(block.text)} characters. The rest was not stored: "
                "too many bytes of requests and answers are in memory.]"
            )
            return replace(block, text=f"{block.text[: self._limit]}\n{note}")
        lines = block.text.count("\n") + 1
        note = (
            f"[cut: the first {self._limit} of {len(block.text)} characters ({lines} lines). "
            f'Read on with {READ_RESULT}(id="{key}", start_char={self._limit}) or by start_line.]'
        )
        return replace(block, text=f"{block.text[: self._limit]}\n{note}")
