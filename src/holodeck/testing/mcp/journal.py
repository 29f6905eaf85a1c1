"""Records of what a server has received: in memory, or in a file that survives the process. Tests can wait on both."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from holodeck.lib.record import record
from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.faults import POLL_SECONDS, WAIT_SECONDS

ABANDONED = "(abandoned)"
"""The method that is recorded when a client closes a response stream before its answer."""


@record
class Received:
    """One message of a client."""

    method: str
    """The JSON-RPC method; empty for an answer to a request of the server."""
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """HTTP headers with names in lower case; empty over stdio."""
    message: Mapping[str, Any] = field(default_factory=dict)
    """The whole message."""
    http_method: str = ""

    @property
    def name(self) -> str | None:
        """The tool or prompt of the request."""
        name = self.params.get("name")
        return name if isinstance(name, str) else None


def to_received(message: Message, headers: Mapping[str, str] | None = None, http_method: str = "") -> Received:
    """Return the record of a message."""
    params = message.get("params")
    return Received(
        method=str(message.get("method", "")),
        params=params if isinstance(params, dict) else {},
        headers=headers or {},
        message=message,
        http_method=http_method,
    )


class ReceivedLog:
    """All messages received so far, in order, in memory."""

    def __init__(self) -> None:
        self.all: list[Received] = []
        self._changed = asyncio.Event()

    def add(self, one: Received) -> None:
        """Append a message, and wake `wait_matching`."""
        self.all.append(one)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_matching(self, matches: Callable[[Received], bool], count: int, within: float) -> list[Received]:
        """Wait for `count` matching messages and return them. Raises `TimeoutError` after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                while sum(map(matches, self.all)) < count:
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(_timeout_message(within, self.all)) from None
        return [one for one in self.all if matches(one)][:count]


class Journal:
    """Journal file of a stdio server, which writes it with `--journal`; a test reads it here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, **fields: Any) -> None:
        """Append one line in a single write, so that processes can share the file."""
        line = json.dumps({"event": event, "pid": os.getpid(), **fields}) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of one kind: `start`, `message`, `fault` or `end`."""
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["event"] == event]

    @property
    def pids(self) -> list[int]:
        """The process ids of all starts so far, in order."""
        return [int(each["pid"]) for each in self.events("start")]

    @property
    def requests(self) -> list[Received]:
        """All messages received so far, in order."""
        return [to_received(each["message"]) for each in self.events("message")]

    async def received(self, method: str, *, count: int = 1, within: float = WAIT_SECONDS) -> list[Received]:
        """Wait until the method was received `count` times and return those messages; `start` waits for starts.

        Raises `TimeoutError` after `within` seconds.
        """
        try:
            async with asyncio.timeout(within):
                while True:
                    if method == "start" and len(self.pids) >= count:
                        return []
                    found = [each for each in self.requests if each.method == method]
                    if len(found) >= count:
                        return found[:count]
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(_timeout_message(within, self.requests)) from None


def _timeout_message(seconds: float, messages: list[Received]) -> str:
    return f"Timed out after {seconds:g} s. Received so far: {[message.method for message in messages]}"
