"""The tasks that are waited for on one session, and the client, the listener and the waiter of each.

A notification of the server wakes the waiter; progress goes to the listener; a request that names the task goes to the
client that the task is run for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holodeck.lib.record import record
from holodeck.tools.mcp.protocol.jsonrpc import RequestId
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.protocol.versions import META_RELATED_TASK, mapping

if TYPE_CHECKING:
    from holodeck.tools.mcp.protocol.pending_requests import OnProgress

TASK_NOTIFICATIONS = frozenset({"notifications/tasks/status", "notifications/tasks"})
"""That the state of a task has changed, in the legacy and in the modern era."""


@record
class WatchedTask:
    """A task that is waited for."""

    changed: asyncio.Event
    """Set whenever the server announces a change."""
    peer: Peer | None
    """The client that the task is run for."""
    token: RequestId | None
    """The progress token of the request that created it."""
    on_progress: OnProgress | None


class TaskWatches:
    """The watched tasks of one session."""

    def __init__(self) -> None:
        self._tasks: dict[str, WatchedTask] = {}

    @contextmanager
    def watch(self, task_id: str, task: WatchedTask) -> Iterator[None]:
        """Watch a task during the block."""
        self._tasks[task_id] = task
        try:
            yield
        finally:
            self._tasks.pop(task_id, None)

    @property
    def peers(self) -> list[Peer | None]:
        """The clients that tasks are run for."""
        return [task.peer for task in self._tasks.values()]

    def announce(self, params: Mapping[str, Any]) -> None:
        """Wake the waiter of the task that a notification names."""
        task = self._tasks.get(str(params.get("taskId")))
        if task is not None:
            task.changed.set()

    def find_related(self, params: Mapping[str, Any]) -> WatchedTask | None:
        """Return the task that a request of the server belongs to, or None."""
        related = mapping(mapping(params.get("_meta")).get(META_RELATED_TASK))
        return self._tasks.get(str(related.get("taskId")))

    def find_listener(self, token: RequestId) -> OnProgress | None:
        """Return the listener for the progress of a task by its token, or None."""
        return next((task.on_progress for task in self._tasks.values() if task.token == token), None)


def with_related_task(result: Mapping[str, Any], params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result of a request of the server, marked with the task that the request names, if any."""
    related = mapping(params.get("_meta")).get(META_RELATED_TASK)
    if related is None:
        return result
    return {**result, "_meta": {**mapping(result.get("_meta")), META_RELATED_TASK: related}}
