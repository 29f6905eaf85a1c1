"""A model behind HTTP: a dialect says what is sent and what comes back, an endpoint carries it."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Protocol

from holodeck.lib.errors import ModelError
from holodeck.models.exchange import Answered, ModelEvent, ModelRequest
from holodeck.providers.address import Address
from holodeck.providers.batches import Batches, Batching
from holodeck.providers.endpoint import Endpoint

_MISSHAPEN = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a translator runs into when a broken server sends anything else than its dialect defines."""


class Answer(Protocol):
    """One answer as it comes together."""

    @property
    def is_over(self) -> bool:
        """The stream said its last word: nothing that follows can change the answer."""
        ...

    def take(self, event: dict[str, Any]) -> list[ModelEvent]:
        """What is new in this event of the stream."""
        ...

    def whole(self) -> Answered | None:
        """The end of it, or None when it was cut short."""
        ...


class Dialect(Protocol):
    """A wire format, as pure translation."""

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """What is posted."""
        ...

    def answer(self, request: ModelRequest, address: Address) -> Answer:
        """What puts the answer together. `address` names the model in errors."""
        ...


class WireModel(Batching):
    """A `ModelProvider` over one endpoint in one dialect."""

    def __init__(self, endpoint: Endpoint, dialect: Dialect) -> None:
        self._endpoint = endpoint
        self._dialect = dialect

    @property
    def name(self) -> str:
        return self._endpoint.address.model

    async def batches(self, request: ModelRequest) -> Batches:
        """Ask once. Leaving the iterator closes the connection at once."""
        answer = self._dialect.answer(request, self._endpoint.address)
        came = self._endpoint.ask(self._dialect.body(request), is_over=lambda: answer.is_over)
        is_told = False
        async with aclosing(came):
            async for events in came:
                news: list[ModelEvent] = []
                try:
                    for event in events:
                        news += answer.take(event)
                    if answer.is_over and not is_told:
                        is_told = True
                        news.append(self._whole(answer))
                except (ModelError, *_MISSHAPEN) as error:
                    if news:  # what came before it stands
                        yield news
                    if isinstance(error, ModelError):
                        raise
                    raise self._misshapen(error) from error
                if news:
                    yield news
        if not is_told:
            yield [self._whole(answer)]

    async def close(self) -> None:
        await self._endpoint.close()

    def _whole(self, answer: Answer) -> Answered:
        try:
            whole = answer.whole()
        except _MISSHAPEN as error:
            raise self._misshapen(error) from error
        if whole is None:
            raise self._endpoint.address.error(
                "its stream ended before the answer was complete. Ask again.", is_retryable=True
            )
        return whole

    def _misshapen(self, error: Exception) -> ModelError:
        what = f"it sent an event of a shape that its dialect does not have ({type(error).__name__}: {error})."
        return self._endpoint.address.error(what)
