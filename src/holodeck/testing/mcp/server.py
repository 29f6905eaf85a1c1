"""`FaultyMCPServer`: an MCP server with a chosen fault, which tests start, control and inspect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from holodeck.testing.mcp.actions import Push
from holodeck.testing.mcp.commands import CommandOptions, Transport, faulty_command
from holodeck.testing.mcp.faults import WAIT_SECONDS, Era, Fault, FaultSchedule
from holodeck.testing.mcp.journal import Received

if TYPE_CHECKING:
    from holodeck.testing.mcp.network import ReservedPort, TransportRouter
    from holodeck.testing.mcp.server_state import ServerState

_PATHS: dict[Transport, tuple[str, str]] = {
    "http": ("http", "/mcp"),
    "sse": ("http", "/sse"),
    "websocket": ("ws", "/ws"),
}


class FaultyMCPServer:
    """An MCP server with one chosen fault, in this process, on a loopback port: a free one, or `port`.

    ```python
    async with FaultyMCPServer("http-429", era="modern", on="tools/call", times=1) as server:
        plugin = ...  # connect to server.url
        await server.received("tools/call")
    ```
    `on`, `after`, `every` and `times` decide when the fault strikes, as in `FaultSchedule`. All transports are served;
    `transport` chooses the one of `url`. With `sse=True` every answer over streamable HTTP is a stream of events.
    With `down=True` connections are refused until `come_up()`. For a server that is a process, see `command`.
    """

    def __init__(
        self,
        mode: Fault | str = Fault.NORMAL,
        *,
        era: Era = "legacy",
        transport: Transport = "http",
        on: str | None = None,
        after: int = 0,
        every: int | None = None,
        times: int | None = None,
        protocol_version: str | None = None,
        ttl_ms: int = 0,
        sse: bool = False,
        token: str = "open-sesame",  # noqa: S107 - a token that opens nothing but this server
        down: bool = False,
        port: int = 0,
    ) -> None:
        self._era: Era = era
        self._transport: Transport = transport
        self._schedule = FaultSchedule(Fault(mode), era=era, on=on, after=after, every=every, times=times)
        self._protocol_version = protocol_version
        self._ttl_ms = ttl_ms
        self._always_sse = sse
        self._token = token
        self._starts_down = down
        self._wanted_port = port

    async def __aenter__(self) -> Self:
        # Imported here because the stdio server, a new process for each test, needs no web server.
        from holodeck.testing.mcp.network import ReservedPort, TransportRouter
        from holodeck.testing.mcp.server_state import ServerState

        self._state: ServerState = ServerState(
            era=self._era,
            schedule=self._schedule,
            token=self._token,
            version=self._protocol_version,
            ttl_ms=self._ttl_ms,
            always_sse=self._always_sse,
        )
        self._router: TransportRouter = TransportRouter(self._state)
        self._port: ReservedPort = ReservedPort(self._router.serve, self._wanted_port)
        self._state.schema_url = self._state.stateless.schema_url = f"http://127.0.0.1:{self.port}/schema.json"
        if not self._starts_down:
            await self._port.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._port.release()

    # Addresses

    @property
    def url(self) -> str:
        """The URL for the chosen transport."""
        return self.url_for(self._transport)

    def url_for(self, transport: Transport) -> str:
        """Return the URL for a transport; all are served."""
        scheme, path = _PATHS[transport]
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    @property
    def port(self) -> int:
        """The port, which is the same while the server is down."""
        return self._port.number

    # Received messages

    @property
    def requests(self) -> list[Received]:
        """All messages received so far, in order: method, params, headers.

        A GET or DELETE has that as its method. Also recorded: `ABANDONED` when a client closed a stream before its
        answer; `(unauthorized)`; `(elsewhere)` when a client followed the redirect to another origin;
        `(schema)` when a client fetched a schema by reference.
        """
        return list(self._state.received_log.all)

    def calls(self, tool: str | None = None) -> list[Received]:
        """Return the tool calls received so far, of one tool or of all."""
        return [one for one in self.requests if one.method == "tools/call" and tool in (None, one.name)]

    async def received(
        self, method: str, *, name: str | None = None, count: int = 1, within: float = WAIT_SECONDS
    ) -> list[Received]:
        """Wait until a method (for a tool or prompt of this name) was received `count` times; return those messages.

        Raises `TimeoutError` after `within` seconds.
        """
        return await self._state.received_log.wait_matching(
            lambda one: one.method == method and name in (None, one.name), count, within
        )

    # Control

    @property
    def mode(self) -> Fault:
        """The fault. Setting it starts a new schedule, with the fault's own trigger."""
        return self._schedule.fault

    @mode.setter
    def mode(self, mode: Fault | str) -> None:
        self.misbehave(mode)

    def misbehave(
        self,
        mode: Fault | str,
        *,
        on: str | None = None,
        after: int = 0,
        every: int | None = None,
        times: int | None = None,
    ) -> None:
        """Change the fault and when it strikes."""
        self._schedule = FaultSchedule(Fault(mode), era=self._era, on=on, after=after, every=every, times=times)
        self._state.schedule = self._schedule

    @property
    def token(self) -> str:
        """The bearer token that `requires-token` accepts."""
        return self._state.token

    @token.setter
    def token(self, token: str) -> None:
        self._state.token = token

    @property
    def sessions(self) -> Sequence[str]:
        """The ids of the open sessions (legacy streamable HTTP)."""
        return list(self._state.sessions)

    def drop_sessions(self, *, status: Literal[400, 404] = 404) -> None:
        """Delete all sessions, as a restart does: the next request of one is answered with `status`."""
        self._state.stale_status = status
        for session in self.sessions:
            self._router.http.drop_session(session)

    async def go_down(self) -> None:
        """Abort all connections, refuse new ones, and delete all sessions."""
        self.drop_sessions()
        await self._port.close()

    async def come_up(self) -> None:
        """Accept connections again, on the same port."""
        await self._port.open()

    def release(self) -> None:
        """Let all slow calls under way answer now."""
        self._state.action_runner.release()

    async def end_tasks(self) -> None:
        """Let all tasks that work end now, and tell the clients (legacy: a modern client has to poll)."""
        for push in self._state.task_book.release(self._era):
            await self._state.action_runner.push(push)

    def forget_tasks(self) -> None:
        """Forget all tasks, as a restart does where they are only in memory."""
        self._state.task_book.tasks.clear()

    async def push(self, method: str, *, times: int = 1) -> int:
        """Send a notification to all listening streams, and return their number."""
        return await self._state.action_runner.push(Push(method, times))

    async def grow(self) -> str:
        """Add a tool, notify the listening streams, and return its name."""
        self._state.added_tools.append(f"grown_{len(self._state.added_tools) + 1}")
        await self.push("notifications/tools/list_changed")
        return self._state.added_tools[-1]

    def redefine(self, tool: str, **entry: Any) -> None:
        """Change fields of a tool's entry in all lists from now on, without a notification: `description`, ..."""
        self._state.redefined_tools[tool] = entry

    async def put_resource(
        self, uri: str, *, text: str | None = None, blob: str | None = None, mime_type: str = "text/plain", **entry: Any
    ) -> int:
        """Add or replace a resource, notify the streams that want to know, and return their number.

        `blob` is base64; `entry` has further fields of its entry in the list: `name`, `description`, ...
        """
        content = {"blob": blob} if text is None else {"text": text}
        is_new = self._state.resources.put(uri, {"mimeType": mime_type, **content}, {"mimeType": mime_type, **entry})
        if is_new:
            return await self.push("notifications/resources/list_changed")
        return await self._state.action_runner.push(Push("notifications/resources/updated", uri=uri))

    async def remove_resource(self, uri: str) -> None:
        """Remove a resource, and notify the listening streams."""
        self._state.resources.remove(uri)
        await self.push("notifications/resources/list_changed")

    async def listening(self, streams: int = 1, *, within: float = WAIT_SECONDS) -> None:
        """Wait until this many streams listen to pushed notifications. Raises `TimeoutError` after `within` seconds."""
        async with asyncio.timeout(within):
            await self._state.action_runner.wait_listeners(streams)

    # As a process

    @classmethod
    def command(cls, mode: Fault | str = Fault.NORMAL, **options: Unpack[CommandOptions]) -> list[str]:
        """Return the command that starts the server as a process on stdio; with `transport`, on a network port."""
        return faulty_command(mode, options)
