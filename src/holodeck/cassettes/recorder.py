"""Recording of a track: the entries in the order in which requests were sent and messages came.

An entry gets its answer in place if nothing came between; otherwise the answer is an entry of its own. Entries are
redacted as a whole at the end, when all secrets are known: `take_track`.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from holodeck.cassettes.cassette import Entry, TrackData
from holodeck.cassettes.model_data import drop_wrong_pieces, encode_events, encode_model_error, encode_request
from holodeck.cassettes.server_data import (
    UNORDERED_METHODS,
    copy_plain,
    encode_failure,
    take_reference,
    to_answer,
    to_params,
)
from holodeck.cassettes.track import Redactor, TrackBase, Workspace
from holodeck.lib.errors import MCPConnectionError, MCPError, ModelError
from holodeck.models.model_io import ModelEvent, ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup
from holodeck.tools.mcp.transports.registry import get_kind

if TYPE_CHECKING:
    from holodeck.providers.base import ModelProvider
    from holodeck.tools.mcp.transports.base import OnMessage, Transport, TransportSetup


class RecordedModel(ModelWrapper):
    """Asks another model, and records what it is asked and answers. A request that is abandoned has no answer."""

    def __init__(self, inner: ModelProvider, track: RecordedTrack) -> None:
        super().__init__(inner)
        self._track = track

    async def stream_batches(self, request: ModelRequest) -> Batches:
        number = self._track.add(model=self.name, request=encode_request(request))
        events: list[ModelEvent] = []
        # Streamed in any case: the answer is replayed to others, and as far as it came if it is left.
        try:
            async with aclosing(stream_in_batches(self._inner, replace(request, is_streamed=True))) as batches:
                async for batch in batches:
                    events += batch
                    yield batch
        except ModelError as error:
            answer = {"answer": encode_events(events)} if events else {}
            self._track.add_answer(number, **answer, error=encode_model_error(error))
            raise
        except GeneratorExit:
            # The engine has read enough: the replay ends in the same place.
            self._track.add_answer(number, answer=encode_events(events))
            raise
        else:
            self._track.add_answer(number, answer=encode_events(events))


class RecordedTransport:
    """Records what one connection carries. Owns the transport of the connection."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage, track: RecordedTrack) -> None:
        self._server = setup.tool.name
        self._kind = setup.tool.transport_name
        self._track = track
        self._on_message = on_message
        self._inner = get_kind(setup.tool).load()(setup, self._receive)
        self._numbers: dict[RequestId, int] = {}
        """By id of a request to the server, its entry."""
        self._asked: dict[RequestId, int] = {}
        """By id of a request of the server, its entry."""
        self._is_open = False
        self.failure = self._inner.failure
        self.failure.add_done_callback(self._record_loss)

    async def open(self) -> None:
        number = self._track.add(server=self._server, opened=self._kind)
        try:
            await self._inner.open()
        except MCPError as error:
            self._track.add_answer(number, failure=encode_failure(error))
            raise
        self._is_open = True

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        self._inner.set_protocol_version(version, is_modern=is_modern)

    async def request(self, message: Message, delivery: Delivery) -> Message:
        method = message["method"]
        request_id = None if method in UNORDERED_METHODS else message["id"]
        number = self._track.add(server=self._server, request=method, id=request_id, params=to_params(message))
        self._numbers[message["id"]] = number
        try:
            response = await self._inner.request(message, delivery)
        except MCPError as error:
            self._track.add_answer(number, failure=encode_failure(error, delivery))
            raise
        self._track.add_answer(number, **to_answer(response))
        return response

    def cancel(self, request_id: RequestId, reason: str) -> None:
        self._inner.cancel(request_id, reason)

    def end_request(self, request_id: RequestId, reason: str) -> None:
        self._inner.end_request(request_id, reason)

    async def send(self, message: Message) -> None:
        if "method" in message:
            self._track.add(server=self._server, notification_sent=message["method"], params=to_params(message))
        elif (number := self._asked.pop(message["id"], None)) is not None:
            self._track.add_answer(number, reply=to_answer(message))
        await self._inner.send(message)

    def is_stuck(self, since: float) -> bool:
        return self._inner.is_stuck(since)

    def last_received_at(self) -> float:
        return self._inner.last_received_at()

    def stderr_tail(self) -> str:
        return self._inner.stderr_tail()

    def stray_output(self) -> str:
        return self._inner.stray_output()

    def fail(self, error: MCPConnectionError) -> None:
        self._inner.fail(error)

    async def close(self) -> None:
        self._is_open = False
        await self._inner.close()

    def _receive(self, message: Message, related: RequestId | None = None) -> None:
        if isinstance(request_id := message.get("id"), int | str):
            params = copy_plain(message.get("params"))
            self._asked[request_id] = self._track.add(server=self._server, asked=message["method"], params=params)
        else:
            params, reference = take_reference(message.get("params"))
            about = None if reference is None else self._numbers.get(reference)
            self._track.add(server=self._server, notification=message["method"], about=about, params=params)
        self._on_message(message, related)

    def _record_loss(self, failure: asyncio.Future[Any]) -> None:
        if self._is_open and not failure.cancelled():
            self._track.add(server=self._server, lost=encode_failure(failure.result()))


class RecordedTrack(TrackBase):
    """A track that is being recorded. Models and servers are asked."""

    is_replay: Literal[False] = False

    def __init__(self, name: str, redactor: Redactor, workspace: Workspace) -> None:
        super().__init__(name, redactor, workspace)
        self._entries: list[Entry] = []

    def open_model(self, model: ModelProvider) -> ModelProvider:
        return RecordedModel(model, self)

    def build_transport(self, setup: TransportSetup, on_message: OnMessage) -> Transport:
        self._redactor.add_server(setup.tool, setup.errors)
        return RecordedTransport(setup, on_message, self)

    def add(self, **entry: Any) -> int:
        """Add an entry without the keys that are None, and return its number."""
        number = len(self._entries) + 1
        self._entries.append({"entry": number, **{key: value for key, value in entry.items() if value is not None}})
        return number

    def add_answer(self, number: int, **answer: Any) -> None:
        """Add the answer to the request of an entry."""
        if number == len(self._entries):
            self._entries[-1] |= answer
        else:
            self.add(answer_to=number, **answer)

    @property
    def is_empty(self) -> bool:
        return not self._entries

    def take_track(self) -> TrackData:
        """Return what was recorded, without secrets and without the folder of the agent."""
        entries = self._workspace.to_portable(self._redactor.redact(self._entries))
        for entry in entries:
            drop_wrong_pieces(entry.get("answer", ()))
        return TrackData(name=self.name, recorded_at=datetime.now(UTC), entries=entries)
