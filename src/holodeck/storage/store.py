"""What a gateway keeps, and what it asks of wherever it is kept. Another owner's id is the same as a missing one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Order = Literal["asc", "desc"]


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """A response with everything that a later request may need of it. The bytes are JSON, made by the gateway."""

    id: str
    owner: str
    created_at: float
    status: str
    previous_id: str | None = None
    conversation_id: str | None = None
    resource: bytes = b"{}"
    """The response exactly as it is returned."""
    input_items: bytes = b"[]"
    """Its input as it is listed, each item with an id."""
    items: bytes = b"[]"
    """What it added to the context: its input, then its output."""
    pending: bytes = b"[]"
    """Calls that wait for the client or for an approval."""
    events: bytes = b""
    """Its stream, one event a line; empty when it was not streamed."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A conversation that clients add items to."""

    id: str
    owner: str
    created_at: float
    metadata: bytes = b"{}"


@dataclass(frozen=True, kw_only=True)
class ConversationItem:
    """One item of a conversation. Its wire form is JSON, made by the gateway."""

    id: str
    data: bytes


class ResponseStore(Protocol):
    """Keeps responses and conversations. Every failure is a `StorageError`."""

    async def save(self, record: StoredResponse) -> None:
        """Keep a response, or its newer state."""
        ...

    async def get(self, response_id: str, owner: str) -> StoredResponse | None: ...

    async def delete(self, response_id: str, owner: str) -> bool: ...

    async def context(self, response_id: str, owner: str) -> list[bytes] | None:
        """The `items` of the response and of all before it, oldest first. None: there is no such response."""
        ...

    async def mentioning(self, words: bytes, owner: str) -> StoredResponse | None:
        """The newest response with these bytes in its resource or its input, among the owner's latest."""
        ...

    async def unfinished(self) -> list[StoredResponse]:
        """Responses that were queued or in progress when the gateway that made them ended."""
        ...

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None: ...

    async def conversation(self, conversation_id: str, owner: str) -> Conversation | None: ...

    async def update_conversation(self, conversation_id: str, owner: str, metadata: bytes) -> bool: ...

    async def delete_conversation(self, conversation_id: str, owner: str) -> bool: ...

    async def add_items(self, conversation_id: str, owner: str, items: Sequence[ConversationItem]) -> bool:
        """Append, all or none, in order."""
        ...

    async def items(
        self, conversation_id: str, owner: str, *, after: str | None = None, limit: int = 100, order: Order = "asc"
    ) -> list[ConversationItem] | None: ...

    async def item(self, conversation_id: str, owner: str, item_id: str) -> ConversationItem | None: ...

    async def find_item(self, item_id: str, owner: str) -> ConversationItem | None:
        """The newest item of this id, in whichever of the owner's conversations it is."""
        ...

    async def delete_item(self, conversation_id: str, owner: str, item_id: str) -> bool: ...

    async def forget(self, before: float) -> int:
        """Delete what is older, a little at a time, and say how much it was."""
        ...

    async def is_healthy(self) -> bool: ...

    async def close(self) -> None: ...
