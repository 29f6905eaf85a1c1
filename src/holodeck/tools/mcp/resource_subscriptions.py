"""Subscriptions to resources of one server: listeners are called when the server announces an update.

All listeners of one URI share one subscription at the server, which begins with the first and ends with the last of
them. `ResourceSubscriptions` owns a task for each URI. The task subscribes, waits for the end of the connection, and
subscribes again on the next one, which it makes itself if nothing else needs it. Updates in between may have been
missed, so the listeners are then called once.

A legacy server is asked with `resources/subscribe`. A modern one gets a `subscriptions/listen` for each URI, so that a
URI that it refuses does not affect the others. `close` ends the tasks and keeps the listeners; `resume` starts the
tasks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from holodeck.lib import log
from holodeck.lib.backoff import backoff_pause
from holodeck.lib.errors import MCPError
from holodeck.lib.limits import MAX_STREAM_RETRY, NOTICE_TIMEOUT, STREAM_RETRY
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.connection.connection import Connection
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.versions import META_SUBSCRIPTION, ProtocolEra, mapping
from holodeck.tools.mcp.transports.base import Delivery

# Resources of one server with listeners. Over HTTP, each takes a connection to a modern server.
MAX_SUBSCRIPTIONS = 256

SUBSCRIBE = "resources/subscribe"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_LISTEN = "subscriptions/listen"

OnUpdate = Callable[[str], None]
"""Called with the URI that was updated: the subscribed one, or one below it. Must not block."""


class ResourceSubscription:
    """One listener of a resource. `close`, or the end of `async with`, removes it; it may be closed twice."""

    def __init__(self, uri: str, listener: OnUpdate, remove: Callable[[ResourceSubscription], Awaitable[None]]) -> None:
        self.uri = uri
        self.listener = listener
        self._remove = remove

    async def close(self) -> None:
        """Remove the listener. The last one of a URI ends the subscription at the server, in bounded time."""
        await self._remove(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _Watch:
    """The subscription of one URI at the server, with its listeners."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.listeners: dict[ResourceSubscription, None] = {}  # in their order
        self.task: asyncio.Task[None] | None = None
        self.confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has accepted the subscription for the first time, or has refused it."""
        self.delivery: Delivery | None = None
        """The delivery of the `subscriptions/listen` in progress."""
        self.granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Whether the server acknowledges the `subscriptions/listen` in progress."""

    def is_about(self, uri: str, subscription_id: object) -> bool:
        """Return whether an update of `uri` is one of this subscription: of the resource itself, or of one below it."""
        return uri == self.uri or uri.startswith(self.uri.rstrip("/") + "/") or self.has_id(subscription_id)

    def has_id(self, subscription_id: object) -> bool:
        sent = self.delivery.request_id if self.delivery is not None else None
        return sent is not None and str(subscription_id) == str(sent)


class ResourceSubscriptions:
    """The subscriptions of one server."""

    def __init__(
        self, errors: ErrorFactory, get_connection: Callable[[], Awaitable[Connection]], *, request_timeout: float
    ) -> None:
        self._errors = errors
        self._get_connection = get_connection
        self._request_timeout = request_timeout
        self._watches: dict[str, _Watch] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        """By URI, the task that ends a subscription, before which a new one must not begin."""
        self._tasks = TaskSet()

    async def subscribe(self, uri: str, listener: OnUpdate) -> ResourceSubscription:
        """Subscribe to a resource, and return when the server has accepted it. Raises MCPError."""
        watch = self._watches.get(uri)
        if watch is None:
            if len(self._watches) >= MAX_SUBSCRIPTIONS:
                text = f"there are already {MAX_SUBSCRIPTIONS} subscriptions to its resources. End one of them first."
                raise self._errors.build(MCPError, SUBSCRIBE, text, is_public=True)
            watch = self._watches[uri] = _Watch(uri)
            self._start(watch)
        subscription = ResourceSubscription(uri, listener, self._remove)
        watch.listeners[subscription] = None
        try:
            await asyncio.shield(watch.confirmed)
        except BaseException:
            await self._remove(subscription)
            raise
        return subscription

    def apply_notification(self, message: Message) -> bool:
        """Apply a notification about subscribed resources. Returns False for all others."""
        method, params = message.get("method"), mapping(message.get("params"))
        subscription_id = mapping(params.get("_meta")).get(META_SUBSCRIPTION)
        if method == UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str):
                for watch in list(self._watches.values()):
                    if watch.is_about(uri, subscription_id):
                        self._notify(watch, uri)
            return True
        if method != ACKNOWLEDGED:
            return False
        for watch in self._watches.values():
            if watch.has_id(subscription_id):
                accepted = mapping(params.get("notifications")).get("resourceSubscriptions")
                if not watch.granted.done():
                    watch.granted.set_result(isinstance(accepted, list) and bool(accepted))
                return True
        return False

    def resume(self) -> None:
        """Start the tasks of all URIs with listeners, on a new connection after `close`."""
        for watch in self._watches.values():
            if watch.task is None:
                self._start(watch)

    async def close(self) -> None:
        """End all tasks, in bounded time. Listeners stay; a `subscribe` in progress fails."""
        for watch in list(self._watches.values()):
            watch.task = None
            if not watch.confirmed.done():
                self._refuse(watch, self._errors.connection("close", "it was closed before it answered."))
        await self._tasks.close(NOTICE_TIMEOUT)

    def _start(self, watch: _Watch) -> None:
        name = f"mcp-watch:{self._errors.server}"
        watch.task = self._tasks.supervise(partial(self._hold, watch, self._ending.get(watch.uri)), name=name)

    async def _hold(self, watch: _Watch, predecessor: asyncio.Task[None] | None) -> None:
        """Keep the subscription on one connection after the other, until the task is cancelled."""
        if predecessor is not None:
            await asyncio.wait({predecessor})
        failures = 0
        while True:
            try:
                connection = await self._get_connection()
                terms = connection.session.terms
                if terms is not None and terms.era is ProtocolEra.MODERN:
                    await self._listen(connection, watch)
                else:
                    await self._hold_legacy(connection, watch)
                failures = 0
            except MCPError as error:
                if not watch.confirmed.done():
                    self._refuse(watch, error)
                    return
                failures += 1
                log.debug("mcp.subscription_lost", server=self._errors.server, error=error, failures=failures)
            # `failures + 1`: one that ended without an error is renewed after the first pause.
            await asyncio.sleep(backoff_pause(failures + 1, first=STREAM_RETRY, longest=MAX_STREAM_RETRY))

    async def _hold_legacy(self, connection: Connection, watch: _Watch) -> None:
        """Subscribe, and return when the connection is lost. Unsubscribes if the last listener has left."""
        session = connection.session
        declared = mapping(session.terms.capabilities.get("resources")) if session.terms is not None else {}
        if declared.get("subscribe") is not True:
            raise self._errors.protocol(SUBSCRIBE, "it does not announce updates of its resources.", is_public=True)
        await session.request(SUBSCRIBE, {"uri": watch.uri}, seconds=self._request_timeout)
        try:
            self._confirm(watch)
            await asyncio.wait({session.transport.failure})
        finally:
            if not watch.listeners and not session.transport.failure.done():
                with suppress(MCPError):
                    await session.request("resources/unsubscribe", {"uri": watch.uri}, seconds=NOTICE_TIMEOUT)

    async def _listen(self, connection: Connection, watch: _Watch) -> None:
        """Hold a request open on which a modern server announces updates, and return when it ends."""
        watch.delivery = Delivery(is_open_ended=True)
        watch.granted = granted = asyncio.get_running_loop().create_future()
        wanted = {"notifications": {"resourceSubscriptions": [watch.uri]}}
        request = connection.session.request(_LISTEN, wanted, seconds=None, delivery=watch.delivery)
        listening = self._tasks.start(request)
        try:
            first: list[asyncio.Future[Any]] = [listening, granted]
            await asyncio.wait(first, timeout=self._request_timeout, return_when=asyncio.FIRST_COMPLETED)
            if not granted.done():
                if listening.done():
                    listening.result()
                    raise self._errors.protocol(_LISTEN, "it ended the subscription at once.")
                raise self._errors.timeout(_LISTEN, f"no answer within {self._request_timeout:g} s.")
            if not granted.result():
                text = f"it does not announce updates of {watch.uri!r}."
                raise self._errors.protocol(_LISTEN, text, is_public=True)
            self._confirm(watch)
            await asyncio.wait({listening})
            log.debug("mcp.listen_ended", server=self._errors.server, error=listening.exception())
        finally:
            watch.delivery = None
            if not listening.done():
                listening.cancel()
                await asyncio.wait({listening})

    def _confirm(self, watch: _Watch) -> None:
        if watch.confirmed.done():
            # Updates since the last connection are not announced.
            self._notify(watch, watch.uri)
        else:
            watch.confirmed.set_result(None)

    def _refuse(self, watch: _Watch, error: MCPError) -> None:
        """Fail every `subscribe` that waits for the answer of the server."""
        if self._watches.get(watch.uri) is watch:
            del self._watches[watch.uri]
        watch.confirmed.set_exception(error)
        # Read here, because the last waiting caller may have been cancelled.
        watch.confirmed.exception()

    async def _remove(self, subscription: ResourceSubscription) -> None:
        watch = self._find_watch(subscription)
        if watch is None:
            return
        del watch.listeners[subscription]
        if watch.listeners:
            return
        del self._watches[watch.uri]
        task = watch.task
        if task is None:
            return
        self._ending[watch.uri] = task
        task.add_done_callback(lambda ended: self._forget_ending(watch.uri, ended))
        task.cancel()
        await asyncio.wait({task})

    def _forget_ending(self, uri: str, ended: asyncio.Task[None]) -> None:
        if self._ending.get(uri) is ended:
            del self._ending[uri]

    def _find_watch(self, subscription: ResourceSubscription) -> _Watch | None:
        watch = self._watches.get(subscription.uri)
        return watch if watch is not None and subscription in watch.listeners else None

    def _notify(self, watch: _Watch, uri: str) -> None:
        # A copy, because a listener may end a subscription.
        for subscription in list(watch.listeners):
            try:
                subscription.listener(uri)
            # An error of the listener must not end the task that reads the answers.
            except Exception as error:
                log.error("mcp.listener_failed", server=self._errors.server, error=repr(error))
