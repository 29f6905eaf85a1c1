"""A model that falls silent is an error with a name, not a wait without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import MODEL_FIRST_EVENT_TIMEOUT, MODEL_IDLE_TIMEOUT
from holodeck.models.exchange import ModelEvent, ModelRequest
from holodeck.providers.leaving import left_at_the_end
from holodeck.providers.provider import ModelProvider


class Timeouts:
    """A model that must begin to answer within `first` seconds, and then not pause for more than `idle`.

    The time that the reader takes between two events does not count.
    """

    def __init__(
        self,
        inner: ModelProvider,
        *,
        first: float = MODEL_FIRST_EVENT_TIMEOUT,
        idle: float = MODEL_IDLE_TIMEOUT,
    ) -> None:
        self._inner = inner
        self._first = first
        self._idle = idle

    @property
    def name(self) -> str:
        return self._inner.name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask, and watch the silence."""
        limit, phase = self._first, "did not begin to answer within"
        async with left_at_the_end(self._inner.stream(request)) as events:
            while True:
                try:
                    async with asyncio.timeout(limit) as watch:
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    if not watch.expired():
                        raise
                    message = f"Model '{self.name}' {phase} {limit:g} s. Ask again, or check the provider's status."
                    raise ModelError(message, is_retryable=True) from error
                yield event
                limit, phase = self._idle, "fell silent in the middle of its answer for"

    async def close(self) -> None:
        await self._inner.close()
