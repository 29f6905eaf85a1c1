"""Performs actions on a transport: the one place where a decision of the protocol becomes something that happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol, assert_never

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
from holodeck.testing.mcp.protocol import notification_of

_STDERR_LINE = b"x" * 99 + b"\n"


class MessageWriter(Protocol):
    """Where the messages about one request go."""

    async def send_message(self, message: Message) -> None:
        """Send a message."""

    async def send_raw(self, data: bytes, *, ended: bool) -> None:
        """Send bytes as if they were a message; without its end if it has not ended."""

    async def write_stderr(self, data: bytes) -> None:
        """Write to stderr, where there is one."""

    async def die(self, code: int, stderr: str) -> None:
        """End the process or cut the connection. May or may not return."""


@dataclass(frozen=True, eq=False)
class Listener:
    """A stream that gets what is pushed; all of it, or what a modern client has subscribed to."""

    writer: MessageWriter
    methods: frozenset[str] | None = None
    subscription: int | str | None = None


class ActionRunner:
    """What all connections to one server share: who listens, who waits, which questions are open."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._release_event = asyncio.Event()
        self._pending_answers: dict[str, asyncio.Future[Message]] = {}
        self._questions = count(1)
        self._changed = asyncio.Event()

    async def run(self, actions: Sequence[Action], writer: MessageWriter) -> None:
        """Do these things in order."""
        for action in actions:
            await self._run_action(action, writer)

    async def _run_action(self, action: Action, writer: MessageWriter) -> None:
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
                await self._wait(seconds)
            case Release():
                self.release()
            case Stay():
                await asyncio.Event().wait()
            case Stderr(size):
                await writer.write_stderr(_STDERR_LINE * (size // len(_STDERR_LINE)))
            case Die(code, stderr):
                await writer.die(code, stderr)
            case Listen(subscription, wanted):
                await self._listen(Listener(writer, wanted, subscription))
            case _:
                assert_never(action)

    async def push(self, push: Push) -> int:
        """Send a notification to every stream that wants it, and say how many those are."""
        reached = 0
        for listener in list(self.listeners):
            if listener.methods is not None and push.method not in listener.methods:
                continue
            message = notification_of(push, listener.subscription)
            try:
                for _ in range(push.times):
                    await listener.writer.send_message(message)
            except ConnectionError:  # its client has just gone
                self.remove_listener(listener)
                continue
            reached += 1
        return reached

    def release(self) -> None:
        """End every pause that is under way."""
        self._release_event.set()
        self._release_event = asyncio.Event()

    def receive_answer(self, message: Message) -> None:
        """Take a client's answer to a question."""
        waiting = self._pending_answers.get(str(message.get("id")))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def add_listener(self, listener: Listener) -> None:
        """Let a stream listen, and wake whoever waits for that."""
        self.listeners.append(listener)
        self._changed.set()
        self._changed = asyncio.Event()

    def remove_listener(self, listener: Listener) -> None:
        """Let a stream listen no longer."""
        if listener in self.listeners:
            self.listeners.remove(listener)

    async def wait_listeners(self, streams: int) -> None:
        """Wait until so many streams listen."""
        while len(self.listeners) < streams:
            await self._changed.wait()

    async def _listen(self, listener: Listener) -> None:
        self.add_listener(listener)
        try:
            await asyncio.Event().wait()
        finally:
            self.remove_listener(listener)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._release_event.wait()
        except TimeoutError:
            return

    async def _ask_client(self, question: Message, writer: MessageWriter) -> Message:
        number = f"ask-{next(self._questions)}"
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending_answers[number] = waiting
        try:
            await writer.send_message({**question, "id": number})
            return await waiting
        finally:
            del self._pending_answers[number]
