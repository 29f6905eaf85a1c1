"""Cancellation of the work for a client that disconnects.

`Client` is what our own server offers the application for a connection beyond ASGI. `CancelOnDisconnect` uses it, or
plain ASGI behind another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

from holodeck.gateway.http.asgi import Receive, Scope
from holodeck.lib.tasks import TaskSet

# The ASGI extension under which our own server passes a `Client`.
CLIENT_EXTENSION: Final = "holodeck.client"


class Client(Protocol):
    """The client at the other end of one connection."""

    @property
    def is_disconnected(self) -> bool: ...

    @property
    def has_sent_all(self) -> bool:
        """Whether the whole request has arrived, so that receiving it does not block."""
        ...

    def set_disconnect_callback(self, callback: Callable[[], None] | None) -> None:
        """Set the one function that is called when the client disconnects; None removes it."""
        ...

    def cork(self) -> None:
        """Announce that the whole reply is written now, so that it can be sent at once at its end."""
        ...

    def cut_connection(self) -> None:
        """Close the connection in the middle of a reply."""
        ...


def find_client(scope: Scope) -> Client | None:
    """Return the client of a request. None behind a server that is not ours."""
    client: Client | None = scope.get("extensions", {}).get(CLIENT_EXTENSION)
    return client


class CancelOnDisconnect:
    """Cancels the body of a `with` block when the client disconnects; `is_disconnected` then says so.

    Nothing else may call `receive` during the block. The block runs in the current task, which is cheaper than a task
    of its own, and is cancelled as `asyncio.timeout` does it: a cancellation from elsewhere still reaches the task.
    """

    def __init__(self, receive: Receive, client: Client | None = None) -> None:
        """`client` reports its disconnect by a callback; without it, a task has to watch `receive`."""
        self._receive = receive
        self._client = client
        self._watcher: asyncio.Task[None] | asyncio.Handle | None = None
        self.is_disconnected = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a request has one
        self._task = task
        self._earlier_cancels = task.cancelling()
        if self._client is None:
            # Cancelled by `__exit__`; it only waits in `receive`.
            self._watcher = TaskSet().start(self._watch_disconnect())
        elif self._client.is_disconnected:
            self._watcher = asyncio.get_running_loop().call_soon(self._cancel_task)
        else:
            self._client.set_disconnect_callback(self._cancel_task)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._watcher is not None:
            self._watcher.cancel()
        elif self._client is not None:
            self._client.set_disconnect_callback(None)
        if not self.is_disconnected:
            return False
        is_ours = self._task.uncancel() <= self._earlier_cancels
        return is_ours and kind is asyncio.CancelledError

    async def _watch_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel_task()

    def _cancel_task(self) -> None:
        self.is_disconnected = True
        self._task.cancel()
