"""Composition and lifecycle of a gateway.

`Service` builds every component of a gateway from its configuration, runs the HTTP server, and closes the components
again. It owns the storage, the MCP connections, the runs, and the tasks that watch over them.

With a `ConfigurationReader` the configuration can change while the gateway runs: see `reload.py`. What is read once,
at the start, is `Service.config`; everything else reads the `ConfigurationHolder`.

The end has an order. A signal starts the drain: new requests are refused, and running ones have `drain_seconds`. Then
the server stops, then the background tasks, then runs, background work, MCP servers, models, the audit log and
storage. A second signal ends the server at once, without waiting for the drain.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.all_endpoints import Endpoints
from holodeck.gateway.app import Gateway
from holodeck.gateway.audit.log import AuditLog, build_audit_log
from holodeck.gateway.audit.run_recorder import RunRecorder
from holodeck.gateway.auth.caller_states import CallerStates
from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.gateway.auth.factory import build_callers, build_providers, check_auth_is_not_lost
from holodeck.gateway.auth.groups import build_groups
from holodeck.gateway.auth.key_watch import KeyWatch
from holodeck.gateway.auth.open_requests import OpenRequests
from holodeck.gateway.auth.person_sessions import PersonSessions
from holodeck.gateway.auth.stored_keys import StoredKeys
from holodeck.gateway.backends import Backend, Backends, import_functions
from holodeck.gateway.configuration import Configuration, ConfigurationHolder, build_configuration
from holodeck.gateway.console.files import ConsoleFiles
from holodeck.gateway.continuation.memory import SocketHistories
from holodeck.gateway.continuation.resolve import ContinuationResolver
from holodeck.gateway.endpoints.admin import AdminEndpoints
from holodeck.gateway.endpoints.callers import CallerEndpoints
from holodeck.gateway.endpoints.chat_completions import ChatCompletions
from holodeck.gateway.endpoints.client_login import ClientLoginEndpoints
from holodeck.gateway.endpoints.compact import ContextEndpoints
from holodeck.gateway.endpoints.configuration import ConfigurationEndpoint
from holodeck.gateway.endpoints.conversations import Conversations
from holodeck.gateway.endpoints.elicitations import ElicitationEndpoints
from holodeck.gateway.endpoints.keys import KeyEndpoints
from holodeck.gateway.endpoints.logins import LoginEndpoints
from holodeck.gateway.endpoints.messages import Messages
from holodeck.gateway.endpoints.pass_through import PassThroughEndpoints
from holodeck.gateway.endpoints.person_login import PersonEndpoints
from holodeck.gateway.endpoints.responses import Responses
from holodeck.gateway.endpoints.responses_ws import ResponseSockets
from holodeck.gateway.endpoints.runs import RunEndpoints
from holodeck.gateway.endpoints.servers import ServerEndpoints
from holodeck.gateway.endpoints.usage import UsageEndpoints
from holodeck.gateway.http.observation import Refusals
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.mcp.caller_logins import CallerLogins
from holodeck.gateway.mcp.elicitations import Elicitations
from holodeck.gateway.mcp.server_logins import build_logins
from holodeck.gateway.mcp_endpoint.agent_runs import AgentRuns
from holodeck.gateway.mcp_endpoint.endpoint import MCPEndpoint
from holodeck.gateway.mcp_endpoint.resource_metadata import ResourceMetadata
from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.metrics.exposition import Exposition
from holodeck.gateway.openapi.document import DocumentEndpoint
from holodeck.gateway.reload import ConfigurationReader, ConfigurationReloader
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.runs.background import Background
from holodeck.gateway.runs.durable_engine import build_durable_engine
from holodeck.gateway.runs.erasure import CallerErasure
from holodeck.gateway.runs.response_builder import ResponseBuilder
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.sealing import AUDIT_PURPOSE, SealKeys, has_lasting_key, read_seal_keys
from holodeck.gateway.server.admission import Admission
from holodeck.gateway.server.draining_server import DrainingServer, build_server_config, open_listener
from holodeck.gateway.server.http_protocol import build_http_protocol
from holodeck.gateway.server.ws_protocol import build_websocket_protocol
from holodeck.gateway.usage.accounts import Accounts
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.usage.meter import UsageMeter, usage_limits
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import StorageError
from holodeck.lib.limits import DAY
from holodeck.lib.system.fd_shortage import watch_file_shortage
from holodeck.lib.system.memory import MemoryReturn
from holodeck.lib.tasks import TaskSet
from holodeck.mcp_server.catalogue import Catalogue
from holodeck.mcp_server.methods import Methods
from holodeck.mcp_server.view import View
from holodeck.models.callers import CallerKey
from holodeck.storage.factory import open_store
from holodeck.storage.store import ResponseStore
from holodeck.telemetry import start_tracing, stop_tracing
from holodeck.tools.executor import CallTarget
from holodeck.tools.mcp.server_tools import connect_servers

# Seconds between two deletions of what is older than the retention.
RETENTION_INTERVAL = 3_600.0
# Seconds for the background tasks to end after they are cancelled: a statement of storage may be under way.
TASKS_GRACE = 10.0


class Service:
    """A gateway with everything behind it. Owns storage, MCP connections, runs and its background tasks."""

    def __init__(
        self,
        loaded: LoadedGateway,
        backends: Backends,
        *,
        reader: ConfigurationReader | None = None,
        drains_on_hangup: bool = True,
    ) -> None:
        """`reader`: reads changed files again. None: the configuration does not change.

        `drains_on_hangup`: SIGHUP means that the terminal was closed. False: it means that files have changed.
        """
        config, folder = loaded.gateway, loaded.path.parent
        self.config, self._folder = config, folder
        self._drains_on_hangup = drains_on_hangup or reader is None
        self.store: ResponseStore = open_store(config.storage.url, folder=folder, durability=config.storage.durability)
        self.budget = ByteBudget(config.limits.body_budget)
        self.configurations = ConfigurationHolder(build_configuration(loaded, backends, self.budget))
        self._metrics = Metrics(self.configurations.current.server_names, settings=config.metrics)
        self._refusals = Refusals(self._metrics)
        self.admission = Admission()
        self._seal_keys = SealKeys(read_seal_keys(config, folder))
        self.stored_keys = StoredKeys(self.store.caller_keys, groups=build_groups(config.groups))
        self.stored_keys.add_change_listener(self._apply_stored_keys)
        self._open_requests = OpenRequests()
        self._person_sessions = PersonSessions(self.store.person_sessions, self._open_requests)
        self.callers = build_callers(config, folder, self.stored_keys, self._person_sessions)
        self.callers.add_revocation_listener(self._end_revoked)
        self.caller_states = CallerStates(self.store.caller_states, self.callers)
        self._key_watch = KeyWatch(self.callers, self.stored_keys, self.caller_states, self.store.caller_keys)
        self._caller_limits = CallerLimits.of(config.limits)
        self._continuations = ContinuationResolver(self.store, self._seal_keys, max_bytes=config.limits.context_bytes)
        self.audit = self._build_audit_log(folder)
        self.logins = build_logins(config, folder, self.store, self._seal_keys, self.callers, self.audit)
        self._caller_logins = self._build_caller_logins()
        self.meter = UsageMeter(self.store.usage, is_known_server=self._has_server)
        self._budgets = Budgets(self.store.usage, self.meter, config, self._caller_limits)
        self._accounts = accounts = Accounts(self._metrics, self.meter, self._budgets)
        self.runs = ActiveRuns(accounts, self._caller_limits)
        elicitations = Elicitations(self.store.elicitations)
        self._run_builder = RunBuilder(
            self.configurations,
            self.budget,
            self.audit,
            accounts,
            listener=self.runs,
            budgets=self._budgets,
            elicitations=elicitations,
        )
        self._elicitation_endpoints = ElicitationEndpoints(self.store, self.runs, elicitations, self.audit)
        self._mcp_methods = Methods(self._build_catalogue(), self._count_call, self._build_recorder)
        self._mcp_endpoint = self._build_mcp_endpoint()
        self._resource_metadata = ResourceMetadata(lambda: self.configurations.current.gateway)
        self.background = self._build_background(folder)
        self._response_builder = self._build_response_builder()
        self._messages = Messages(self._run_builder, self._continuations.tool_history)
        self.app = self._build_app()
        self.reloader = None if reader is None else self._build_reloader(reader)
        self._tasks = TaskSet()
        self._server: DrainingServer | None = None

    @property
    def backends(self) -> Mapping[str, Backend]:
        return self.configurations.current.backends

    @property
    def has_no_auth(self) -> bool:
        """Whether every request is accepted: there are neither keys nor an identity provider."""
        return self.callers.has_no_auth

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve until a signal or `stop`, then close everything.

        SIGTERM and SIGINT drain: new requests are refused, and running ones have `drain_seconds`. So does SIGHUP at a
        terminal; elsewhere it reloads the configuration. `on_ready` is called with the URL once requests are accepted.
        """
        listeners = open_listener(self.config.listen.host, self.config.listen.port)
        tracer = start_tracing(self.config.otel, os.environ)
        self._server = server = self._build_server()
        host, port = listeners[0].getsockname()[:2]
        self._caller_logins.local_url = f"http://127.0.0.1:{port}"
        try:
            await check_auth_is_not_lost(self.configurations.current.loaded, self.store.usage, self.store.caller_keys)
            await self.audit.open()
            import_functions(self.configurations.current.served.all)
            # Before stored work is gone on with: its callers may be among them.
            await self._key_watch.load()
            await self.background.open(self._response_builder.rebuild)
            self._start_tasks()
            # Captured before `on_ready`: a process that waits for it may send a signal at once.
            with server.capture_signals():
                on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
                self._connect_servers(self.configurations.current)
                await server.serve(sockets=listeners)
        finally:
            await self._tasks.close(TASKS_GRACE)
            await self.close()
            await server.close()
            await stop_tracing(tracer)
            for listener in listeners:
                listener.close()

    def stop(self) -> None:
        """Drain and end as SIGTERM does; `run` returns when that is done."""
        if self._server is not None:
            self._server.handle_exit(signal.SIGTERM, None)

    async def close(self) -> None:
        """Close logins, runs, background work, MCP servers, models, the audit log and storage, in this order."""
        await self.logins.close()
        await self._mcp_endpoint.close()
        await self.runs.close()
        await self.background.close()
        await asyncio.gather(
            self.callers.close(),
            self._run_builder.argument_checker.close(),
            self._elicitation_endpoints.close(),
            self.configurations.close(),
        )
        await self.meter.close()
        await self._key_watch.store_uses()
        await self.audit.close()
        await self.store.close()

    def _build_reloader(self, reader: ConfigurationReader) -> ConfigurationReloader:
        return ConfigurationReloader(reader, self.configurations, self.budget, self.audit, apply=self._apply)

    async def _reload(self) -> bool:
        """Apply the files as they are now. False: they are refused, or this gateway does not read them again."""
        return self.reloader is not None and await self.reloader.reload()

    def _apply(self, new: Configuration) -> None:
        """Serve by another configuration from now on. What began before goes on, except for revoked callers."""
        before, old = self.callers.providers, self.configurations.current
        self.stored_keys.replace_groups(build_groups(new.gateway.groups))
        providers = build_providers(new.gateway, self._folder, self.stored_keys, self._person_sessions, before)
        self._metrics.add_servers(new.server_names)
        self._caller_limits.replace_limits(new.gateway.limits)
        self._budgets.replace_budgets(new.gateway)
        self.configurations.replace(new)
        self._update_catalogue(old, new)
        self._connect_servers(new)
        self.callers.replace_providers(providers)
        for provider in before:
            if provider not in providers:
                self._tasks.start(provider.close(), name="close callers")

    def _apply_stored_keys(self, revoked: RevokedCallers) -> None:
        """Accept the keys of the store as they are now."""
        self._budgets.replace_stored_budgets(self.stored_keys.list_budgets())
        self.callers.revoke(revoked)

    def _end_revoked(self, revoked: RevokedCallers) -> None:
        """End everything that is open for callers whose credentials were withdrawn."""
        log.warning("gateway.revoked", callers=sorted(revoked.names))
        requests = self._open_requests.cancel_callers(revoked)
        self._mcp_endpoint.end_all_of(revoked)
        self.runs.cancel_background(revoked)
        self.configurations.current.pool.close_callers(revoked)
        self.logins.end_callers(revoked, self._has_caller)
        cancel = partial(self.background.cancel_callers, revoked, time.time(), requests)
        self._tasks.supervise(cancel, name=f"cancel responses of {', '.join(sorted(revoked.names))}")

    def _build_audit_log(self, folder: Path) -> AuditLog:
        return build_audit_log(
            self.config.audit,
            folder,
            keys=self._seal_keys.derive_mac_keys(AUDIT_PURPOSE),
            store=self.store,
            has_lasting_key=has_lasting_key(self.config, folder),
        )

    def _build_caller_logins(self) -> CallerLogins:
        return CallerLogins(
            self.logins,
            self.callers,
            get_pool=lambda: self.configurations.current.pool,
            get_public_url=lambda: self.configurations.current.gateway.mcp_endpoint.public_url,
        )

    def _build_background(self, folder: Path) -> Background:
        return Background(
            self.store,
            self.runs,
            build_durable_engine(self.config, folder, gateway_id=self.store.gateway_id),
            checks_before_takeover=self.store.checks_before_takeover,
            model_wait=self.config.background.model_wait_seconds,
            metrics=self._metrics,
        )

    def _build_catalogue(self) -> Catalogue:
        """Build the catalogue of what MCP clients can use of the current configuration."""
        current = self.configurations.current
        return Catalogue(current.servers, AgentRuns(self._run_builder).build_tools(current.backends))

    def _update_catalogue(self, old: Configuration, new: Configuration) -> None:
        """Let MCP clients use what there is now, and tell them which lists have changed."""
        self._mcp_methods.catalogue = self._build_catalogue()
        for area in new.find_changed_areas(old):
            new.served.changes.announce(area)

    def _build_mcp_endpoint(self) -> MCPEndpoint:
        return MCPEndpoint(
            self._mcp_methods,
            self.configurations.current.served.changes,
            self._caller_limits,
            self.budget,
            get_settings=lambda: self.configurations.current.gateway.mcp_endpoint,
            get_uses=lambda: self.configurations.current.uses,
            is_draining=lambda: self.app.is_draining,
            store=self.store.mcp_sessions if self.store.is_shared else None,
            checks_before_takeover=self.store.checks_before_takeover,
        )

    def _build_recorder(self, view: View) -> RunRecorder | None:
        """Build what records the calls of one request of an MCP client in the audit log."""
        if not self.audit.is_enabled:
            return None
        request_id = str(log.current_fields().get("request", ""))
        return RunRecorder(
            self.audit, door="mcp", caller=view.caller_id, request_id=request_id, response_id="", model=""
        )

    def _count_call(self, view: View, target: CallTarget, seconds: float, is_error: bool) -> None:
        """Count a call of an MCP client. The run of an agent counts itself."""
        if target.server:
            self._accounts.record_call(
                view.caller_id, "", target.server, target.shown_tool, seconds, is_error=is_error, is_direct=True
            )

    def _find_key(self, name: str) -> CallerKey | None:
        """Return the key of this name that is in force, in the store or in the file."""
        known = self.stored_keys.find_key(name)
        if known is not None:
            return known.key
        return next((key for key in self.configurations.current.gateway.keys if key.name == name), None)

    def _has_caller(self, caller_id: str) -> bool:
        """Return whether there is a key of this caller, in force or not."""
        known = (each.key for each in self.stored_keys.list_keys())
        return any(key.caller_id == caller_id for key in (*known, *self.configurations.current.gateway.keys))

    def _has_server(self, name: str) -> bool:
        return name in self.configurations.current.server_names

    def _build_response_builder(self) -> ResponseBuilder:
        return ResponseBuilder(
            self._run_builder,
            self.store,
            self._seal_keys,
            self._continuations,
            callers=self.callers,
            is_durable=self.background.is_durable,
            caller_limits=self._caller_limits,
            fail_later=self.background.fail_later,
        )

    def _build_app(self) -> Gateway:
        limits = self.config.limits
        return Gateway(
            self._build_endpoints().collect_routes(),
            sockets={"/v1/responses": self._build_sockets().serve},
            callers=self.callers,
            caller_limits=self._caller_limits,
            configurations=self.configurations,
            open_requests=self._open_requests,
            metrics=self._metrics,
            refusals=self._refusals,
            audit=self.audit,
            budgets=self._budgets,
            body_limit=limits.body_bytes,
            budget=self.budget,
            admission=self.admission,
            body_seconds=limits.request_seconds,
            mcp_challenge=self._resource_metadata.challenge,
        )

    def _build_endpoints(self) -> Endpoints:
        context_bytes = self.config.limits.context_bytes
        return Endpoints(
            responses=Responses(
                self._response_builder,
                self.store,
                self.runs,
                self._continuations,
                self.background,
                self._caller_limits,
            ),
            elicitations=self._elicitation_endpoints,
            conversations=Conversations(self.store, self._seal_keys, max_sealed_bytes=context_bytes),
            admin=AdminEndpoints(
                self.configurations,
                self.store,
                Exposition(self._metrics),
                in_flight=lambda: self._caller_limits.in_flight,
                sockets=lambda: self._caller_limits.sockets,
                background=self.background,
                audit=self.audit,
                list_failing=lambda: self._tasks.failing,
            ),
            servers=ServerEndpoints(self.configurations, self._metrics, reload=self._reload),
            logins=LoginEndpoints(self.configurations, self.logins, self._caller_logins),
            keys=KeyEndpoints(
                self.configurations,
                callers=self.callers,
                keys=self.stored_keys,
                store=self.store.caller_keys,
                budgets=self._budgets,
                store_uses=self._key_watch.store_uses,
            ),
            callers=self._build_caller_endpoints(),
            persons=(persons := self._build_person_endpoints()),
            configuration=ConfigurationEndpoint(
                self.configurations, get_outcome=lambda: None if self.reloader is None else self.reloader.latest
            ),
            context=ContextEndpoints(
                self._run_builder,
                self._continuations,
                self._seal_keys,
                accounts=self._accounts,
                budgets=self._budgets,
                max_bytes=context_bytes,
            ),
            chat=ChatCompletions(self._run_builder, self._continuations.tool_history),
            messages=self._messages,
            pass_through=PassThroughEndpoints(self._run_builder, self._accounts, self._budgets),
            mcp=self._mcp_endpoint,
            metadata=self._resource_metadata,
            client_logins=ClientLoginEndpoints(persons, self._seal_keys),
            runs=RunEndpoints(self.store, self.runs, self.configurations, self.background, find_key=self._find_key),
            usage=UsageEndpoints(self.store.usage, self.meter, self._budgets, self.configurations, self._find_key),
            document=DocumentEndpoint(lambda: self.app.routes),
            console=ConsoleFiles(),
        )

    def _build_person_endpoints(self) -> PersonEndpoints:
        return PersonEndpoints(
            self.configurations, self._person_sessions, self._seal_keys, budgets=self._budgets, audit=self.audit
        )

    def _build_sockets(self) -> ResponseSockets:
        limits = self.config.limits
        return ResponseSockets(
            self._response_builder,
            self._caller_limits,
            self._continuations,
            self.callers,
            seconds=limits.socket_seconds,
            max_queued_bytes=limits.body_bytes,
            budget=self.budget,
            refusals=self._refusals,
            admission=self.admission,
            histories=SocketHistories(max(limits.body_budget, limits.context_bytes)),
        )

    def _build_caller_endpoints(self) -> CallerEndpoints:
        refresh, store_usage = self._key_watch.refresh, self.meter.flush
        return CallerEndpoints(
            self.store, self.caller_states, find_key=self._find_key, refresh=refresh, store_usage=store_usage
        )

    def _build_erasure(self) -> CallerErasure:
        return CallerErasure(
            self.caller_states,
            self.store,
            requests=self._open_requests,
            runs=self.runs,
            background=self.background,
            meter=self.meter,
            forgetters=(
                self._continuations.forget_caller,
                self._messages.forget_caller,
                self.callers.forget_use,
            ),
            refresh=self._key_watch.refresh,
        )

    def _build_server(self) -> DrainingServer:
        limits = self.config.limits
        seconds = (limits.request_seconds, limits.reader_seconds)
        config = build_server_config(
            self.app,
            http=build_http_protocol(self.app.serve_http, *seconds, self._refusals, self.admission),
            websockets=build_websocket_protocol(*seconds, self.budget),
            max_message_bytes=limits.body_bytes,
        )
        on_hangup = None if self._drains_on_hangup or self.reloader is None else self.reloader.request
        return DrainingServer(config, on_exit=self._drain, on_hangup=on_hangup)

    def _start_tasks(self) -> None:
        self._tasks.supervise(self._run_retention, name="retention")
        self._tasks.supervise(self.meter.run, name="usage")
        self._tasks.supervise(self.audit.run, name="audit")
        self._tasks.supervise(watch_file_shortage, name="open files")
        memory = MemoryReturn(self.budget, is_idle=lambda: not self._caller_limits.in_flight)
        self._tasks.supervise(memory.run, name="memory")
        self._tasks.supervise(self._key_watch.follow, name="keys")
        self._tasks.supervise(self._key_watch.watch, name="expired keys")
        self._tasks.supervise(self._person_sessions.follow, name="sessions")
        self._tasks.supervise(self._mcp_endpoint.follow_relays, name="MCP relays")
        self._tasks.supervise(self._mcp_endpoint.watch_sessions, name="MCP sessions")
        self._tasks.supervise(self._build_erasure().follow, name="erasure")
        self._tasks.supervise(self.background.watch_gateways, name="take-over")
        self._tasks.supervise(self.background.watch_cancel_requests, name="cancellation")
        if self.reloader is not None:
            self._tasks.supervise(self.reloader.run, name="reload")

    def _connect_servers(self, configuration: Configuration) -> None:
        """Connect the MCP servers in the background, so that the log says now what does not work. Does not wait."""
        self.logins.add_servers(configuration.server_tools)
        self._caller_logins.add_servers(configuration.server_tools)
        if configuration.gateway.mcp_connect == "start":
            work = connect_servers(configuration.server_tools)
            self._tasks.start(work, name="connect servers")

    async def _drain(self) -> None:
        self.app.is_draining = True
        self.background.is_draining = True
        gateway = self.configurations.current.gateway
        if gateway.listen.closes_first and self._server is not None:
            self._server.stop_listening()
        seconds = gateway.limits.drain_seconds
        await asyncio.gather(self.runs.drain(seconds), self._mcp_endpoint.drain(seconds))

    async def _run_retention(self) -> None:
        """Delete what is older than the retention, again and again."""
        while True:
            try:
                settings = self.configurations.current.gateway.storage
                before = time.time() - settings.retention_days * DAY
                deleted = await self.store.delete_older_than(before)
                await self.store.usage.delete_older_than(usage_limits(time.time(), settings.usage_days))
                await self.background.delete_older_than(before)
                if deleted:
                    log.info("gateway.forgot", rows=deleted)
            except StorageError as error:
                log.warning("gateway.retention_failed", error=error)
            await asyncio.sleep(RETENTION_INTERVAL)
