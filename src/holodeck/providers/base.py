"""The interface of a model, and the base classes of its implementations and wrappers.

`ModelProvider` is the protocol that the engine uses. A `BatchingModel` yields events in the batches in which they
arrived, so that one wait serves many of them; `stream_in_batches` reads any model that way. A `ModelWrapper` is a
`BatchingModel` around another model, and owns it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Generic, Protocol, TypeVar

from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelEvent, ModelRequest

T = TypeVar("T")


class ClosingIterator(Generic[T]):
    """Closes an iterator at the end of an `async with` block, if it can be closed.

    `async for` alone leaves that to the garbage collector.
    """

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
    """A model. It raises `ModelError` of `holodeck.lib.errors`; closing the iterator stops the model."""

    @property
    def name(self) -> str:
        """The model's name, for people and logs."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send one request. Yields deltas as they are produced; the last event is the `ModelAnswer`."""
        ...

    async def close(self) -> None:
        """Release connections, within a bounded time. Idempotent."""
        ...


def build_unfinished_error(model: str) -> ModelError:
    """Build the error of a stream that ended without a `ModelAnswer`."""
    return ModelError("The model stopped without finishing its answer.", provider=model, is_retryable=True)


Batches = AsyncGenerator[list[ModelEvent], None]


class BatchingModel:
    """A model that yields events in the batches in which they arrived; `stream` yields them one by one.

    Not an `ABC`: every turn checks `isinstance` several times, which is slow for an `ABC`.
    """

    @property
    def is_open(self) -> bool:
        """Whether a circuit breaker refuses requests, after repeated failures of the model."""
        return False

    def stream_batches(self, request: ModelRequest) -> Batches:
        """Send one request. No batch is empty. Closing the iterator stops the model."""
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Send one request and yield one event at a time."""
        async with aclosing(self.stream_batches(request)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event


class ModelWrapper(BatchingModel):
    """Adds behaviour around `inner`, which it owns."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner
        self.name = inner.name
        self._stream_inner: Callable[[ModelRequest], Batches] = (
            inner.stream_batches if isinstance(inner, BatchingModel) else partial(_stream_one_by_one, inner)
        )
        """Sends one request to the inner model, in batches."""

    @property
    def is_open(self) -> bool:
        return is_open(self._inner)

    async def close(self) -> None:
        await self._inner.close()


def is_open(model: ModelProvider) -> bool:
    """Return whether a circuit breaker refuses the requests of a model. One that is no `BatchingModel` has none."""
    return isinstance(model, BatchingModel) and model.is_open


def stream_in_batches(model: ModelProvider, request: ModelRequest) -> Batches:
    """Send one request to any model; one that is no `BatchingModel` yields batches of one event."""
    return model.stream_batches(request) if isinstance(model, BatchingModel) else _stream_one_by_one(model, request)


async def _stream_one_by_one(model: ModelProvider, request: ModelRequest) -> Batches:
    async with ClosingIterator(model.stream(request)) as events:
        async for event in events:
            yield [event]
