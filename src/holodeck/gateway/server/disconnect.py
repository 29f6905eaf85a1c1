"""What is done for a client that waits for it ends when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
CLIENT_EXTENSION: Final = "holodeck.client"
"""Under this extension of ASGI our own server says more of a client than ASGI can."""


class Client(Protocol):
    """Who is at the other end of a connection."""

    @property
    def is_disconnected(self) -> bool: ...

    @property
    def has_sent_all(self) -> bool:
        """Whether the whole request is here, so that nothing of it has to be waited for."""
        ...

    def set_disconnect_callback(self, callback: Callable[[], None] | None) -> None:
        """Call this when the client leaves. One at a time; None: nobody needs to know any more."""
        ...

    def cork(self) -> None:
        """The answer comes now and whole: it may be sent in one piece at its end."""
        ...

    def cut_connection(self) -> None:
        """End the connection in the middle of an answer."""
        ...


def find_client(scope: MutableMapping[str, Any]) -> Client | None:
    """None behind a server that is not ours."""
    client: Client | None = scope.get("extensions", {}).get(CLIENT_EXTENSION)
    return client


class CancelOnDisconnect:
    """`with Attended(receive) as client:` is left early when the client leaves; `client.is_gone` says so afterwards.

    Nothing else may be received meanwhile. The block runs in the task that it is in, which is cheaper than one of its
    own, and is cancelled as by a time-out: whoever else cancels the task is not kept from it.
    """

    def __init__(self, receive: Receive, client: Client | None = None) -> None:
        """`client` says so itself; without it, a task has to wait for that."""
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
            self._watcher = asyncio.create_task(self._watch_disconnect())
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
