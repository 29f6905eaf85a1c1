"""A transport without a server: a cassette answers requests, and its messages come in their recorded place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holodeck.cassettes.cassette import Entry
from holodeck.cassettes.server_data import UNORDERED_METHODS, decode_failure, put_reference, to_answer, to_params
from holodeck.lib.errors import CassetteMismatchError, MCPConnectionError, MCPError
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup

if TYPE_CHECKING:
    from holodeck.cassettes.replay.player import ReplayedTrack

_ASKED = "cassette-"
"""The prefix of the ids of recorded requests of a server; the number of the entry follows."""


class ReplayedTransport:
    """Stands for one connection to a server."""

    def __init__(self, setup: TransportSetup, on_message: OnMessage, track: ReplayedTrack) -> None:
        self._server = setup.tool.name
        self._errors = setup.errors
        self._on_message = on_message
        self._track = track
        self._request_ids: dict[int, RequestId] = {}
        """By number of an entry, the id of the request of this run."""
        self._received_at = 0.0
        self.failure: asyncio.Future[MCPConnectionError] = asyncio.get_running_loop().create_future()
        self._answers: set[asyncio.Future[Entry]] = set()

    async def open(self) -> None:
        try:
            failure = self._track.open_server(self._server, self)
        except CassetteMismatchError as error:
            raise self._errors.connection("start", str(error)) from error
        if failure is not None:
            raise decode_failure(self._track.localize(failure), self._server)

    def set_protocol_version(self, version: str, *, is_modern: bool) -> None:
        return

    async def request(self, message: Message, delivery: Delivery) -> Message:
        if self.failure.done():
            raise self.failure.result()
        request_id, method = message["id"], str(message["method"])

        def register(asked: Entry) -> None:
            self._request_ids[asked["entry"]] = request_id
            # Results have the id, which depends on what else the client asks in the meantime.
            delivery.request_id = asked.get("id", request_id)

        try:
            answer = self._track.ask_server(self._server, method, to_params(message), register)
            delivery.may_have_been_sent = True
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
            entry = self._track.localize(await answer)
        except CassetteMismatchError as error:
            if method in UNORDERED_METHODS:
                # The track has stored it, and the next request to the model raises it.
                raise self._errors.connection("start", str(error)) from error
            raise
        self._received_at = asyncio.get_running_loop().time()
        if "failure" in entry:
            delivery.may_have_been_sent = bool(entry["failure"].get("was_sent"))
            raise decode_failure(entry["failure"], self._server)
        return {"jsonrpc": "2.0", "id": request_id, **to_answer(entry)}

    def cancel(self, request_id: RequestId, reason: str) -> None:
        return

    def end_request(self, request_id: RequestId, reason: str) -> None:
        return

    async def send(self, message: Message) -> None:
        if "method" in message:
            self._track.record_notification(self._server, str(message["method"]))
        elif isinstance(number := message.get("id"), str) and number.startswith(_ASKED):
            self._track.check_reply(int(number.removeprefix(_ASKED)), to_answer(message))

    def is_stuck(self, since: float) -> bool:
        return False

    def last_received_at(self) -> float:
        return self._received_at

    def stderr_tail(self) -> str:
        return ""

    def stray_output(self) -> str:
        return ""

    def fail(self, error: MCPConnectionError) -> None:
        if not self.failure.done():
            self.failure.set_result(error)
        for answer in list(self._answers):
            if not answer.done():
                answer.set_exception(error)

    async def close(self) -> None:
        return

    def receive(self, entry: Mapping[str, Any]) -> None:
        """Pass on a recorded message of the server, or the loss of its connection."""
        self._received_at = asyncio.get_running_loop().time()
        if "lost" in entry:
            error: MCPError = decode_failure(entry["lost"], self._server)
            if isinstance(error, MCPConnectionError):
                self.fail(error)
            return
        message: Message = {"jsonrpc": "2.0", "method": entry.get("notification", entry.get("asked"))}
        if "params" in entry:
            about = self._request_ids.get(entry.get("about", 0))
            message["params"] = entry["params"] if about is None else put_reference(entry["params"], about)
        if "asked" in entry:
            message["id"] = f"{_ASKED}{entry['entry']}"
        self._on_message(message)
