"""A model's events, several at a time when they came together: then a wait and a hand-over serve many of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from holodeck.models.model_io import ModelEvent, ModelRequest

T = TypeVar("T")


class ClosingIterator(Generic[T]):
    """Closes the iterator on the way out, if it can be closed: `async for` alone leaves that to the collector."""

    __slots__ = ("_events",)

    def __init__(self, events: AsyncIterator[T]) -> None:
        self._events = events

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._events

    async def __aexit__(self, *_: object) -> None:
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()


class ModelProvider(Protocol):
    """A model that answers. Errors are `ModelError`s of `holodeck.lib.errors`; leaving the iterator stops the model."""

    @property
    def name(self) -> str:
        """The model's name, for people and logs."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask once. Deltas come as they are produced; the last event is `ModelAnswer`."""
        ...

    async def close(self) -> None:
        """Let go of connections. Bounded; may be called twice."""
        ...


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
