"""Questions of MCP servers to a person, while their calls wait for the answers; and the interface of their storage.

The gateway that runs a call adds its question and deletes it when the question has ended. The answer may come to
another gateway with the same storage. A question of a gateway that is not alive any more is as one that does not exist.
"""

from __future__ import annotations

from typing import Protocol

from holodeck.lib.record import record


@record
class StoredElicitation:
    """A question of an MCP server. The bytes are JSON, encoded by the gateway."""

    id: str
    response_id: str
    owner: str
    """The caller of the response."""
    created_at: float
    expires_at: float
    """When the gateway that waits for the answer stops to wait."""
    question: bytes
    answer: bytes | None = None
    """None: it is not answered."""


class ElicitationStore(Protocol):
    """Stores questions and their answers. Every failure is a `StorageError`."""

    async def add_elicitation(self, elicitation: StoredElicitation) -> None:
        """Store a question of a call that this gateway runs. Idempotent."""
        ...

    async def list_elicitations(self, response_id: str, caller_id: str) -> list[StoredElicitation]:
        """The questions of a response that have not ended, oldest first; answered ones are there until then."""
        ...

    async def answer_elicitation(self, elicitation_id: str, response_id: str, caller_id: str, answer: bytes) -> bool:
        """Store the answer to a question. False, and nothing is changed, when it has one already or has ended."""
        ...

    async def read_elicitation_answer(self, elicitation_id: str) -> bytes | None:
        """The answer to a question of this gateway. None: there is none so far."""
        ...

    async def delete_elicitation(self, elicitation_id: str) -> None:
        """Delete a question that has ended, with its answer."""
        ...
