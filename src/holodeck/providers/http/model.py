"""A model behind HTTP: a dialect says what is sent and what comes back, an endpoint carries it."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Protocol

from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest
from holodeck.providers.base import Batches, BatchingModel
from holodeck.providers.http.endpoint import Endpoint
from holodeck.providers.http.model_address import ModelAddress

_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a translator runs into when a broken server sends anything else than its dialect defines."""


class AnswerDecoder(Protocol):
    """One answer as it comes together."""

    @property
    def is_finished(self) -> bool:
        """The stream said its last word: nothing that follows can change the answer."""
        ...

    def decode(self, event: dict[str, Any]) -> list[ModelEvent]:
        """What is new in this event of the stream."""
        ...

    def to_answered(self) -> ModelAnswer | None:
        """The end of it, or None when it was cut short."""
        ...


class Dialect(Protocol):
    """A wire format, as pure translation."""

    def build_body(self, request: ModelRequest) -> dict[str, Any]:
        """What is posted."""
        ...

    def create_decoder(self, request: ModelRequest, address: ModelAddress) -> AnswerDecoder:
        """What puts the answer together. `address` names the model in errors."""
        ...


class HTTPModel(BatchingModel):
    """A `ModelProvider` over one endpoint in one dialect."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect) -> None:
        self._endpoint = endpoint
        self._dialect = dialect

    @property
    def name(self) -> str:
        return self._endpoint.address.model

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Ask once. Leaving the iterator closes the connection at once."""
        answer = self._dialect.create_decoder(request, self._endpoint.address)
        came = self._endpoint.stream_events(self._dialect.build_body(request), is_finished=lambda: answer.is_finished)
        is_told = False
        async with aclosing(came):
            async for events in came:
                news: list[ModelEvent] = []
                try:
                    for event in events:
                        news += answer.decode(event)
                    if answer.is_finished and not is_told:
                        is_told = True
                        news.append(self._require_answered(answer))
                except (ModelError, *_MALFORMED) as error:
                    if news:  # what came before it stands
                        yield news
                    if isinstance(error, ModelError):
                        raise
                    raise self._malformed_error(error) from error
                if news:
                    yield news
        if not is_told:
            yield [self._require_answered(answer)]

    async def close(self) -> None:
        await self._endpoint.close()

    def _require_answered(self, answer: AnswerDecoder) -> ModelAnswer:
        try:
            whole = answer.to_answered()
        except _MALFORMED as error:
            raise self._malformed_error(error) from error
        if whole is None:
            raise self._endpoint.address.error(
                "its stream ended before the answer was complete. Ask again.", is_retryable=True
            )
        return whole

    def _malformed_error(self, error: Exception) -> ModelError:
        what = f"it sent an event of a shape that its dialect does not have ({type(error).__name__}: {error})."
        return self._endpoint.address.error(what)
