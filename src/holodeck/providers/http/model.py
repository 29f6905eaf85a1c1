"""A model behind HTTP: a `Dialect` translates requests and events, an `Endpoint` carries them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Protocol

from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest
from holodeck.providers.base import Batches, BatchingModel
from holodeck.providers.http.endpoint import NO_REQUEST_HEADERS, Endpoint
from holodeck.providers.http.model_address import ModelAddress

_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors that a decoder raises when a broken server sends something that its dialect does not define."""


class AnswerDecoder(Protocol):
    """Assembles one answer from the events of a stream."""

    @property
    def is_finished(self) -> bool:
        """Whether the last event has arrived: further ones cannot change the answer."""
        ...

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        """Process an event of the stream and return the deltas in it."""
        ...

    def to_answered(self) -> ModelAnswer | None:
        """Return the complete answer, or None if the stream was cut short."""
        ...


class Dialect(Protocol):
    """Translates to and from a wire format, without I/O."""

    def build_body(self, request: ModelRequest) -> dict[str, Any]:
        """Build the body that is posted."""
        ...

    def create_decoder(self, request: ModelRequest, address: ModelAddress) -> AnswerDecoder:
        """Create the decoder of one answer. `address` names the model in errors."""
        ...


class HTTPModel(BatchingModel):
    """A `ModelProvider` over one endpoint in one dialect."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect) -> None:
        self._endpoint = endpoint
        self._dialect = dialect

    @property
    def name(self) -> str:
        return self._endpoint.address.model

    def find_sibling(self, path: str) -> Endpoint | None:
        """The URL of another API of the same server; see `Endpoint.find_sibling`."""
        return self._endpoint.find_sibling(path)

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send one request. Closing the iterator closes the connection at once."""
        decoder = self._dialect.create_decoder(request, self._endpoint.address)
        body = self._dialect.build_body(request)
        stream = self._endpoint.stream_events(
            body, is_finished=lambda: decoder.is_finished, headers=self._headers_for(request)
        )
        is_answered = False
        async with aclosing(stream):
            async for events in stream:
                batch: list[ModelEvent] = []
                try:
                    for event in events:
                        batch += decoder.decode(event)
                    if decoder.is_finished and not is_answered:
                        is_answered = True
                        batch.append(self._require_answered(decoder))
                except (ModelError, *_MALFORMED) as error:
                    # Events before the failing one are valid.
                    if batch:
                        yield batch
                    if isinstance(error, ModelError):
                        raise
                    raise self._malformed_error(error) from error
                if batch:
                    yield batch
        if not is_answered:
            yield [self._require_answered(decoder)]

    async def close(self) -> None:
        await self._endpoint.close()

    def _headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers that this request has beside those of all requests."""
        return NO_REQUEST_HEADERS

    def _require_answered(self, decoder: AnswerDecoder) -> ModelAnswer:
        try:
            answer = decoder.to_answered()
        except _MALFORMED as error:
            raise self._malformed_error(error) from error
        if answer is None:
            raise self._endpoint.address.error(
                "its stream ended before the answer was complete. Ask again.", is_retryable=True
            )
        return answer

    def _malformed_error(self, error: Exception) -> ModelError:
        what = f"it sent an event of a shape that its dialect does not have ({type(error).__name__}: {error})."
        return self._endpoint.address.error(what)
