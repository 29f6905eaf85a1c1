"""What is done for a client that waits for it ends when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Self

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Attended:
    """`with Attended(receive) as client:` is left early when the client leaves; `client.is_gone` says so afterwards.

    Nothing else may be received meanwhile. The block runs in the task that it is in, which is cheaper than one of its
    own, and is cancelled as by a time-out: whoever else cancels the task is not kept from it.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_gone = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a request has one
        self._task = task
        self._cancels = task.cancelling()
        self._watch = asyncio.create_task(self._disconnected())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._watch.cancel()
        if not self.is_gone:
            return False
        is_ours = self._task.uncancel() <= self._cancels
        return is_ours and kind is asyncio.CancelledError

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        self._task.cancel()
