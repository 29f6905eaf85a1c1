"""State of one network server: its fault schedule, sessions, action runner and received messages."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from holodeck.testing.mcp.action_runner import ActionRunner
from holodeck.testing.mcp.actions import Action, Message
from holodeck.testing.mcp.faults import Era, FaultSchedule
from holodeck.testing.mcp.journal import ReceivedLog
from holodeck.testing.mcp.protocol import ServerSession
from holodeck.testing.mcp.tasks import TaskBook
from holodeck.testing.mcp.tool_lists import REMOTE_SCHEMA_URL, ResourceStore

NOT_FOUND = 404


@dataclass(kw_only=True)
class ServerState:
    """Shared by the HTTP, SSE and WebSocket transports of one server."""

    era: Era
    schedule: FaultSchedule
    token: str
    version: str | None = None
    ttl_ms: int = 0
    always_sse: bool = False
    schema_url: str = REMOTE_SCHEMA_URL
    stale_status: int = NOT_FOUND
    """The HTTP status for an unknown session."""
    received_log: ReceivedLog = field(default_factory=ReceivedLog)
    action_runner: ActionRunner = field(default_factory=ActionRunner)
    added_tools: list[str] = field(default_factory=list)
    redefined_tools: dict[str, Message] = field(default_factory=dict)
    resources: ResourceStore = field(default_factory=ResourceStore)
    task_book: TaskBook = field(default_factory=TaskBook)
    sessions: dict[str, ServerSession] = field(default_factory=dict)
    resumable: dict[str, Sequence[Action]] = field(default_factory=dict)
    """Unsent actions of a stream that ended early, by the last event id of the stream."""

    def __post_init__(self) -> None:
        self.stateless = self.new_session()

    def new_session(self) -> ServerSession:
        """Return a new session; all offer the same tools and resources."""
        return ServerSession(
            era=self.era,
            version=self.version,
            ttl_ms=self.ttl_ms,
            added_tools=self.added_tools,
            redefined_tools=self.redefined_tools,
            resources=self.resources,
            schema_url=self.schema_url,
            task_book=self.task_book,
        )

    def open_session(self) -> str:
        """Store a new session and return its id."""
        session = uuid.uuid4().hex
        self.sessions[session] = self.new_session()
        return session

    def store_unsent(self, actions: Sequence[Action]) -> str:
        """Store what a stream does not deliver, and return the event id with which a client can resume it."""
        event = f"event-{len(self.resumable) + 1}"
        self.resumable[event] = actions
        return event
