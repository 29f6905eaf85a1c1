"""Composition and lifecycle of a gateway.

`Service` builds every component of a gateway from its configuration, runs the HTTP server, and closes the components
again. It owns the storage, the MCP connections, the runs, and the tasks that watch over them.

The end has an order. A signal starts the drain: new requests are refused, and running ones have `drain_seconds`. Then
the server stops, then the background tasks, then runs, background work, MCP servers, models, storage and the audit
log. A second signal ends the server at once, without waiting for the drain.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.app import Gateway
from holodeck.gateway.audit.log import build_audit_log
from holodeck.gateway.audit.run_recorder import RunRecorder
from holodeck.gateway.auth.factory import build_callers
from holodeck.gateway.auth.hosts import HostPolicy
from holodeck.gateway.backends import Backend, Backends
from holodeck.gateway.continuation.memory import SocketHistories
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.endpoints.admin import AdminEndpoints
from holodeck.gateway.endpoints.chat_completions import ChatCompletions
from holodeck.gateway.endpoints.compact import ContextEndpoints
from holodeck.gateway.endpoints.conversations import Conversations
from holodeck.gateway.endpoints.messages import Messages
from holodeck.gateway.endpoints.pass_through import PassThroughEndpoints
from holodeck.gateway.endpoints.responses import Responses
from holodeck.gateway.endpoints.responses_ws import ResponseSockets
from holodeck.gateway.http.request import Route
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.mcp.connection_pool import CallerConnectionPool
from holodeck.gateway.mcp_endpoint.agent_runs import AgentRuns
from holodeck.gateway.mcp_endpoint.endpoint import MCPEndpoint
from holodeck.gateway.mcp_endpoint.resource_metadata import ResourceMetadata
from holodeck.gateway.metrics import Metrics
from holodeck.gateway.routes import build_routes
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.background import Background
from holodeck.gateway.runs.durable_engine import build_durable_engine
from holodeck.gateway.runs.response_builder import ResponseBuilder
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.sealing import SealKeys, read_seal_keys
from holodeck.gateway.server.http_protocol import build_http_protocol
from holodeck.gateway.server.ws_protocol import build_websocket_protocol
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import ConfigError, ExecutionError, StorageError
from holodeck.lib.limits import DAY
from holodeck.lib.system.fd_shortage import watch_file_shortage
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.call_log import CallLog
from holodeck.mcp_server.catalogue import Catalogue
from holodeck.mcp_server.methods import Methods
from holodeck.mcp_server.view import View
from holodeck.models.url import is_loopback
from holodeck.storage.base import ResponseStore
from holodeck.storage.factory import open_store
from holodeck.telemetry import start_tracing, stop_tracing
from holodeck.tools.function import FunctionExecutor

# Connections that the kernel queues before they are accepted, so that many at once are not refused.
LISTEN_BACKLOG = 2_048
# Seconds for open connections to end after the runs have ended.
CONNECTIONS_GRACE = 10
# Seconds of an idle connection: longer than proxies keep theirs (60), because they report one that we close as a 502.
KEEP_ALIVE_SECONDS = 75
# Seconds between two deletions of what is older than the retention.
RETENTION_INTERVAL = 3_600.0
# Checks in a row at which a gateway must be missing before its runs are taken over: while a shared database restarts,
# all gateways are missing for a moment.
TAKE_OVER_LOOKS = 3
# Seconds for the background tasks to end after they are cancelled: a statement of storage may be under way.
TASKS_GRACE = 10.0

# Errors of `bind` whose fix is another port; the others are about the host.
_PORT_ERRNOS = frozenset({errno.EADDRINUSE, errno.EACCES})


class Service:
    """A gateway with everything behind it. Owns storage, MCP connections, runs and its background tasks."""

    def __init__(self, loaded: LoadedGateway, backends: Backends) -> None:
        config, folder = loaded.gateway, loaded.path.parent
        self.config = config
        self.backends: Mapping[str, Backend] = backends.by_name
        self._servers = backends.servers
        self.store: ResponseStore = open_store(config.storage.url, folder=folder, durability=config.storage.durability)
        self.budget = ByteBudget(config.limits.body_budget)
        self._metrics = Metrics(frozenset(self._servers.servers))
        self._seal_keys = SealKeys(read_seal_keys(config, folder))
        self._callers = build_callers(config, folder)
        self._caller_limits = CallerLimits(config.limits.key, config.limits.in_flight, sockets=config.limits.sockets)
        self._continuations = ContinuationResolver(self.store, self._seal_keys, max_bytes=config.limits.context_bytes)
        self.audit = build_audit_log(config.audit, folder)
        self._run_builder = RunBuilder(self.backends, config, self.budget, self.audit)
        for server in self._servers.servers.values():
            server.use_budget(self.budget)
        self.runs = ActiveRuns(self._metrics, self._caller_limits)
        self._mcp_endpoint = self._build_mcp_endpoint(backends)
        self._resource_metadata = ResourceMetadata(lambda: self.config)
        self.background = self._build_background(folder)
        self._response_builder = self._build_response_builder()
        self.app = self._build_app()
        self._tasks = TaskSet()
        self._server: _DrainingServer | None = None

    @property
    def has_no_auth(self) -> bool:
        """Whether every request is accepted, because neither keys nor an identity provider are configured."""
        return self._callers.has_no_auth

    @property
    def pool(self) -> CallerConnectionPool:
        return self._run_builder.pool

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve until a signal or `stop`, then close everything.

        SIGTERM, SIGINT and SIGHUP drain: new requests are refused, and running ones have `drain_seconds`. `on_ready` is
        called with the URL once requests are accepted.
        """
        listener = _open_listener(self.config.listen.host, self.config.listen.port)
        tracer = start_tracing(self.config.otel, os.environ)
        self._server = server = self._build_server(has_tracing=tracer is not None)
        host, port = listener.getsockname()[:2]
        try:
            await self.audit.open()
            self._import_functions()
            await self.background.open(self._response_builder.rebuild)
            self._start_tasks()
            # Captured before `on_ready`: a process that waits for it may send a signal at once.
            with server.capture_signals():
                on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
                await server.serve(sockets=[listener])
        finally:
            await self._tasks.close(TASKS_GRACE)
            await self.close()
            await server.close()
            await stop_tracing(tracer)
            listener.close()

    def stop(self) -> None:
        """Drain and end as SIGTERM does; `run` returns when that is done."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)

    async def close(self) -> None:
        """Close runs, background work, MCP servers, models, storage and the audit log, in this order."""
        await self._mcp_endpoint.close()
        await self.runs.close()
        await self.background.close()
        await asyncio.gather(
            self._callers.close(),
            self.pool.close(),
            self._run_builder.argument_checker.close(),
            *(offer.close() for offer in self._servers.server_tools.values()),
            *(backend.mcp.close() for backend in self.backends.values()),
        )
        models = [each for one in self.backends.values() for each in (one.provider, *one.pass_through.values())]
        await asyncio.gather(*(model.close() for model in models))
        await self.store.close()
        await self.audit.close()

    def _build_background(self, folder: Path) -> Background:
        config = self.config
        is_sqlite = config.storage.url.startswith("sqlite")
        return Background(
            self.store,
            self.runs,
            build_durable_engine(config, folder, gateway_id=self.store.gateway_id),
            checks_before_takeover=1 if is_sqlite else TAKE_OVER_LOOKS,
            model_wait=config.background.model_wait_seconds,
            count=self._metrics.count,
        )

    def _build_mcp_endpoint(self, backends: Backends) -> MCPEndpoint:
        agents = AgentRuns(self._run_builder, self.runs).build_tools(self.backends)
        methods = Methods(Catalogue(self._servers, agents), call_log=CallLog(self._count_call, self._build_recorder))
        return MCPEndpoint(
            methods,
            backends.changes,
            self._caller_limits,
            get_settings=lambda: self.config.mcp_endpoint,
            is_draining=lambda: self.app.is_draining,
        )

    def _build_recorder(self, view: View) -> RunRecorder | None:
        """Build what records the calls of one request of an MCP client in the audit log."""
        if not self.audit.is_enabled:
            return None
        request_id = str(log.current_fields().get("request", ""))
        return RunRecorder(
            self.audit, door="mcp", caller=view.caller_id, request_id=request_id, response_id="", model=""
        )

    def _count_call(self, server: str, tool: str, outcome: str, seconds: float) -> None:
        self._metrics.count_tool_call(server, tool, seconds, is_error=outcome != "ok")

    def _build_response_builder(self) -> ResponseBuilder:
        return ResponseBuilder(
            self._run_builder,
            self.store,
            self._seal_keys,
            self._continuations,
            callers=self._callers,
            is_durable=self.background.is_durable,
            in_flight=lambda: self._caller_limits.in_flight,
        )

    def _build_app(self) -> Gateway:
        config = self.config
        return Gateway(
            self._build_routes(),
            sockets={"/v1/responses": self._build_sockets().serve},
            callers=self._callers,
            caller_limits=self._caller_limits,
            hosts=HostPolicy(
                allowed_hosts=config.listen.allowed_hosts,
                origins=config.cors_origins,
                is_local=is_loopback(config.listen.host),
            ),
            metrics=self._metrics,
            audit=self.audit,
            body_limit=config.limits.body_bytes,
            budget=self.budget,
            body_seconds=config.limits.request_seconds,
            silent_seconds=config.limits.silent_seconds,
            mcp_challenge=self._resource_metadata.challenge,
        )

    def _build_routes(self) -> list[Route]:
        context_bytes = self.config.limits.context_bytes
        return build_routes(
            responses=Responses(
                self._response_builder,
                self.store,
                self.runs,
                self._continuations,
                self.background,
                self._caller_limits,
            ),
            conversations=Conversations(self.store, self._seal_keys, max_sealed_bytes=context_bytes),
            admin=AdminEndpoints(
                self.backends,
                self.store,
                self._metrics,
                in_flight=lambda: self._caller_limits.in_flight,
                sockets=lambda: self._caller_limits.sockets,
                background=self.background,
                audit=self.audit,
            ),
            context=ContextEndpoints(
                self._run_builder,
                self._continuations,
                self._seal_keys,
                caller_limits=self._caller_limits,
                metrics=self._metrics,
                max_bytes=context_bytes,
            ),
            chat=ChatCompletions(self._run_builder, self.runs, self._continuations.tool_history),
            messages=Messages(self._run_builder, self.runs, self._continuations.tool_history),
            pass_through=PassThroughEndpoints(self._run_builder, self._caller_limits, self._metrics),
            mcp=self._mcp_endpoint,
            metadata=self._resource_metadata,
        )

    def _build_sockets(self) -> ResponseSockets:
        limits = self.config.limits
        return ResponseSockets(
            self._response_builder,
            self.runs,
            self._caller_limits,
            self._continuations,
            seconds=limits.socket_seconds,
            max_queued_bytes=limits.body_bytes,
            budget=self.budget,
            histories=SocketHistories(max(limits.body_budget, limits.context_bytes)),
        )

    def _build_server(self, *, has_tracing: bool) -> _DrainingServer:
        limits = self.config.limits
        config = uvicorn.Config(
            self.app,
            http=build_http_protocol(limits.request_seconds, limits.reader_seconds),
            log_config=None,
            access_log=False,
            # Only traces use the scheme and the address that a proxy forwards.
            proxy_headers=has_tracing,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            # For connections that are still open; the runs have been drained by then.
            timeout_graceful_shutdown=CONNECTIONS_GRACE,
            server_header=False,
            lifespan="off",
            ws=build_websocket_protocol(limits.request_seconds, limits.reader_seconds, self.budget),
            # As over HTTP, nothing is compressed: it would count for less than it takes in memory.
            ws_per_message_deflate=False,
            ws_max_size=limits.body_bytes,
        )
        return _DrainingServer(config, on_exit=self._drain)

    def _start_tasks(self) -> None:
        self._tasks.start(self._run_retention(), name="housekeeping")
        self._tasks.start(watch_file_shortage(), name="open files")
        self._tasks.start(self.background.watch_gateways(), name="keepers")
        self._tasks.start(self.background.watch_cancel_requests(), name="cancels")

    def _import_functions(self) -> None:
        """Import the Python functions of agents before the first request, which would wait for it.

        An agent whose files cannot be imported is logged; the others are served nevertheless.
        """
        for name, backend in self.backends.items():
            for functions in backend.functions:
                try:
                    if isinstance(functions, FunctionExecutor):
                        functions.import_files()
                except ExecutionError as error:
                    log.error("gateway.functions_failed", model=name, error=error)

    async def _drain(self) -> None:
        self.app.is_draining = True
        self.background.is_draining = True
        if self.config.listen.closes_first and self._server is not None:
            self._server.stop_listening()
        seconds = self.config.limits.drain_seconds
        await asyncio.gather(self.runs.drain(seconds), self._mcp_endpoint.drain(seconds))

    async def _run_retention(self) -> None:
        """Delete what is older than the retention, again and again."""
        while True:
            try:
                before = time.time() - self.config.storage.retention_days * DAY
                deleted = await self.store.delete_older_than(before)
                await self.background.delete_older_than(before)
                if deleted:
                    log.info("gateway.forgot", rows=deleted)
            except StorageError as error:
                log.warning("gateway.retention_failed", error=error)
            await asyncio.sleep(RETENTION_INTERVAL)


class _DrainingServer(uvicorn.Server):
    """uvicorn's server with a drain before its exit: the first signal calls `on_exit`, a second one exits at once."""

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._on_exit = on_exit
        self._tasks = TaskSet()
        self._is_draining = False

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle SIGHUP as well, which a closed terminal sends. Under nohup it is ignored, and stays so."""
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGHUP) if is_main else signal.SIG_IGN
        if before != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self.handle_exit)
        try:
            with super().capture_signals():
                yield
        finally:
            if before != signal.SIG_IGN:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._is_draining:
            self.force_exit = True
            self.should_exit = True
            return
        self._tasks.start(self._drain(sig), name="drain")
        self._is_draining = True

    def stop_listening(self) -> None:
        """Refuse new connections now; uvicorn does so only at its end."""
        for listening in self.servers:
            listening.close()

    async def close(self) -> None:
        """End a drain that a second signal has overtaken."""
        await self._tasks.close(TASKS_GRACE)

    async def _drain(self, sig: int) -> None:
        log.info("gateway.draining", signal=signal.Signals(sig).name)
        await self._on_exit()
        self.should_exit = True


def _open_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Before the gateway reports that it is ready: a client may connect at once.
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        key = "listen.port" if error.errno in _PORT_ERRNOS else "listen.host"
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}. Use another '{key}'.") from None
    return listener
