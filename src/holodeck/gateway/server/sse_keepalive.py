"""A stream that has nothing to tell for a while says so: proxies and clients end connections that are silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Self

KEEPALIVE_COMMENT = b":\n"
"""What server-sent events have for that. No empty line follows: older parsers, as openai-go's, take it for an event."""


class SSEKeepAlive:
    """`with Silence(send, seconds) as silence:` while pieces are written; each of them adds one to `chunks_sent`."""

    __slots__ = ("_chunks_at_check", "_comment_task", "_seconds", "_send", "_timer", "chunks_sent")

    def __init__(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]], seconds: float) -> None:
        self.chunks_sent = 0
        self._send = send
        self._seconds = seconds
        self._chunks_at_check = -1
        self._timer: asyncio.TimerHandle | None = None
        self._comment_task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check_idle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._comment_task is not None:
            self._comment_task.cancel()

    def _check_idle(self) -> None:
        """Not at every piece: that would cost more than all of this."""
        is_saying = self._comment_task is not None and not self._comment_task.done()
        if self.chunks_sent == self._chunks_at_check and not is_saying:
            self._comment_task = asyncio.create_task(self._send_comment())
        self._chunks_at_check = self.chunks_sent
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check_idle)

    async def _send_comment(self) -> None:
        with suppress(OSError):  # nobody is there any more: who writes the pieces hears of it
            await self._send({"type": "http.response.body", "body": KEEPALIVE_COMMENT, "more_body": True})
