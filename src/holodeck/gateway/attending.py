"""What is done for a client that waits for it ends when the client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Final, Protocol, Self

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
CLIENT: Final = "holodeck.client"
"""Under this extension of ASGI our own server says more of a client than ASGI can."""


class Client(Protocol):
    """Who is at the other end of a connection."""

    @property
    def is_gone(self) -> bool: ...

    @property
    def has_sent_all(self) -> bool:
        """Whether the whole request is here, so that nothing of it has to be waited for."""
        ...

    def attend(self, on_leaving: Callable[[], None] | None) -> None:
        """Call this when the client leaves. One at a time; None: nobody needs to know any more."""
        ...

    def hold(self) -> None:
        """The answer comes now and whole: it may be sent in one piece at its end."""
        ...

    def cut(self) -> None:
        """End the connection in the middle of an answer."""
        ...


def client_of(scope: MutableMapping[str, Any]) -> Client | None:
    """None behind a server that is not ours."""
    client: Client | None = scope.get("extensions", {}).get(CLIENT)
    return client


class Attended:
    """`with Attended(receive) as client:` is left early when the client leaves; `client.is_gone` says so afterwards.

    Nothing else may be received meanwhile. The block runs in the task that it is in, which is cheaper than one of its
    own, and is cancelled as by a time-out: whoever else cancels the task is not kept from it.
    """

    def __init__(self, receive: Receive, client: Client | None = None) -> None:
        """`client` says so itself; without it, a task has to wait for that."""
        self._receive = receive
        self._client = client
        self._watch: asyncio.Task[None] | asyncio.Handle | None = None
        self.is_gone = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a request has one
        self._task = task
        self._cancels = task.cancelling()
        if self._client is None:
            self._watch = asyncio.create_task(self._disconnected())
        elif self._client.is_gone:
            self._watch = asyncio.get_running_loop().call_soon(self._leave)
        else:
            self._client.attend(self._leave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._watch is not None:
            self._watch.cancel()
        elif self._client is not None:
            self._client.attend(None)
        if not self.is_gone:
            return False
        is_ours = self._task.uncancel() <= self._cancels
        return is_ours and kind is asyncio.CancelledError

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self.is_gone = True
        self._task.cancel()
