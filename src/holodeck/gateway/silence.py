"""A stream that has nothing to tell for a while says so: proxies and clients end connections that are silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Self

COMMENT = b":\n"
"""What server-sent events have for that. No empty line follows: older parsers, as openai-go's, take it for an event."""


class Silence:
    """`with Silence(send, seconds) as silence:` while pieces are written; each of them adds one to `pieces`."""

    __slots__ = ("_looks", "_saying", "_seconds", "_seen", "_send", "pieces")

    def __init__(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]], seconds: float) -> None:
        self.pieces = 0
        self._send = send
        self._seconds = seconds
        self._seen = -1
        self._looks: asyncio.TimerHandle | None = None
        self._saying: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._looks = asyncio.get_running_loop().call_later(self._seconds, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        if self._looks is not None:
            self._looks.cancel()
        if self._saying is not None:
            self._saying.cancel()

    def _look(self) -> None:
        """Not at every piece: that would cost more than all of this."""
        is_saying = self._saying is not None and not self._saying.done()
        if self.pieces == self._seen and not is_saying:
            self._saying = asyncio.create_task(self._say())
        self._seen = self.pieces
        self._looks = asyncio.get_running_loop().call_later(self._seconds, self._look)

    async def _say(self) -> None:
        with suppress(OSError):  # nobody is there any more: who writes the pieces hears of it
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
