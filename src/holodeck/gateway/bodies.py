"""The bodies of requests: each has a size that it may have, all together have another, and none may take for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from holodeck.gateway.attending import Client, Receive
from holodeck.gateway.problems import WireError, client_gone, shutting_down
from holodeck.gateway.room import Room, no_room
from holodeck.gateway.visits import Visit
from holodeck.lib.limits import MIN_BODY_RATE, SMALL_BODY_BYTES

_JSON = "application/json"


class Bodies:
    """Reads them, and knows how much of them is in memory."""

    def __init__(self, *, limit: int, room: Room, seconds: float, is_leaving: Callable[[], bool]) -> None:
        """`limit`: bytes of one; `room`: for all that are here at once.

        `seconds`: between two pieces of one, and for all of it, with more time for what has come.
        """
        self._limit = limit
        self._room = room
        self._seconds = seconds
        self._is_leaving = is_leaving

    async def read(self, receive: Receive, headers: Mapping[str, str], client: Client | None, visit: Visit) -> bytes:
        """All of a body; it counts until it is given back.

        Raises `WireError` for one whose header does not say JSON: what a web page can send unasked says text.
        """
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _packed()
        declared = headers.get("content-length", "")
        has_body = declared not in ("", "0") or "transfer-encoding" in headers
        if has_body and headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise _not_json()
        if declared.isdigit() and int(declared) > min(self._limit, self._room.left):
            raise _too_large(self._limit) if int(declared) > self._limit else no_room()
        chunks: list[bytes] = []
        began = asyncio.get_running_loop().time()
        while True:
            is_here = client is not None and client.has_sent_all
            message = await (receive() if is_here else self._piece(receive, began, visit.held))
            if message["type"] == "http.disconnect":
                raise client_gone()
            chunk = message.get("body", b"")
            visit.held += len(chunk)
            self._room.left -= len(chunk)
            if visit.held > self._limit:
                raise _too_large(self._limit)
            if self._room.left < 0:
                raise no_room()
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)
            if self._is_leaving():  # what is not yet whole has not begun
                raise shutting_down()

    def give_back(self, visit: Visit) -> None:
        """A request is over, and so is its body."""
        self._room.left += visit.held

    async def _piece(self, receive: Receive, began: float, size: int) -> MutableMapping[str, Any]:
        """The next piece of a body of which `size` bytes have come since `began`."""
        passed = asyncio.get_running_loop().time() - began
        left = self._seconds + size / MIN_BODY_RATE - passed
        try:
            async with asyncio.timeout(min(self._seconds, max(left, 0.0))):
                return await receive()
        except TimeoutError:
            message = f"Nothing of the body came for {self._seconds:g} seconds."
            if left < self._seconds:
                message = f"The body came too slowly: {size} bytes in {passed + max(left, 0.0):.0f} seconds."
            raise WireError(408, message, kind="invalid_request", code="request_timeout") from None


def is_small(headers: Mapping[str, str]) -> bool:
    """Whether a body is so small that it need not be counted."""
    declared = headers.get("content-length", "")
    return declared.isdigit() and int(declared) <= SMALL_BODY_BYTES


def _too_large(limit: int) -> WireError:
    return WireError(413, f"The body is larger than {limit} bytes.", kind="invalid_request", code="too_large")


def _packed() -> WireError:
    message, code = "Send the body as it is: this gateway unpacks none.", "unsupported_encoding"
    return WireError(415, message, kind="invalid_request", code=code, accept_encoding="identity")


def _not_json() -> WireError:
    message, code = f"Send the body as JSON, with the header 'content-type: {_JSON}'.", "unsupported_media_type"
    return WireError(415, message, kind="invalid_request", code=code, accept=_JSON)
