"""Performs actions on a transport: the one place where a decision of the protocol becomes something that happens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol, assert_never

from holodeck.testing.actions import (
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
from holodeck.testing.protocol import pushed

_STDERR_LINE = b"x" * 99 + b"\n"


class Outlet(Protocol):
    """Where the messages about one request go."""

    async def message(self, message: Message) -> None:
        """Send a message."""

    async def raw(self, data: bytes, *, ended: bool) -> None:
        """Send bytes as if they were a message; without its end if it has not ended."""

    async def stderr(self, data: bytes) -> None:
        """Write to stderr, where there is one."""

    async def die(self, code: int, stderr: str) -> None:
        """End the process or cut the connection. May or may not return."""


@dataclass(frozen=True, eq=False)
class Listener:
    """A stream that gets what is pushed; all of it, or what a modern client has subscribed to."""

    outlet: Outlet
    wanted: frozenset[str] | None = None
    subscription: int | str | None = None


class Performer:
    """What all connections to one server share: who listens, who waits, which questions are open."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._released = asyncio.Event()
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._questions = count(1)
        self._changed = asyncio.Event()

    async def perform(self, actions: Sequence[Action], outlet: Outlet) -> None:
        """Do these things in order."""
        for action in actions:
            await self._one(action, outlet)

    async def _one(self, action: Action, outlet: Outlet) -> None:
        match action:
            case Reply(message) | Notify(message):
                await outlet.message(message)
            case Raw(data, ended):
                await outlet.raw(data, ended=ended)
            case Push():
                await self.push(action)
            case Ask(message, then):
                await self.perform(then(await self._ask(message, outlet)), outlet)
            case Wait(seconds):
                await self._wait(seconds)
            case Release():
                self.release()
            case Stay():
                await asyncio.Event().wait()
            case Stderr(size):
                await outlet.stderr(_STDERR_LINE * (size // len(_STDERR_LINE)))
            case Die(code, stderr):
                await outlet.die(code, stderr)
            case Listen(subscription, wanted):
                await self._listen(Listener(outlet, wanted, subscription))
            case _:
                assert_never(action)

    async def push(self, push: Push) -> int:
        """Send a notification to every stream that wants it, and say how many those are."""
        reached = 0
        for listener in list(self.listeners):
            if listener.wanted is not None and push.method not in listener.wanted:
                continue
            message = pushed(push, listener.subscription)
            try:
                for _ in range(push.times):
                    await listener.outlet.message(message)
            except ConnectionError:  # its client has just gone
                self.remove(listener)
                continue
            reached += 1
        return reached

    def release(self) -> None:
        """End every pause that is under way."""
        self._released.set()
        self._released = asyncio.Event()

    def answered(self, message: Message) -> None:
        """Take a client's answer to a question."""
        waiting = self._answers.get(str(message.get("id")))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def add(self, listener: Listener) -> None:
        """Let a stream listen, and wake whoever waits for that."""
        self.listeners.append(listener)
        self._changed.set()
        self._changed = asyncio.Event()

    def remove(self, listener: Listener) -> None:
        """Let a stream listen no longer."""
        if listener in self.listeners:
            self.listeners.remove(listener)

    async def listening(self, streams: int) -> None:
        """Wait until so many streams listen."""
        while len(self.listeners) < streams:
            await self._changed.wait()

    async def _listen(self, listener: Listener) -> None:
        self.add(listener)
        try:
            await asyncio.Event().wait()
        finally:
            self.remove(listener)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._released.wait()
        except TimeoutError:
            return

    async def _ask(self, question: Message, outlet: Outlet) -> Message:
        number = f"ask-{next(self._questions)}"
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        try:
            await outlet.message({**question, "id": number})
            return await waiting
        finally:
            del self._answers[number]
