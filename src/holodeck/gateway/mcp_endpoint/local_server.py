"""The MCP server of one person: the servers and agents of a file, offered to one client over standard input and output.

It is the gateway's endpoint without HTTP, keys and storage. The client is the person's own program, so it may use
everything, and is told why a call has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.audit.log import NullAuditLog
from holodeck.gateway.auth.callers import LOCAL_CALLER_ID
from holodeck.gateway.auth.scope import CallerScope
from holodeck.gateway.backends import build_backends
from holodeck.gateway.configuration import ConfigurationHolder, build_configuration
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.mcp_endpoint.agent_runs import AgentRuns
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.usage.accounts import Accounts
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.catalogue import Catalogue
from holodeck.mcp_server.methods import Methods
from holodeck.mcp_server.stdio import StdioServer
from holodeck.mcp_server.view import View
from holodeck.tools.mcp.protocol.peer import Peer

# Seconds for the servers to be listed at the start to end when the client leaves.
CLOSE_TIMEOUT = 5.0


class LocalMCPServer:
    """Owns the servers, the models and the runs of a file for one client."""

    def __init__(self, loaded: LoadedGateway, *, environ: Mapping[str, str], server: str | None = None) -> None:
        """`server`: only this one, without agents. None: all."""
        backends = build_backends(loaded, environ=environ, find_peer=self._find_peer, tells_causes=True)
        config = loaded.gateway
        budget = ByteBudget(config.limits.body_budget)
        self._configurations = ConfigurationHolder(build_configuration(loaded, backends, budget))
        self._servers = self._configurations.current.servers
        self._changes = backends.changes
        limits = CallerLimits(config.limits.key, config.limits.in_flight, sockets=config.limits.sockets)
        # An audit log belongs to one gateway, which may be running beside this process.
        accounts = Accounts(Metrics())
        self._runs = ActiveRuns(accounts, limits)
        self._run_builder = RunBuilder(self._configurations, budget, NullAuditLog(), accounts, listener=self._runs)
        agents = AgentRuns(self._run_builder).build_tools(backends.by_name)
        self._methods = Methods(Catalogue(self._servers, agents))
        self._view = View(caller_id=LOCAL_CALLER_ID, scope=CallerScope.everything(), server=server)
        self._stdio = StdioServer(self._methods, self._changes, self._view, budget)
        self._tasks = TaskSet()

    @property
    def server_names(self) -> list[str]:
        return list(self._servers.servers)

    async def run(self, stdin: int, stdout: int) -> None:
        """Serve until the client closes `stdin`, then close everything."""
        self._tasks.start(self._start_servers(), name="start servers")
        try:
            await self._stdio.run(stdin, stdout)
        finally:
            await self._close()

    async def _start_servers(self) -> None:
        """Start the servers before the client asks for their tools: its patience is shorter than the start of some."""
        await self._stdio.wait_contact()
        await self._methods.catalogue.list_tools(self._view)

    async def _close(self) -> None:
        await self._tasks.close(CLOSE_TIMEOUT)
        self._changes.close()
        await self._runs.close()
        await self._methods.close()
        await asyncio.gather(self._run_builder.argument_checker.close(), self._configurations.close())

    def _find_peer(self) -> Peer | None:
        return self._stdio.find_peer()
