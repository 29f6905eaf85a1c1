"""Connections that requests bring credentials or addresses for: kept for a while, never for another caller."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holodeck.gateway.mcp.request_server_policy import RequestServerPolicy, headers_of
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration
from holodeck.lib.errors import MCPConnectionError
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.server_tools import ServerTools

# Connections to such servers, of all callers: each is a socket or two.
MAX_REQUEST_SERVERS = 1_000
# Of one caller, who must not use up the others'.
MAX_CALLER_SERVERS = 64
# Seconds without use before such a connection is closed: a conversation pauses that long.
REQUEST_SERVER_IDLE = 300.0
# Of such a server: more than a model can choose from, and few enough to prepare at once.
MAX_REQUEST_SERVER_TOOLS = 512


@dataclass(frozen=True, kw_only=True)
class _ConnectionKey:
    """Who uses which server with what. Two that differ in anything share nothing."""

    caller_id: str
    label: str
    url: str
    headers: frozenset[tuple[str, Secret]]
    server: MCPPlugin | None
    """The operator's own, whose address and rules hold. Two agents may have different ones of one name."""


@dataclass
class _PooledServer:
    server_tools: ServerTools
    users: int = 0
    last_used: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """The numbers, for those who need others."""

    total: int = MAX_REQUEST_SERVERS
    per_caller: int = MAX_CALLER_SERVERS
    idle_seconds: float = REQUEST_SERVER_IDLE


class CallerConnectionPool:
    """What is used longest ago goes first; what is in use never."""

    def __init__(self, policy: RequestServerPolicy, *, timeout: float, limits: PoolLimits | None = None) -> None:
        """`timeout`: seconds that a request waits for a server to say what it has."""
        self.policy = policy
        self._timeout = timeout
        self._limits = limits or PoolLimits()
        self._entries: OrderedDict[_ConnectionKey, _PooledServer] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def acquire(
        self, declaration: MCPDeclaration, caller_id: str, server: MCPPlugin | None = None
    ) -> Iterator[ServerTools]:
        """The caller's own connection, which stays open for as long as this lasts. Raises MCPConnectionError.

        `server`: the operator's, when the request brings only credentials for it.
        """
        key = _ConnectionKey(
            caller_id=caller_id,
            label=declaration.server_label,
            url=declaration.server_url or "",
            headers=frozenset(headers_of(declaration).items()),
            server=server,
        )
        entry = self._entries.get(key)
        if entry is None:
            self._evict_if_full(key)
            entry = _PooledServer(self._build_server_tools(declaration, server))
            self._entries[key] = entry
        self._entries.move_to_end(key)
        entry.users += 1
        try:
            yield entry.server_tools
        finally:
            entry.users -= 1
            entry.last_used = asyncio.get_running_loop().time()
            self._schedule_sweep()

    async def close(self) -> None:
        """Close everything. Bounded."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for key in list(self._entries):
            self._evict(key)
        await asyncio.gather(*self._closing, return_exceptions=True)

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
            text = "too many servers that requests brought along are in use at this moment. Try again later."
            raise MCPConnectionError(f"Server '{label}' (connect): {text}", server=label, phase="connect", details={})
        self._evict(idle)

    def _evict(self, key: _ConnectionKey) -> None:
        task = asyncio.create_task(self._entries.pop(key).server_tools.close(), name=f"close {key.label}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _schedule_sweep(self) -> None:
        """Look again when the first could be idle for too long; one timer for all."""
        if self._sweep_timer is None and self._entries:
            self._sweep_timer = asyncio.get_running_loop().call_later(self._limits.idle_seconds, self._close_idle)

    def _close_idle(self) -> None:
        self._sweep_timer = None
        old = asyncio.get_running_loop().time() - self._limits.idle_seconds
        for key in [key for key, entry in self._entries.items() if not entry.users and entry.last_used <= old]:
            self._evict(key)
        self._schedule_sweep()
