"""A model's events, several at a time when they came together: then a wait and a hand-over serve many of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from holodeck.models.model_io import ModelEvent, ModelRequest
from holodeck.providers.leaving import ClosingIterator
from holodeck.providers.provider import ModelProvider

Batches = AsyncGenerator[list[ModelEvent], None]


class BatchingModel:
    """A model that knows which of its events came together. Whoever wants them one by one has `stream`.

    Not an `ABC`: every turn asks several times who is one, and of those Python takes long to say it.
    """

    def stream_batches(self, request: ModelRequest) -> Batches:
        """Ask once; no batch is empty. Leaving the iterator stops the model."""
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask once, an event at a time."""
        async with aclosing(self.stream_batches(request)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event


def stream_in_batches(model: ModelProvider, request: ModelRequest) -> Batches:
    """Ask any model: one that knows of no batches gives every event in one of its own."""
    return model.stream_batches(request) if isinstance(model, BatchingModel) else _stream_one_by_one(model, request)


async def _stream_one_by_one(model: ModelProvider, request: ModelRequest) -> Batches:
    async with ClosingIterator(model.stream(request)) as events:
        async for event in events:
            yield [event]
