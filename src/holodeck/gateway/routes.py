"""The table of routes: the whole HTTP surface of the gateway on one page."""

from __future__ import annotations

from functools import partial
from typing import Any

from holodeck.gateway.app import READY_PATH
from holodeck.gateway.console.files import ConsoleFiles
from holodeck.gateway.endpoints.admin import AdminEndpoints
from holodeck.gateway.endpoints.chat_completions import ChatCompletions
from holodeck.gateway.endpoints.compact import ContextEndpoints
from holodeck.gateway.endpoints.configuration import ConfigurationEndpoint
from holodeck.gateway.endpoints.conversations import Conversations
from holodeck.gateway.endpoints.elicitations import ElicitationEndpoints
from holodeck.gateway.endpoints.keys import KeyEndpoints
from holodeck.gateway.endpoints.logins import CALLBACK_PATH, LoginEndpoints
from holodeck.gateway.endpoints.messages import Messages
from holodeck.gateway.endpoints.pass_through import PassThroughEndpoints
from holodeck.gateway.endpoints.responses import Responses
from holodeck.gateway.endpoints.runs import RunEndpoints
from holodeck.gateway.endpoints.servers import ServerEndpoints
from holodeck.gateway.endpoints.usage import UsageEndpoints
from holodeck.gateway.http.mcp_errors import MCP_PATH
from holodeck.gateway.http.request import Route
from holodeck.gateway.mcp_endpoint.endpoint import MCPEndpoint
from holodeck.gateway.mcp_endpoint.resource_metadata import WELL_KNOWN, ResourceMetadata
from holodeck.gateway.openapi.endpoint import DocumentEndpoint


def build_routes(
    *,
    responses: Responses,
    elicitations: ElicitationEndpoints,
    conversations: Conversations,
    admin: AdminEndpoints,
    servers: ServerEndpoints,
    logins: LoginEndpoints,
    keys: KeyEndpoints,
    configuration: ConfigurationEndpoint,
    context: ContextEndpoints,
    chat: ChatCompletions,
    messages: Messages,
    pass_through: PassThroughEndpoints,
    mcp: MCPEndpoint,
    metadata: ResourceMetadata,
    runs: RunEndpoints,
    usage: UsageEndpoints,
    console: ConsoleFiles,
) -> list[Route]:
    """Build every route, with the key that it needs and whether it counts against the limits of its caller."""
    one, items = "/v1/responses/{id}", "/v1/conversations/{id}/items"
    document = DocumentEndpoint()
    document.routes = [
        Route(method="POST", path="/v1/responses", handler=responses.create, is_paid=True),
        Route(method="POST", path="/v1/responses/compact", handler=context.compact, is_paid=True),
        Route(method="POST", path="/v1/responses/input_tokens", handler=context.count_input_tokens),
        Route(method="POST", path="/v1/chat/completions", handler=chat.create, is_paid=True),
        Route(method="POST", path="/v1/messages", handler=messages.create, is_paid=True),
        Route(method="POST", path="/v1/messages/count_tokens", handler=messages.count_tokens),
        Route(method="POST", path="/v1/embeddings", handler=pass_through.create_embeddings, is_paid=True),
        Route(method="POST", path="/v1/completions", handler=pass_through.create_completion, is_paid=True),
        Route(method="GET", path=one, handler=responses.get, is_counted=False),
        Route(method="DELETE", path=one, handler=responses.delete, is_counted=False),
        Route(method="POST", path=f"{one}/cancel", handler=responses.cancel, is_counted=False),
        Route(method="GET", path=f"{one}/input_items", handler=responses.list_input_items, is_counted=False),
        *_build_elicitation_routes(elicitations),
        Route(method="POST", path="/v1/conversations", handler=conversations.create, is_counted=False),
        Route(method="GET", path="/v1/conversations", handler=conversations.list_conversations, is_counted=False),
        Route(method="GET", path="/v1/conversations/{id}", handler=conversations.get, is_counted=False),
        Route(method="POST", path="/v1/conversations/{id}", handler=conversations.update, is_counted=False),
        Route(method="DELETE", path="/v1/conversations/{id}", handler=conversations.delete, is_counted=False),
        Route(method="POST", path=items, handler=conversations.add_items, is_counted=False),
        Route(method="GET", path=items, handler=conversations.list_items, is_counted=False),
        Route(method="GET", path=f"{items}/{{item_id}}", handler=conversations.get_item, is_counted=False),
        Route(method="DELETE", path=f"{items}/{{item_id}}", handler=conversations.delete_item, is_counted=False),
        *_build_run_routes(runs, usage),
        Route(method="GET", path="/v1/models", handler=admin.list_models, is_counted=False),
        Route(method="GET", path="/v1/models/{id}", handler=admin.get_model, is_counted=False, may_have_slashes=True),
        *_build_server_routes(servers, logins),
        *_build_settings_routes(keys, configuration),
        *_build_mcp_routes(mcp, metadata),
        _build_metrics_route(admin),
        Route(method="GET", path="/healthz", handler=admin.get_health, is_public=True),
        Route(method="GET", path=READY_PATH, handler=admin.get_readiness, is_public=True),
        Route(method="GET", path="/openapi.json", handler=document.get, is_public=True),
        Route(method="GET", path="/", handler=console.get_page, is_public=True),
        Route(method="GET", path="/console/{file}", handler=console.get_file, is_public=True),
    ]
    return document.routes


def _build_metrics_route(admin: AdminEndpoints) -> Route:
    return Route(
        method="GET", path="/metrics", handler=admin.get_metrics, is_admin=True, is_counted=False, is_plain_read=True
    )


def _build_elicitation_routes(elicitations: ElicitationEndpoints) -> list[Route]:
    """Build the routes of what MCP servers ask while a response runs."""
    path = "/v1/responses/{id}/elicitations"
    return [
        Route(method="GET", path=path, handler=elicitations.list_open, is_counted=False),
        Route(method="POST", path=f"{path}/{{elicitation_id}}", handler=elicitations.answer, is_counted=False),
    ]


def _build_run_routes(runs: RunEndpoints, usage: UsageEndpoints) -> list[Route]:
    """Build the routes that say what was used."""
    return [
        Route(method="GET", path=path, handler=handler, is_counted=False, shows_other_callers=True)
        for path, handler in (
            ("/v1/runs", runs.list_runs),
            ("/v1/runs/{id}", runs.get),
            ("/v1/runs/{id}/trace", runs.get_trace),
            ("/v1/usage", usage.get),
        )
    ]


def _build_mcp_routes(mcp: MCPEndpoint, metadata: ResourceMetadata) -> list[Route]:
    """Build the routes of the MCP endpoint: for all servers, and for each one alone."""
    routes = [Route(method="GET", path=WELL_KNOWN, handler=metadata.get, is_public=True)]
    for path in (MCP_PATH, f"{MCP_PATH}/{{server}}"):
        routes += [
            Route(method="POST", path=path, handler=mcp.post, is_counted=False, counts_itself=True),
            Route(method="GET", path=path, handler=mcp.get, is_counted=False, counts_itself=True),
            Route(method="DELETE", path=path, handler=mcp.delete, is_counted=False),
            Route(method="GET", path=f"{WELL_KNOWN}{path}", handler=metadata.get, is_public=True),
        ]
    return routes


def _build_server_routes(servers: ServerEndpoints, logins: LoginEndpoints) -> list[Route]:
    """Build the routes of the MCP servers for operators, and the one that browsers come back to after a login."""
    path = "/v1/mcp/servers"
    build = partial(Route, is_admin=True, is_counted=False)
    return [
        build(method="GET", path=path, handler=servers.list_servers, is_plain_read=True),
        build(method="GET", path=f"{path}/{{name}}/tools", handler=servers.list_tools, is_plain_read=True),
        build(method="POST", path=f"{path}/{{name}}/refresh", handler=servers.refresh),
        build(method="POST", path=f"{path}/{{name}}/sleep", handler=servers.sleep),
        build(method="POST", path=f"{path}/{{name}}/accept", handler=servers.accept_tools),
        build(method="POST", path=f"{path}/{{name}}/login", handler=logins.start),
        build(method="GET", path=f"{path}/{{name}}/login", handler=logins.get, is_plain_read=True),
        build(method="DELETE", path=f"{path}/{{name}}/login", handler=logins.cancel),
        Route(method="GET", path=CALLBACK_PATH, handler=logins.receive_redirect, is_public=True),
    ]


def _build_settings_routes(keys: KeyEndpoints, configuration: ConfigurationEndpoint) -> list[Route]:
    """Build the routes of what holds for all callers: keys and the configuration."""
    build = partial(Route, is_admin=True, is_unscoped=True, is_counted=False)
    return [
        build(method="GET", path="/v1/keys", handler=keys.list_keys, is_plain_read=True),
        build(method="POST", path="/v1/keys", handler=keys.create),
        build(method="POST", path="/v1/keys/rotate", handler=keys.rotate),
        build(method="POST", path="/v1/keys/update", handler=keys.update),
        build(method="DELETE", path="/v1/keys/{name}", handler=keys.delete, may_have_slashes=True),
        build(method="GET", path="/v1/config", handler=configuration.get, is_plain_read=True),
    ]


def list_routes() -> list[Route]:
    """Every route with handlers that belong to no gateway, for what only describes them."""
    described: Any = {
        "responses": Responses,
        "elicitations": ElicitationEndpoints,
        "conversations": Conversations,
        "admin": AdminEndpoints,
        "servers": ServerEndpoints,
        "logins": LoginEndpoints,
        "keys": KeyEndpoints,
        "configuration": ConfigurationEndpoint,
        "context": ContextEndpoints,
        "chat": ChatCompletions,
        "messages": Messages,
        "pass_through": PassThroughEndpoints,
        "mcp": MCPEndpoint,
        "metadata": ResourceMetadata,
        "runs": RunEndpoints,
        "usage": UsageEndpoints,
        "console": ConsoleFiles,
    }
    return build_routes(**described)
