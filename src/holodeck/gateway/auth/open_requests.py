"""The requests and WebSockets that are being served, with their callers, so that a revoked caller's end at once.

`OpenRequests.track` is used around the work for one request. `cancel_callers` cancels that work as `asyncio.timeout`
does it: in the task of the request, and without hiding a cancellation that comes from elsewhere. What the client is
told then is written by the application, which asks `is_revoked` behind the block.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from holodeck.gateway.auth.callers import RevokedCallers


class OpenRequests:
    """Registry of the requests and WebSockets that have not ended."""

    def __init__(self) -> None:
        self._open: dict[OpenRequest, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def track(self, caller_id: str = "") -> OpenRequest:
        """Register the current task as that of a request during a `with` block. The caller may become known later."""
        return OpenRequest(self._open, caller_id)

    def cancel_callers(self, revoked: RevokedCallers) -> list[asyncio.Task[object]]:
        """Cancel all requests of these callers, and return their tasks, which end soon."""
        requests = [each for each in self._open if each.caller_id in revoked and not each.is_revoked]
        for request in requests:
            request.cancel()
        return [request.task for request in requests]


class OpenRequest:
    """One request: cancels the body of its `with` block when its caller is revoked; `is_revoked` then says so."""

    __slots__ = ("_earlier_cancels", "_registry", "caller_id", "is_revoked", "task")

    def __init__(self, registry: dict[OpenRequest, None], caller_id: str) -> None:
        self._registry = registry
        self.caller_id = caller_id
        self.is_revoked = False
        self.task: asyncio.Task[object]

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a request has one
        self.task = task
        self._earlier_cancels = task.cancelling()
        self._registry[self] = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        del self._registry[self]
        if not self.is_revoked:
            return False
        is_ours = self.task.uncancel() <= self._earlier_cancels
        return is_ours and kind is asyncio.CancelledError

    def cancel(self) -> None:
        self.is_revoked = True
        self.task.cancel()
