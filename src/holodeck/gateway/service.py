"""From a loaded gateway to one that answers: parts are put together, the server is run, and the end is orderly."""

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
from holodeck.gateway.auth.callers import APIKeys, CallerProvider, Callers
from holodeck.gateway.auth.hosts import HostPolicy
from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.gateway.backends import Backend
from holodeck.gateway.continuation.memory import SocketHistories
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.endpoints.admin import AdminEndpoints
from holodeck.gateway.endpoints.chat_completions import ChatCompletions
from holodeck.gateway.endpoints.compact import ContextEndpoints
from holodeck.gateway.endpoints.conversations import Conversations
from holodeck.gateway.endpoints.responses import Responses
from holodeck.gateway.endpoints.responses_ws import ResponseSockets
from holodeck.gateway.limits import CallerLimits
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
from holodeck.models.url import is_loopback
from holodeck.storage.base import ResponseStore
from holodeck.storage.factory import open_store
from holodeck.telemetry import start_tracing, stop_tracing
from holodeck.tools.function import FunctionExecutor

# Connections that wait to be taken: a crowd that comes at once is not turned away.
LISTEN_BACKLOG = 2_048
# Seconds that open connections get after the runs have ended.
CONNECTIONS_GRACE = 10
# Without a request: longer than proxies keep theirs (60), who report what we end as a 502.
KEEP_ALIVE_SECONDS = 75
# What is old is forgotten once an hour.
RETENTION_INTERVAL = 3_600.0
# Looks at which a gateway must be missing: a database that restarts hides all of them for a moment.
TAKE_OVER_LOOKS = 3


_PORT_ERRNOS = frozenset({errno.EADDRINUSE, errno.EACCES})


class Service:
    """A gateway with everything behind it. `run` serves until it is told to stop."""

    def __init__(self, loaded: LoadedGateway, backends: Mapping[str, Backend]) -> None:
        config = loaded.gateway
        self.config = config
        self.backends = backends
        self.store: ResponseStore = open_store(
            config.storage.url, folder=loaded.path.parent, durability=config.storage.durability
        )
        metrics = Metrics(frozenset(name for backend in backends.values() for name in backend.mcp.servers))
        self._server: _DrainingServer | None = None
        seal_keys = SealKeys(read_seal_keys(config, loaded.path.parent))
        callers = Callers(_build_caller_providers(loaded, loaded.path.parent))
        self.has_no_auth = callers.has_no_auth
        self.budget = ByteBudget(config.limits.body_budget)
        context_bytes = config.limits.context_bytes
        starter = RunBuilder(backends, config, self.budget)
        continuing = ContinuationResolver(self.store, seal_keys, max_bytes=context_bytes)
        self.pool, self._argument_checker = starter.pool, starter.argument_checker
        rates = CallerLimits(config.limits.key, config.limits.in_flight, sockets=config.limits.sockets)
        self.runs = ActiveRuns(metrics, rates)
        is_sqlite = config.storage.url.startswith("sqlite")
        self.background = Background(
            self.store,
            self.runs,
            build_durable_engine(config, loaded.path.parent, gateway_id=self.store.gateway_id),
            checks_before_takeover=1 if is_sqlite else TAKE_OVER_LOOKS,
            model_wait=config.background.model_wait_seconds,
            count=metrics.count,
        )
        maker = ResponseBuilder(
            starter,
            self.store,
            seal_keys,
            continuing,
            callers=callers,
            is_durable=self.background.is_durable,
            in_flight=lambda: rates.in_flight,
        )
        self._rebuild = maker.rebuild
        responses = Responses(maker, self.store, self.runs, continuing, self.background, rates)
        sockets = ResponseSockets(
            maker,
            self.runs,
            rates,
            continuing,
            seconds=config.limits.socket_seconds,
            max_queued_bytes=config.limits.body_bytes,
            budget=self.budget,
            histories=SocketHistories(max(config.limits.body_budget, context_bytes)),
        )
        self.app = Gateway(
            build_routes(
                responses,
                Conversations(self.store, seal_keys, max_sealed_bytes=context_bytes),
                AdminEndpoints(
                    backends,
                    self.store,
                    metrics,
                    in_flight=lambda: rates.in_flight,
                    sockets=lambda: rates.sockets,
                    background=self.background,
                ),
                ContextEndpoints(starter, continuing, seal_keys, max_bytes=context_bytes),
                ChatCompletions(starter, self.runs, continuing.tool_history),
            ),
            sockets={"/v1/responses": sockets.serve},
            callers=callers,
            caller_limits=rates,
            hosts=HostPolicy(
                allowed_hosts=config.listen.allowed_hosts,
                origins=config.cors_origins,
                is_local=is_loopback(config.listen.host),
            ),
            metrics=metrics,
            body_limit=config.limits.body_bytes,
            budget=self.budget,
            body_seconds=config.limits.request_seconds,
            silent_seconds=config.limits.silent_seconds,
        )

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve. SIGTERM, SIGINT and SIGHUP drain: new requests are refused, running ones get their time."""
        listener = _open_listener(self.config.listen.host, self.config.listen.port)
        tracer = start_tracing(self.config.otel, os.environ)
        self._server = server = _DrainingServer(
            uvicorn.Config(
                self.app,
                http=build_http_protocol(self.config.limits.request_seconds, self.config.limits.reader_seconds),
                log_config=None,
                access_log=False,
                proxy_headers=tracer is not None,  # only traces tell how a client reached the proxy in front of us
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=CONNECTIONS_GRACE,  # the runs have had their time by then
                server_header=False,
                lifespan="off",
                ws=build_websocket_protocol(
                    self.config.limits.request_seconds, self.config.limits.reader_seconds, self.budget
                ),
                ws_per_message_deflate=False,  # as over HTTP: what is packed counts for less than it takes
                ws_max_size=self.config.limits.body_bytes,
            ),
            on_exit=self._drain,
        )
        host, port = listener.getsockname()[:2]
        keeping: list[asyncio.Task[None]] = []
        try:
            self._import_functions()
            await self.background.open(self._rebuild)
            keeping = [
                asyncio.create_task(self._run_retention(), name="housekeeping"),
                asyncio.create_task(watch_file_shortage(), name="open files"),
                asyncio.create_task(self.background.watch_gateways(), name="keepers"),
                asyncio.create_task(self.background.watch_cancel_requests(), name="cancels"),
            ]
            with server.capture_signals():  # whoever reads that we are ready may also end us at once
                on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
                await server.serve(sockets=[listener])
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            await self.close()
            await stop_tracing(tracer)
            listener.close()

    def stop(self) -> None:
        """End it as SIGTERM does; `run` returns when that is done."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)

    async def close(self) -> None:
        """End runs, servers, models and storage, in this order."""
        await self.runs.close()
        await self.background.close()
        await asyncio.gather(
            self.pool.close(),
            self._argument_checker.close(),
            *(backend.mcp.close() for backend in self.backends.values()),
        )
        await asyncio.gather(*(backend.provider.close() for backend in self.backends.values()))
        await self.store.close()

    def _import_functions(self) -> None:
        """Before anybody waits. An agent whose files cannot be imported is no reason not to serve the others."""
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
        await self.runs.drain(self.config.limits.drain_seconds)

    async def _run_retention(self) -> None:
        """What is old is forgotten now and then."""
        while True:
            try:
                before = time.time() - self.config.storage.retention_days * DAY
                gone = await self.store.delete_older_than(before)
                await self.background.delete_older_than(before)
                if gone:
                    log.info("gateway.forgot", rows=gone)
            except StorageError as error:
                log.warning("gateway.retention_failed", error=error)
            await asyncio.sleep(RETENTION_INTERVAL)


class _DrainingServer(uvicorn.Server):
    """Uvicorn, with our own end: it stops listening when the runs are drained."""

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._on_exit = on_exit
        self._drain_task: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """SIGHUP, too: a terminal that is closed ends us in order. Under nohup it is ignored, and stays so."""
        is_ours = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGHUP) if is_ours else signal.SIG_IGN
        if before != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self.handle_exit)
        try:
            with super().capture_signals():
                yield
        finally:
            if before != signal.SIG_IGN:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drain_task is not None:  # asked twice: now
            self.force_exit = True
            self.should_exit = True
            return
        self._drain_task = asyncio.get_running_loop().create_task(self._drain(sig))

    def stop_listening(self) -> None:
        """Refuse who is not connected yet; uvicorn does so only at its end."""
        for listening in self.servers:
            listening.close()

    async def _drain(self, sig: int) -> None:
        log.info("gateway.draining", signal=signal.Signals(sig).name)
        await self._on_exit()
        self.should_exit = True


def _build_caller_providers(loaded: LoadedGateway, folder: Path) -> list[CallerProvider]:
    providers: list[CallerProvider] = []
    if loaded.gateway.keys:
        providers.append(APIKeys(loaded.gateway.keys))
    if loaded.gateway.jwt is not None:
        providers.append(JWTProvider(loaded.gateway.jwt, folder))
    return providers


def _open_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(LISTEN_BACKLOG)  # whoever reads that we are ready may connect at once
    except OSError as error:
        listener.close()
        key = "listen.port" if error.errno in _PORT_ERRNOS else "listen.host"
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}. Use another '{key}'.") from None
    return listener
