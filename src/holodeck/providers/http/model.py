"""A model behind HTTP: a subclass of `HTTPModel` translates to and from its dialect, an `Endpoint` carries that.

An answer whose deltas nothing reads is asked for as one document, which costs the same for twenty tokens and for
thousands. It is streamed all the same, with the deltas of a read joined, where one document would change a limit: see
`HTTPModel._choose_form`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar, TypedDict, Unpack

from holodeck.lib.errors import ModelError
from holodeck.lib.secret import Secret
from holodeck.models.model_io import ModelAnswer, ModelEvent, ModelRequest
from holodeck.providers.answer_decoder import AnswerDecoder, join_deltas
from holodeck.providers.base import Batches, BatchingModel
from holodeck.providers.http.endpoint import NO_REQUEST_HEADERS, Endpoint
from holodeck.providers.http.errors import find_refused_hints
from holodeck.providers.http.model_address import NO_HEADERS, ModelAddress, host_of

# Tokens of the longest answer that may come as one document. Anthropic's clients expect 128,000 tokens an hour and
# refuse to wait more than ten minutes for a document, as long as is waited here for a first output.
MAX_WHOLE_TOKENS = 21_333
# Seconds of an answer after which the next one is streamed: proxies end a response that is silent for a minute.
SLOW_ANSWER_SECONDS = 60.0
_PROXY_TIMEOUTS = frozenset({408, 504, 524})
"""Statuses with which a server or a proxy ends a response that it has waited for too long."""
_STREAM_WORDS = ("stream", "streaming")
"""Words with which a server refuses a request for one document, because its model only streams."""
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors that a decoder raises when a broken server sends something that its dialect does not define."""


class ModelAccess(TypedDict, total=False):
    """The options by which a server knows its client, the same for all dialects."""

    api_key: Secret | None
    key_source: str
    """Where the key is configured, for errors: a variable or a key of the file."""
    extra_headers: Mapping[str, Secret]
    """Headers of the file, which are sent with every request."""
    has_silence_limit: bool
    """Whether the file limits the seconds without output, which one document would have until its end."""


class HTTPModel(BatchingModel):
    """A `ModelProvider` over one endpoint. A subclass for a dialect builds its bodies and names its decoder."""

    decoder: ClassVar[type[AnswerDecoder]]
    usual_key_source: ClassVar[str] = "model.api_key"

    def __init__(self, url: str, *, provider: str, model: str, **access: Unpack[ModelAccess]) -> None:
        self.name = model
        self._api_key = access.get("api_key")
        address = ModelAddress(
            provider=provider,
            model=model,
            host=host_of(url),
            key=self._api_key,
            key_source=access.get("key_source", self.usual_key_source),
            extra_headers=access.get("extra_headers", NO_HEADERS),
        )
        self._endpoint = Endpoint(url, address=address, headers=self._key_headers)
        self._only_streams = access.get("has_silence_limit", False)
        # Whether the last answer took so long that one document is likely to be given up on the way.
        self._is_slow = False

    def find_sibling(self, path: str) -> Endpoint | None:
        """Return the URL of another API of the same server; see `Endpoint.find_sibling`."""
        return self._endpoint.find_sibling(path)

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Send one request, and again without each hint that the server refuses.

        Closing the iterator closes the connection at once.
        """
        is_read = request.is_streamed
        request = original = request if is_read else self._choose_form(request)
        is_answered, started, receipt = False, time.monotonic(), request.receipt
        while not is_answered:
            receipt.is_sent = True
            decoder = self.decoder(request, self._endpoint.address)
            try:
                async with aclosing(self._open_stream(request, decoder)) as stream:
                    async for events in stream:
                        batch: list[ModelEvent] = []
                        try:
                            decoder.decode_into(batch, events)
                            if decoder.is_finished and not is_answered:
                                is_answered = True
                                batch.append(self._require_answered(decoder, request))
                        except (ModelError, *_MALFORMED) as error:
                            # Events before the failing one are valid.
                            if batch:
                                yield batch
                            if isinstance(error, ModelError):
                                raise
                            raise self._malformed_error(error) from error
                        if request is not original:
                            # Only now: an error may name a hint and be about something else.
                            self._only_streams = self._only_streams or request.is_streamed > original.is_streamed
                            self._remember_refused(original, request)
                            original = request
                        if batch:
                            yield batch if is_read or not request.is_streamed else join_deltas(batch)
                if not is_answered:
                    is_answered = True
                    yield [self._require_answered(decoder, request)]
            except ModelError as error:
                receipt.is_sent = False
                # An answer that a proxy gave up is a slow one, however soon that was.
                started -= SLOW_ANSWER_SECONDS * (error.status in _PROXY_TIMEOUTS)
                request = self._change_refused(request, error)
            finally:
                self._is_slow = time.monotonic() - started >= SLOW_ANSWER_SECONDS

    def _choose_form(self, request: ModelRequest) -> ModelRequest:
        """Return a request whose deltas nothing reads, as a stream if one document could break a limit."""
        is_long = request.max_tokens is not None and request.max_tokens > MAX_WHOLE_TOKENS
        needs_stream = is_long or self._only_streams or self._is_slow
        return replace(request, is_streamed=True) if needs_stream else request

    def _open_stream(self, request: ModelRequest, decoder: AnswerDecoder) -> AsyncGenerator[list[dict[str, Any]], None]:
        body, headers = self._build_body(request), self._headers_for(request)
        return self._endpoint.stream_events(
            body,
            is_finished=lambda: decoder.is_finished,
            headers=headers,
            answer_bytes=decoder.answer_bytes,
            memory=request.memory,
        )

    def _change_refused(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        """Return the request in a form that its server does not refuse. Raises `error` if there is none."""
        if not request.is_streamed and find_refused_hints(error, _STREAM_WORDS):
            return replace(request, is_streamed=True)
        return self._leave_out_refused(request, error)

    async def close(self) -> None:
        await self._endpoint.close()

    def _build_body(self, request: ModelRequest) -> dict[str, Any]:
        """Build the body that is posted."""
        raise NotImplementedError

    def _key_headers(self) -> Mapping[str, str]:
        """Return the headers of every request that have the key."""
        return {"Authorization": f"Bearer {self._api_key.reveal()}"} if self._api_key else {}

    def _headers_for(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers that this request has beside those of all requests."""
        return NO_REQUEST_HEADERS

    def _leave_out_refused(self, request: ModelRequest, error: ModelError) -> ModelRequest:
        """Return the request without the hints that it was refused for. Raises `error` if it was none of them."""
        raise error

    def _remember_refused(self, original: ModelRequest, request: ModelRequest) -> None:
        """Remember what a request has no more, since its server has answered it."""

    def _require_answered(self, decoder: AnswerDecoder, request: ModelRequest) -> ModelAnswer:
        try:
            answer = decoder.to_answered()
        except _MALFORMED as error:
            raise self._malformed_error(error) from error
        if answer is None:
            form = "stream" if request.is_streamed else "document"
            raise self._endpoint.address.error(
                f"its {form} ended before the answer was complete. Ask again.", is_retryable=True
            )
        return answer

    def _malformed_error(self, error: Exception) -> ModelError:
        what = f"it sent an event of a shape that its dialect does not have ({type(error).__name__}: {error})."
        return self._endpoint.address.error(what)
