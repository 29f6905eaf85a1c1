"""Execution of actions on a transport, and the connection that does so for transports with one channel per client.

`ActionRunner` is shared by all connections of a server: streams that listen to pushed notifications, open questions to
clients, and slow calls that can be released. `DuplexConnection` is one client over stdio, SSE or WebSocket: each of its
requests runs in a task, which a cancellation of the client or `close` cancels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Protocol, assert_never

from holodeck.lib.tasks import TaskSet
from holodeck.testing.mcp.actions import (
    Action,
    Ask,
    Die,
    Listen,
    Message,
    Notify,
    Push,
    Raw,
    Release,
    Reply,
    Stay,
    Stderr,
    Wait,
)
from holodeck.testing.mcp.faults import Fault
from holodeck.testing.mcp.protocol import ServerSession, notification_of

_STDERR_LINE = b"x" * 99 + b"\n"
# Seconds for cancelled requests of a connection to end: they only wait and send.
_CLOSE_TIMEOUT = 5.0


class MessageWriter(Protocol):
    """Sends the messages about one request."""

    async def send_message(self, message: Message) -> None:
        """Send a message."""

    async def send_raw(self, data: bytes, *, ended: bool) -> None:
        """Send bytes in place of a message; if not `ended`, without the end of the line, frame or event."""

    async def write_stderr(self, data: bytes) -> None:
        """Write to stderr, if the transport has one."""

    async def die(self, code: int, stderr: str) -> None:
        """End the process or close the connection abruptly. May not return."""


@dataclass(frozen=True, eq=False)
class Listener:
    """A stream that receives pushed notifications: all, or the `methods` that a modern client subscribed to.

    Updates of a resource are pushed only to those that are subscribed to it, in `resources`.
    """

    writer: MessageWriter
    resources: Collection[str] = ()
    methods: frozenset[str] | None = None
    subscription: int | str | None = None

    def wants(self, push: Push) -> bool:
        """Return whether a notification is pushed to this stream."""
        if push.uri is not None:
            return push.uri in self.resources
        return self.methods is None or push.method in self.methods


class ActionRunner:
    """Performs actions. Owns what all connections to one server share: listeners, pauses and open questions."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._release_event = asyncio.Event()
        self._pending_answers: dict[str, asyncio.Future[Message]] = {}
        self._questions = count(1)
        self._changed = asyncio.Event()

    async def run(self, actions: Sequence[Action], writer: MessageWriter) -> None:
        """Perform the actions in order. A release meanwhile ends all their pauses, those that are to come as well."""
        released = self._release_event
        for action in actions:
            await self._run_action(action, writer, released)

    async def _run_action(self, action: Action, writer: MessageWriter, released: asyncio.Event) -> None:
        match action:
            case Reply(message) | Notify(message):
                await writer.send_message(message)
            case Raw(data, ended):
                await writer.send_raw(data, ended=ended)
            case Push():
                await self.push(action)
            case Ask(message, then):
                await self.run(then(await self._ask_client(message, writer)), writer)
            case Wait(seconds):
                await _wait_released(released, seconds)
            case Release():
                self.release()
            case Stay():
                await asyncio.Event().wait()
            case Stderr(size):
                await writer.write_stderr(_STDERR_LINE * (size // len(_STDERR_LINE)))
            case Die(code, stderr):
                await writer.die(code, stderr)
            case Listen(subscription, wanted, resources):
                await self._listen(Listener(writer, resources, wanted, subscription))
            case _:
                assert_never(action)

    async def push(self, push: Push) -> int:
        """Send a notification to each listener for its method, and return their number."""
        reached = 0
        for listener in list(self.listeners):
            if not listener.wants(push):
                continue
            message = notification_of(push, listener.subscription)
            try:
                for _ in range(push.times):
                    await listener.writer.send_message(message)
            # The client has just disconnected.
            except ConnectionError:
                self.remove_listener(listener)
                continue
            reached += 1
        return reached

    def release(self) -> None:
        """End every pause of the actions that are under way."""
        self._release_event.set()
        self._release_event = asyncio.Event()

    def receive_answer(self, message: Message) -> None:
        """Pass a client's answer to the question that waits for it."""
        answer = self._pending_answers.get(str(message.get("id")))
        if answer is not None and not answer.done():
            answer.set_result(message)

    def add_listener(self, listener: Listener) -> None:
        """Add a listener, and wake `wait_listeners`."""
        self.listeners.append(listener)
        self._changed.set()
        self._changed = asyncio.Event()

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener, if it is there."""
        if listener in self.listeners:
            self.listeners.remove(listener)

    async def wait_listeners(self, streams: int) -> None:
        """Wait until this many streams listen."""
        while len(self.listeners) < streams:
            await self._changed.wait()

    async def _listen(self, listener: Listener) -> None:
        self.add_listener(listener)
        try:
            await asyncio.Event().wait()
        finally:
            self.remove_listener(listener)

    async def _ask_client(self, question: Message, writer: MessageWriter) -> Message:
        number = f"ask-{next(self._questions)}"
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending_answers[number] = answer
        try:
            await writer.send_message({**question, "id": number})
            return await answer
        finally:
            del self._pending_answers[number]


async def _wait_released(released: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await released.wait()


class DuplexConnection:
    """One client on a channel that carries both directions. Each request runs in a task until `close`."""

    def __init__(self, session: ServerSession, action_runner: ActionRunner, writer: MessageWriter) -> None:
        self._session = session
        self._action_runner = action_runner
        self._writer = writer
        self._tasks = TaskSet()
        self._request_ids: dict[asyncio.Task[None], int | str | None] = {}
        self._listener: Listener | None = None

    def receive(self, message: Message, fault: Fault | None) -> None:
        """Handle a request, a notification, or an answer to a question. `fault` is the one that strikes it."""
        method = message.get("method")
        if method is None:
            self._action_runner.receive_answer(message)
            return
        if method == "notifications/cancelled":
            self._cancel_request((message.get("params") or {}).get("requestId"))
        if "id" not in message:
            return
        if method == "initialize" and self._listener is None:
            self._listener = Listener(self._writer, self._session.subscribed)
            self._action_runner.add_listener(self._listener)
        actions = self._session.actions_for(message, fault)
        task = self._tasks.start(self._action_runner.run(actions, self._writer))
        self._request_ids[task] = message["id"]
        task.add_done_callback(self._on_task_done)

    async def close(self) -> None:
        """Remove the listener, cancel the requests under way and wait for them."""
        if self._listener is not None:
            self._action_runner.remove_listener(self._listener)
        await self._tasks.close(_CLOSE_TIMEOUT)

    def _cancel_request(self, request_id: int | str | None) -> None:
        for task, task_request_id in list(self._request_ids.items()):
            if task_request_id == request_id:
                task.cancel()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._request_ids.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, OSError):
            raise error
