"""One connection over a stream that carries both directions: stdio, legacy SSE and WebSocket share it."""

from __future__ import annotations

import asyncio

from holodeck.testing.mcp.action_runner import ActionRunner, Listener, MessageWriter
from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.faults import Fault
from holodeck.testing.mcp.protocol import ServerSession


class DuplexConnection:
    """Answers what comes in, each request in a task of its own, until it is closed."""

    def __init__(self, session: ServerSession, action_runner: ActionRunner, writer: MessageWriter) -> None:
        self._session = session
        self._action_runner = action_runner
        self._writer = writer
        self._tasks: dict[asyncio.Task[None], int | str | None] = {}
        self._listener: Listener | None = None

    def receive(self, message: Message, fault: Fault | None) -> None:
        """Take one message, and the fault that strikes it: a request, a notification, or an answer to a question."""
        method = message.get("method")
        if method is None:
            self._action_runner.receive_answer(message)
            return
        if method == "notifications/cancelled":
            self._cancel((message.get("params") or {}).get("requestId"))
        if "id" not in message:
            return
        if method == "initialize" and self._listener is None:
            self._listener = Listener(self._writer)
            self._action_runner.add_listener(self._listener)
        actions = self._session.actions_for(message, fault)
        task = asyncio.ensure_future(self._action_runner.run(actions, self._writer))
        self._tasks[task] = message["id"]
        task.add_done_callback(self._on_task_done)

    async def close(self) -> None:
        """End everything under way."""
        if self._listener is not None:
            self._action_runner.remove_listener(self._listener)
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _cancel(self, request: int | str | None) -> None:
        for task, number in list(self._tasks.items()):
            if number == request:
                task.cancel()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (fault := task.exception()) is not None and not isinstance(fault, OSError):
            raise fault
