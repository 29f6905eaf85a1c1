"""A small executor for tests: tools are plain functions, and it remembers what it ran."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from holodeck.models.items import ContentBlock, TextContent
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import ToolCall, ToolExecutor, ToolKind, ToolResult

ToolReturn = str | ToolResult | tuple[ContentBlock, ...]
Tool = Callable[..., ToolReturn | Awaitable[ToolReturn]]


class FakeExecutor(ToolExecutor):
    """`FakeExecutor(add=lambda a, b: str(a + b))`."""

    def __init__(self, **tools: Tool) -> None:
        self._tools: Mapping[str, Tool] = tools
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    @property
    def kind(self) -> ToolKind:
        return ToolKind.MCP

    async def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec(name=name, description=f"Does {name}.") for name in self._tools]

    def can_execute(self, name: str) -> bool:
        return name in self._tools

    async def execute(self, call: ToolCall) -> ToolResult:
        self.calls.append((call.name, call.arguments))
        made = self._tools[call.name](**call.arguments)
        result = await made if inspect.isawaitable(made) else made
        if isinstance(result, ToolResult):
            return ToolResult(
                call_id=call.call_id, content=result.content, is_error=result.is_error, metadata=result.metadata
            )
        content = (TextContent(text=result),) if isinstance(result, str) else result
        return ToolResult(call_id=call.call_id, content=content)
