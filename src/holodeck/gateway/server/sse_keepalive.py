"""Comments in an idle event stream, because proxies and clients close connections without traffic."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from holodeck.gateway.http.asgi import Send
from holodeck.lib.tasks import TaskSet


class SSEKeepAlive:
    """Sends `comment` for every `seconds` without a chunk, during a `with` block in which a stream is written.

    The writer adds one to `chunks_sent` for each chunk. A timer compares that number: a timer that is set again for
    each chunk would cost more than everything else here.
    """

    __slots__ = ("_chunks_at_check", "_comment", "_comment_task", "_seconds", "_send", "_timer", "chunks_sent")

    def __init__(self, send: Send, seconds: float, comment: bytes) -> None:
        self.chunks_sent = 0
        self._comment = comment
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
        is_sending = self._comment_task is not None and not self._comment_task.done()
        if self.chunks_sent == self._chunks_at_check and not is_sending:
            # One at a time, which `__exit__` cancels.
            self._comment_task = TaskSet().start(self._send_comment())
        self._chunks_at_check = self.chunks_sent
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check_idle)

    async def _send_comment(self) -> None:
        # A client that has disconnected is reported to the writer of the chunks.
        with suppress(OSError):
            await self._send({"type": "http.response.body", "body": self._comment, "more_body": True})
