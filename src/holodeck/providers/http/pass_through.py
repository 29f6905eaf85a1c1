"""Bodies that are handed on to a model API as they are, for APIs without a dialect: embeddings, older completions.

`PassThrough` is a model for the wrappers around it, so that retries, timeouts and the circuit breaker are the same as
for other requests. Its requests are `PassThroughRequest`, its events `PassedDocument`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Any

from holodeck.lib.record import record
from holodeck.models.model_io import ModelEvent, ModelRequest, TextDelta
from holodeck.providers.base import Batches, BatchingModel
from holodeck.providers.http.endpoint import DONE, Endpoint


@record
class PassThroughRequest(ModelRequest):
    """A body in the form of the API. The name of the model is replaced."""

    body: Mapping[str, Any] = field(default_factory=dict)


@record
class PassedDocument(TextDelta):
    """A whole answer, or one event of a stream."""

    document: Mapping[str, Any] = field(default_factory=dict)


class PassThrough(BatchingModel):
    """One URL of a model API. Sends the bodies of `PassThroughRequest` and yields `PassedDocument`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.address.model

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send one request. Closing the iterator closes the connection at once."""
        body = request.body if isinstance(request, PassThroughRequest) else {}
        is_done = False
        stream = self._endpoint.stream_events({**body, "model": self.name}, is_finished=lambda: is_done)
        async with aclosing(stream):
            async for events in stream:
                is_done = DONE in events
                batch: list[ModelEvent] = [PassedDocument(text="", document=each) for each in events if each != DONE]
                if batch:
                    yield batch

    async def close(self) -> None:
        await self._endpoint.close()
