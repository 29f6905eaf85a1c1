"""History of a chat with an agent, in a form in which each next request to the model is valid."""

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
    """Sends each question with all items before it. A cancelled answer stays in the history, marked as stopped."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.items: list[Item] = []

    async def ask(self, question: Sequence[Item], on_event: Callable[[Event], None]) -> RunResult:
        """Run a question and pass its events to `on_event`. After a cancellation, the partial answer is stored."""
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
        # A question that the model did not accept is not part of the history: the user will ask it again.
        if added:
            self.items += [*question, *added]
