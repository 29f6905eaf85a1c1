"""The requests and WebSockets that are being served, with their callers, so that a revoked caller's end at once.

`OpenRequests.cancel_callers` cancels the task of each of them. What the client is told then is written by the
application, which asks `is_revoked`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from holodeck.gateway.auth.callers import Caller, RevokedCallers


class OpenRequest:
    """A request or WebSocket that has not ended, and its task."""

    __slots__ = ("caller_id", "is_revoked", "session_id", "task")

    caller_id: str
    """Empty until the caller is known."""
    session_id: str
    """The session of a person that it was authenticated with; empty for other credentials."""
    is_revoked: bool
    """True once it was cancelled because its caller is revoked."""
    task: asyncio.Task[None]

    def cancel(self) -> None:
        """Cancel it, because its caller is revoked."""
        self.is_revoked = True
        self.task.cancel()


class OpenSocket(OpenRequest):
    """The WebSocket that the current task serves."""

    __slots__ = ()

    def __init__(self, caller: Caller) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a WebSocket has one
        self.caller_id = caller.id
        self.session_id = caller.session_id
        self.is_revoked = False
        self.task = task


class OpenRequests(set[OpenRequest]):
    """Registry of the requests and WebSockets that have not ended."""

    def has_caller(self, caller_id: str) -> bool:
        """Return whether a request or WebSocket of a caller has not ended."""
        return any(each.caller_id == caller_id for each in self)

    def cancel_callers(self, revoked: RevokedCallers) -> list[asyncio.Task[None]]:
        """Cancel all requests of these callers, and return their tasks, which end soon."""
        requests = [each for each in self if each.caller_id in revoked and not each.is_revoked]
        for request in requests:
            request.cancel()
        return [request.task for request in requests]

    def cancel_sessions(self, ids: Collection[str]) -> None:
        """Cancel all requests of these sessions of persons."""
        for request in self:
            if request.session_id in ids and not request.is_revoked:
                request.cancel()

    def list_sessions(self) -> Collection[str]:
        """Return the ids of the sessions of persons that have requests here."""
        return {request.session_id for request in self if request.session_id}
