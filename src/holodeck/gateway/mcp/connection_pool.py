"""Pool of connections to MCP servers that are one caller's: declared by a request, or with a login of the caller.

A connection belongs to one caller, one label, one URL and one set of headers; two requests that differ in any of these
share none. It is open while a request uses it and for `idle_seconds` afterwards, so that the next request of the same
conversation finds it. When the pool, or a caller's part of it, is full, the connection that was used longest ago is
closed; one that is in use never is, and then `acquire` raises. Closing happens in the background; `close` waits for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.gateway.mcp.request_server_policy import RequestServerPolicy, headers_of
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.server_tools import ServerTools

# Pooled connections of all callers: each is a socket or two.
MAX_REQUEST_SERVERS = 1_000
# Pooled connections of one caller, so that it cannot use up those of the others.
MAX_CALLER_SERVERS = 64
# Seconds without use before a connection is closed: a conversation pauses that long.
REQUEST_SERVER_IDLE = 300.0
# Tools of one untrusted server: more than a model can choose from, and few enough to prepare at once.
MAX_REQUEST_SERVER_TOOLS = 512


@record
class _ConnectionKey:
    """The values that two requests must have in common to share a connection."""

    caller_id: str
    label: str
    url: str
    headers: frozenset[tuple[str, Secret]]
    server: MCPPlugin | None
    """The operator's server, whose URL and rules apply. Two agents may have different servers of one name."""
    has_login: bool = False
    """Whether the caller has logged in there itself."""


@dataclass
class _PooledServer:
    server_tools: ServerTools
    users: int = 0
    last_used: float = 0.0


@record
class PoolLimits:
    """Connections in all, connections per caller, and seconds until an unused one is closed."""

    total: int = MAX_REQUEST_SERVERS
    per_caller: int = MAX_CALLER_SERVERS
    idle_seconds: float = REQUEST_SERVER_IDLE


class CallerConnectionPool:
    """The pooled connections of all callers. Owned and closed by the service."""

    def __init__(self, policy: RequestServerPolicy, *, timeout: float, limits: PoolLimits | None = None) -> None:
        """`timeout`: seconds that a request waits for a server to list its tools."""
        self.policy = policy
        self._timeout = timeout
        self._limits = limits or PoolLimits()
        self._entries: OrderedDict[_ConnectionKey, _PooledServer] = OrderedDict()
        self._closing = TaskSet()
        self._sweep_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def acquire(
        self, declaration: MCPDeclaration, caller_id: str, server: MCPPlugin | None = None
    ) -> Iterator[ServerTools]:
        """Provide the caller's own connection, which stays open during the `with` block.

        `server`: the operator's server that the request has credentials for. None: the request declares a URL.
        Raises `MCPConnectionError` when the pool is full of connections in use.
        """
        key = _ConnectionKey(
            caller_id=caller_id,
            label=declaration.server_label,
            url=declaration.server_url or "",
            headers=frozenset(headers_of(declaration).items()),
            server=server,
        )
        with self._acquire(key, lambda: self._build_server_tools(declaration, server)) as server_tools:
            yield server_tools

    @contextmanager
    def acquire_login(self, caller_id: str, server: MCPPlugin, build: Callable[[], MCPPlugin]) -> Iterator[MCPPlugin]:
        """Provide the caller's connection to a server of the operator with a login of its own, as `acquire`.

        `build`: builds its plugin. Raises `MCPConnectionError` when the pool is full of connections in use.
        """
        key = _ConnectionKey(
            caller_id=caller_id, label=server.name, url="", headers=frozenset(), server=server, has_login=True
        )
        with self._acquire(key, lambda: ServerTools(build(), discovery_timeout=self._timeout)) as server_tools:
            yield server_tools.server

    def close_login(self, caller_id: str, name: str) -> None:
        """Close a caller's connections with a login of its own to the servers of a name, also those in use."""
        self._evict_matching(lambda key: key.has_login and (key.caller_id, key.label) == (caller_id, name))

    @contextmanager
    def _acquire(self, key: _ConnectionKey, build: Callable[[], ServerTools]) -> Iterator[ServerTools]:
        entry = self._entries.get(key)
        if entry is None:
            self._evict_if_full(key)
            entry = self._entries[key] = _PooledServer(build())
        self._entries.move_to_end(key)
        entry.users += 1
        try:
            yield entry.server_tools
        finally:
            entry.users -= 1
            entry.last_used = asyncio.get_running_loop().time()
            self._schedule_sweep()

    def close_server(self, server: MCPPlugin) -> None:
        """Close the connections of all callers to a server of the operator, also those in use."""
        self._evict_matching(lambda key: key.server is server)

    def close_callers(self, revoked: RevokedCallers) -> None:
        """Close all connections of these callers, also those in use."""
        self._evict_matching(lambda key: key.caller_id in revoked)

    async def close(self) -> None:
        """Close every connection. Bounded, as closing each of them is."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for key in list(self._entries):
            self._evict(key)
        await self._closing.wait()

    def _build_server_tools(self, declaration: MCPDeclaration, server: MCPPlugin | None) -> ServerTools:
        if server is not None:
            return ServerTools(self.policy.build_caller_plugin(declaration, server), discovery_timeout=self._timeout)
        return ServerTools(
            self.policy.build_plugin(declaration), discovery_timeout=self._timeout, max_tools=MAX_REQUEST_SERVER_TOOLS
        )

    def _evict_if_full(self, key: _ConnectionKey) -> None:
        own = [other for other in self._entries if other.caller_id == key.caller_id]
        if len(own) >= self._limits.per_caller:
            self._evict_idle(own, key.label)
        elif len(self._entries) >= self._limits.total:
            self._evict_idle(list(self._entries), key.label)

    def _evict_idle(self, candidates: list[_ConnectionKey], label: str) -> None:
        idle = next((key for key in candidates if not self._entries[key].users), None)
        if idle is None:
            text = "too many servers that requests declare are in use at this moment. Try again later."
            raise MCPConnectionError(f"Server '{label}' (connect): {text}", server=label, phase="connect", details={})
        self._evict(idle)

    def _evict_matching(self, is_wanted: Callable[[_ConnectionKey], bool]) -> None:
        for key in [key for key in self._entries if is_wanted(key)]:
            self._evict(key)

    def _evict(self, key: _ConnectionKey) -> None:
        self._closing.start(self._entries.pop(key).server_tools.close(), name=f"close {key.label}")

    def _schedule_sweep(self) -> None:
        """Set the one timer of the pool to when the first connection could have been idle for too long."""
        if self._sweep_timer is None and self._entries:
            self._sweep_timer = asyncio.get_running_loop().call_later(self._limits.idle_seconds, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep_timer = None
        cutoff = asyncio.get_running_loop().time() - self._limits.idle_seconds
        for key in [key for key, entry in self._entries.items() if not entry.users and entry.last_used <= cutoff]:
            self._evict(key)
        self._schedule_sweep()
