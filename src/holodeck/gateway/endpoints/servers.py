"""`/v1/mcp/servers`: the MCP servers of the gateway, for its operator: state, tools, and what the lock withholds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from holodeck.config.tool_list import LoadedTool
from holodeck.gateway.api import examples
from holodeck.gateway.api.models.other_bodies import AcceptTools
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.scope import CallerScope
from holodeck.gateway.configuration import Configuration, ConfigurationHolder
from holodeck.gateway.http.errors import APIError, unknown_server_text
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.mcp.server_logins import has_login
from holodeck.gateway.metrics.counters import BUCKETS, Metrics
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib import log
from holodeck.lib.errors import MCPError
from holodeck.lib.system.files import lock_folder
from holodeck.storage.usage import find_percentile
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.lock.drift import ServerLock, ToolDrift
from holodeck.tools.mcp.lock.lock_file import LockFile, read_lock, write_lock
from holodeck.tools.mcp.server_tools import ServerTools

_operator_route = partial(route, tag="MCP servers", roles=("operator",), is_counted=False)


class ServerEndpoints:
    """Routes of MCP servers. A server out of the caller's scope is as one that does not exist."""

    def __init__(
        self, configurations: ConfigurationHolder, metrics: Metrics, *, reload: Callable[[], Awaitable[bool]]
    ) -> None:
        """`reload` reads the files of the gateway again, and returns False if they are refused."""
        self._configurations = configurations
        self._metrics = metrics
        self._reload = reload

    @_operator_route(
        "GET",
        "/v1/mcp/servers",
        id="listServers",
        summary="List the MCP servers",
        description="The servers of the gateway and of its agents, with the state of their connections.",
        reply="MCPServerList",
        example={"object": "list", "data": [examples.SERVER]},
        is_plain_read=True,
    )
    async def list_servers(self, request: Request) -> Reply:
        offers = _allowed_server_tools(self._configurations.current, request.caller.scope)
        return json_reply({"object": "list", "data": [self._build_resource(offer) for offer in offers]})

    @_operator_route(
        "GET",
        "/v1/mcp/servers/{name}/tools",
        id="listServerTools",
        summary="List the tools of a server",
        description="If the server cannot list them, `data` is empty and `error` has the reason.",
        reply="ServerToolList",
        example=examples.SERVER_TOOLS,
        errors=("lookup",),
        is_plain_read=True,
    )
    async def list_tools(self, request: Request) -> Reply:
        server, scope = self._require_servers(request)[0].server, request.caller.scope
        try:
            tools = [tool for tool in await server.list_tools() if scope.allows_tool(server.name, tool.name)]
        except MCPError as error:
            return json_reply({"object": "list", "data": [], "error": str(error)})
        return json_reply({"object": "list", "data": [_tool_resource_of(tool) for tool in tools]})

    @_operator_route(
        "POST",
        "/v1/mcp/servers/{name}/refresh",
        id="refreshServer",
        summary="Reconnect to a server",
        description="Waits for the new connection. `last_error` says why there is none.",
        reply="MCPServer",
        example=examples.SERVER,
        errors=("lookup",),
    )
    async def refresh(self, request: Request) -> Reply:
        """Reconnect to every server of the name, and wait for it."""
        offers = self._require_servers(request)
        for offer in offers:
            # The error is in the resource of the server.
            with suppress(MCPError):
                await offer.refresh()
        return json_reply(self._build_resource(offers[0]))

    @_operator_route(
        "POST",
        "/v1/mcp/servers/{name}/sleep",
        id="sleepServer",
        summary="End the connection to a server",
        description="The process of the server ends, if it has one. The next use starts it again.",
        reply="MCPServer",
        example={
            **examples.SERVER,
            "state": "created",
            "era": None,
            "protocol_version": None,
            "version": None,
            "stderr": None,
        },
        errors=("lookup",),
    )
    async def sleep(self, request: Request) -> Reply:
        """End the connection to every server of the name; the next use establishes it again."""
        offers = self._require_servers(request)
        for offer in offers:
            await offer.sleep()
        return json_reply(self._build_resource(offers[0]))

    @_operator_route(
        "POST",
        "/v1/mcp/servers/{name}/accept",
        id="acceptTools",
        summary="Accept tools that differ from the lock",
        description=(
            "Writes tools of `withheld` into `holodeck.lock`, so that models are offered them. `tools` has the digest "
            "of each, which says what you have looked at: a tool that has changed again is refused."
        ),
        body="AcceptTools",
        example_body={"tools": {"create_entities": "sha256:4f2c1a9b"}},
        reply="MCPServer",
        example=examples.SERVER,
        errors=("lookup", "fields", "file"),
    )
    async def accept_tools(self, request: Request) -> Reply:
        """Write withheld tools into `holodeck.lock` as the operator has seen them, by their digests."""
        offer, digests = self._require_servers(request)[0], read_body(AcceptTools, request.json()).tools
        withheld = {drift.tool: drift for drift in offer.server.withheld_tools}
        for tool, digest in digests.items():
            if tool not in withheld or withheld[tool].digest != digest:
                message = f"The tool '{tool}' is not withheld, or not as you have seen it. Look at it again."
                raise APIError(409, message, kind="invalid_request", code="tool_changed", param=f"tools.{tool}")
        accepted = [withheld[tool] for tool in digests]
        await asyncio.to_thread(_write_accepted, self._require_definition(offer), accepted)
        log.warning("mcp.accepted", server=offer.server.name, tools=sorted(digests), caller=request.caller.id)
        await self._reload()
        return json_reply(self._build_resource(self._require_servers(request)[0]))

    def _build_resource(self, offer: ServerTools) -> dict[str, Any]:
        """Return the resource of a server, with the durations of its calls since this gateway was started."""
        durations = self._metrics.count_durations(offer.server.name)
        return {
            **_server_resource_of(offer),
            "calls": sum(durations),
            "call_seconds_p50": find_percentile(durations, 0.5, BUCKETS),
            "call_seconds_p95": find_percentile(durations, 0.95, BUCKETS),
        }

    def _require_definition(self, offer: ServerTools) -> LoadedTool:
        loaded = self._configurations.current.loaded
        listed = [*loaded.servers, *(tool for agent in loaded.agents.values() for tool in agent.tools)]
        server = offer.server
        return next(item for item in listed if item.tool == server.config and item.folder == server.base_dir)

    def _require_servers(self, request: Request) -> list[ServerTools]:
        return require_servers(self._configurations.current, request)


def require_servers(configuration: Configuration, request: Request) -> list[ServerTools]:
    """Return the servers of the name in the path, since two agents may each have one. Raises the 404 if there is none.

    A server out of the caller's scope is as one that does not exist.
    """
    name, offers = request.path_params["name"], _allowed_server_tools(configuration, request.caller.scope)
    found = [offer for offer in offers if offer.server.name == name]
    if not found:
        message = unknown_server_text(name, (offer.server.name for offer in offers))
        raise APIError(404, message, kind="not_found", code="not_found")
    return found


def _allowed_server_tools(configuration: Configuration, scope: CallerScope) -> list[ServerTools]:
    return [offer for offer in configuration.server_tools if scope.allows_server(offer.server.name)]


def _server_resource_of(offer: ServerTools) -> dict[str, Any]:
    server = offer.server
    # A connection that was lost since the tools were listed is no failure of the offer before the next use.
    failure = offer.failure if offer.failure is not None else server.last_error
    return {
        "name": server.name,
        "object": "mcp_server",
        "description": server.description,
        "state": server.state.name.lower(),
        "transport": server.config.transport.value,
        "auth": server.config.auth.type if server.config.auth is not None else None,
        "can_log_in": has_login(server),
        "needs_login": failure is not None and _wants_login(failure),
        "era": server.era.value if server.era is not None else None,
        "protocol_version": server.protocol_version,
        "version": _version_of(server.server_info),
        "tools": None if offer.latest_tools is None else len(offer.latest_tools),
        "restarts": server.restarts,
        "start_seconds": server.start_seconds,
        "last_error": str(failure) if failure is not None else None,
        "stderr": server.stderr_tail or None,
        "next_try_at": int(offer.next_try) if offer.next_try is not None else None,
        "warnings": [*server.unmatched_patterns, *(drift.notice for drift in server.withheld_texts)],
        "withheld": [_drift_resource_of(drift) for drift in server.withheld_tools],
    }


def _wants_login(failure: MCPError) -> bool:
    """Return whether a server was not connected because it has no credentials, or none that are valid."""
    return bool(failure.details.get("login")) or failure.details.get("status") == HTTPStatus.UNAUTHORIZED


def _drift_resource_of(drift: ToolDrift) -> dict[str, Any]:
    return {
        "tool": drift.tool,
        "kind": drift.kind,
        "reason": drift.reason,
        "digest": drift.digest,
        "changes": [asdict(change) for change in drift.shown_changes],
    }


def _tool_resource_of(tool: MCPToolInfo) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "annotations": dict(tool.annotations),
    }


def _version_of(info: Mapping[str, Any]) -> str | None:
    """Return the name and version that a server declares, in one text; None if it declares neither."""
    return " ".join(info[key] for key in ("name", "version") if isinstance(info.get(key), str)) or None


def _write_accepted(loaded: LoadedTool, accepted: Sequence[ToolDrift]) -> None:
    """Write the lock of the server's file with these tools as they are now. Blocks; raises `ConfigError`."""
    file, name = Path(loaded.file).name, loaded.tool.name
    with lock_folder(loaded.folder):
        lock = read_lock(loaded.folder) or LockFile()
        servers = dict(lock.files.get(file, {}))
        locked = servers.get(name, ServerLock())
        for drift in accepted:
            locked = locked.accept(drift)
        write_lock(loaded.folder, lock.replace_servers(file, {**servers, name: locked}))
