"""A conversation with an agent: what was said so far, kept so that every next question is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from holodeck.engine.transcript import RunTranscript
from holodeck.models.events import Event, RunResult
from holodeck.models.items import Item

if TYPE_CHECKING:
    from holodeck.agent import Agent


class ChatHistory:
    """Asks with everything that was said before. An answer that is stopped stays, marked as stopped."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.items: list[Item] = []

    async def ask(self, question: Sequence[Item], on_event: Callable[[Event], None]) -> RunResult:
        """Ask and show what happens. Cancelling stops the answer; the conversation keeps what there is of it."""
        record = RunTranscript()
        try:
            async with aclosing(self._agent.stream(question, history=tuple(self.items))) as events:
                async for event in events:
                    record.add(event)
                    on_event(event)
        except asyncio.CancelledError:
            self._append(question, record)
            raise
        self._append(question, record)
        return record.result or record.build_stopped_result()

    def reset(self) -> None:
        self.items.clear()
        self._agent.forget()

    def _append(self, question: Sequence[Item], record: RunTranscript) -> None:
        added = record.build_history()
        if added:  # a question that the model never took is not part of the conversation: it will be asked again
            self.items += [*question, *added]
