"""What the loop knows of tools: it asks who can execute a call, and gets a result. A failure is a result, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from holodeck.models.content import ContentBlock, TextContent
from holodeck.models.model_io import ToolSpec

NOT_APPROVED = "The person did not approve this call; it was not run."


class ToolKind(StrEnum):
    """Who executes a tool."""

    FUNCTION = "function"
    """Code of the project, or the client that sent the request."""
    MCP = "mcp"
    BUILTIN = "builtin"


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call to execute: its arguments are parsed, its name is the one that the model was offered."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    key: str = ""
    """The same for every attempt at this call, so that a server can tell a repetition from a second call."""
    is_approved: bool = False
    """A person was asked and said yes."""
    on_progress: Callable[[str], None] | None = None
    """Hears how a long call is getting on."""


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What a call came to, in words or pictures that the model can act on."""

    call_id: str
    content: tuple[ContentBlock, ...]
    is_error: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def failure(cls, call_id: str, reason: str, **metadata: Any) -> ToolResult:
        """An error in words for the model."""
        return cls(call_id=call_id, content=(TextContent(text=reason),), is_error=True, metadata=metadata)


class ToolExecutor(Protocol):
    """Executes calls to some tools. Only cancellation leaves `execute` as an exception.

    One that has tools which may be run twice without harm also has `may_repeat(name) -> bool`. One that asks a person
    also has `ask_person(call) -> bool | None`, for those who want to know before they execute. One whose names can
    change their meaning also has `target_of(name)`: equal values mean the same tool. One that can lack tools also has
    `missing_servers() -> Sequence[MissingServer]`.
    """

    @property
    def kind(self) -> ToolKind: ...

    async def specs(self) -> Sequence[ToolSpec]:
        """The tools on offer now. One that is unavailable is missing here, not an exception."""
        ...

    def can_execute(self, name: str) -> bool: ...

    async def execute(self, call: ToolCall) -> ToolResult: ...
