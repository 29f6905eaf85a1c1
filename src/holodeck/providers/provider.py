"""What the engine asks of a model, whoever runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from holodeck.models.model_io import ModelEvent, ModelRequest


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
