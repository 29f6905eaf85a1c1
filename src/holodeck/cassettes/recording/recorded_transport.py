"""A transport whose messages are recorded. It carries them by the transport that the definition of the server names."""

from __future__ import annotations

import asyncio
from typing import Any

from holodeck.cassettes.recording.recorder import RecordedTrack
from holodeck.cassettes.server_data import (
    UNORDERED_METHODS,
    copy_plain,
    encode_failure,
    take_reference,
    to_answer,
    to_params,
)
from holodeck.lib.errors import MCPConnectionError, MCPError
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup
from holodeck.tools.mcp.transports.registry import get_kind


class RecordedTransport:
    """Records what one connection carries. Owns the transport of the connection."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage, track: RecordedTrack) -> None:
        self._server = setup.tool.name
        self._kind = setup.tool.transport.value
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
