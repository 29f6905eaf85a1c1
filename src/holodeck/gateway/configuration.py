"""The configuration that a gateway serves by, which can be replaced while it runs.

A `Configuration` is one immutable value: the settings in force, the backends, and what is compiled from them. New
requests read `ConfigurationHolder.current`; a run keeps the one that it was built with. `replace` swaps it at once,
without an await, so that no request sees half of a change.

Requests and runs count themselves in `Configuration.uses`. What a replaced configuration has and the new one has not
is closed by the holder: models once everything that began before the change has ended, MCP servers and callers'
connections also if that takes longer than the drain period. The holder owns models, servers and connections of all
configurations; `close` closes what is left of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import dropwhile
from types import TracebackType
from typing import Protocol

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.auth.hosts import HostPolicy
from holodeck.gateway.backends import Backend, Backends
from holodeck.gateway.http.request_files import FileFetcher
from holodeck.gateway.mcp.connection_pool import CallerConnectionPool
from holodeck.gateway.mcp.request_server_policy import RequestServerPolicy
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import Problem
from holodeck.lib.record import record
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.list_changes import Area
from holodeck.models.gateway import GatewayFile
from holodeck.models.url import is_loopback
from holodeck.tools.mcp.executor import MCPExecutor
from holodeck.tools.mcp.server_tools import ServerTools

# Seconds that `close` waits for the closing of what a change has replaced, after it is told not to wait for runs.
_CLOSE_SECONDS = 10.0


class UseCount:
    """The number of requests and runs that began with one configuration and have not ended. `with` counts a block."""

    __slots__ = ("_unused", "count")

    def __init__(self) -> None:
        self.count = 0
        self._unused: asyncio.Event | None = None
        """Set when the count is 0; exists only while a task waits for it."""

    def acquire(self) -> None:
        self.count += 1

    def release(self) -> None:
        self.count -= 1
        if self.count == 0 and self._unused is not None:
            self._unused.set()
            self._unused = None

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    async def wait_unused(self) -> None:
        """Wait until nothing uses it. Only for a configuration that is not the current one."""
        while self.count:
            self._unused = self._unused or asyncio.Event()
            await self._unused.wait()


@record
class ReloadOutcome:
    """The outcome of the latest reading of the files."""

    at: float
    """Seconds since 1970."""
    problems: tuple[Problem, ...] = ()
    """Why the files are refused; empty if they are in force."""
    restart_keys: tuple[str, ...] = ()
    """What has changed in the files and needs a restart of the gateway."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Configuration:
    """All that can change while a gateway runs, at one moment. Compared by identity."""

    loaded: LoadedGateway
    """The files as they were read."""
    gateway: GatewayFile
    """The settings in force. They differ from those of `loaded` where only a restart changes them."""
    served: Backends
    """Models, agents and MCP servers."""
    servers: MCPExecutor
    """All MCP servers as one executor, for clients that use them without a model."""
    pool: CallerConnectionPool
    file_fetcher: FileFetcher
    hosts: HostPolicy
    uses: UseCount = field(default_factory=UseCount)

    @cached_property
    def backends(self) -> Mapping[str, Backend]:
        """The models and agents, by their public names."""
        return self.served.by_name

    @cached_property
    def server_tools(self) -> list[ServerTools]:
        """Every MCP server once, also two of the same name."""
        return self.served.server_tools

    @cached_property
    def server_names(self) -> frozenset[str]:
        """The names of all MCP servers of the operator."""
        return frozenset(offer.server.name for offer in self.server_tools)

    @property
    def described_agents(self) -> list[tuple[str, str | None]]:
        """The names of the agents, with their descriptions."""
        return [(name, backend.description) for name, backend in self.backends.items() if backend.is_agent]

    def find_changed_areas(self, before: Configuration) -> tuple[Area, ...]:
        """Return which lists of MCP clients differ from those of the configuration before."""
        if before.server_tools != self.server_tools:
            return ("tools", "prompts", "resources")
        return ("tools",) if before.described_agents != self.described_agents else ()


class _Closable(Protocol):
    async def close(self) -> None: ...


def build_configuration(
    loaded: LoadedGateway,
    served: Backends,
    budget: ByteBudget,
    *,
    gateway: GatewayFile | None = None,
    earlier: Configuration | None = None,
) -> Configuration:
    """Build the configuration of loaded files. Nothing is started.

    `budget`: bytes for what models, servers and files send. `gateway`: the settings in force, unless they are those of
    the file. `earlier`: its pool of connections is used on if its rules are the same.
    """
    gateway = gateway or loaded.gateway
    for offer in served.server_tools:
        offer.server.use_budget(budget)
    return Configuration(
        loaded=loaded,
        gateway=gateway,
        served=served,
        servers=served.servers,
        pool=_build_pool(gateway, budget, earlier),
        file_fetcher=FileFetcher(gateway.request_files, budget),
        hosts=HostPolicy(
            allowed_hosts=gateway.listen.allowed_hosts,
            origins=gateway.cors_origins,
            is_local=is_loopback(gateway.listen.host),
            public_url=gateway.mcp_endpoint.public_url,
        ),
    )


def _build_pool(gateway: GatewayFile, budget: ByteBudget, earlier: Configuration | None) -> CallerConnectionPool:
    rules, timeout = gateway.request_servers, gateway.limits.discovery_seconds
    if earlier is not None:
        before = earlier.gateway
        if before.request_servers == rules and before.limits.discovery_seconds == timeout:
            return earlier.pool
    return CallerConnectionPool(RequestServerPolicy(rules, budget), timeout=timeout)


class ConfigurationHolder:
    """Has the current configuration, and closes what earlier ones had."""

    def __init__(self, first: Configuration) -> None:
        self.current = first
        self._superseded: list[Configuration] = []
        """Earlier configurations, oldest first, from the first one that is still used."""
        self._closing = TaskSet()
        self._servers: dict[_Closable, None] = {}
        """All servers and pools that are not closed yet."""
        self._models: dict[_Closable, None] = {}
        """All models that are not closed yet."""
        self._adopt(first)

    def replace(self, new: Configuration) -> None:
        """Serve new requests by `new`, and close in the background what only earlier configurations have.

        `drain_seconds` of the new settings is how long servers wait for runs that use them.
        """
        old, self.current = self.current, new
        for offer in new.server_tools:
            offer.discovery_timeout = new.gateway.limits.discovery_seconds
        self._adopt(new)
        # One that is not used may be in a moment: by the run of a request that is counted in an older one.
        self._superseded = list(dropwhile(lambda each: not each.uses.count, (*self._superseded, old)))
        before = tuple(self._superseded)
        servers = _list_missing(_list_servers(old), _list_servers(new))
        models = _list_missing(_list_models(old), _list_models(new))
        if servers:
            self._closing.start(self._retire_servers(servers, before, new), name="close removed servers")
        if models:
            self._closing.start(self._retire_models(models, before), name="close removed models")

    async def close(self) -> None:
        """Close all servers and connections, then all models."""
        await self._closing.close(_CLOSE_SECONDS)
        await asyncio.gather(*(each.close() for each in self._servers))
        await asyncio.gather(*(each.close() for each in self._models))

    def _adopt(self, configuration: Configuration) -> None:
        self._servers |= dict.fromkeys(_list_servers(configuration))
        self._models |= dict.fromkeys(_list_models(configuration))

    async def _retire_servers(
        self, servers: list[_Closable], before: Iterable[Configuration], current: Configuration
    ) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(current.gateway.limits.drain_seconds):
                await _wait_unused(before)
        for each in servers:
            if isinstance(each, ServerTools):
                log.info("gateway.server_removed", server=each.server.name)
                current.pool.close_server(each.server)
        await asyncio.gather(*(each.close() for each in servers))
        for each in servers:
            del self._servers[each]

    async def _retire_models(self, models: list[_Closable], before: Iterable[Configuration]) -> None:
        await _wait_unused(before)
        await asyncio.gather(*(each.close() for each in models))
        for each in models:
            del self._models[each]


async def _wait_unused(configurations: Iterable[Configuration]) -> None:
    """Wait until everything has ended that began with one of these, which are in the order of their age.

    The order matters: a request that is counted in one of them may start a run that is counted in a later one.
    """
    for each in configurations:
        await each.uses.wait_unused()


def _list_missing(old: Iterable[_Closable], new: Iterable[_Closable]) -> list[_Closable]:
    kept = set(new)
    return [each for each in old if each not in kept]


def _list_servers(configuration: Configuration) -> list[_Closable]:
    return [*configuration.server_tools, configuration.pool]


def _list_models(configuration: Configuration) -> list[_Closable]:
    return [each for one in configuration.served.all for each in (one.provider, *one.pass_through.values())]
