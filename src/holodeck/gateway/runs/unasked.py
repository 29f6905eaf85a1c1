"""A model that is not asked, for a request that only prepares the next one: its tools are found, its input is kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest


class NoModel:
    """Says nothing, at no cost."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        yield ModelAnswer(items=(), finish="stop")

    async def close(self) -> None:
        """There is nothing to let go of."""
