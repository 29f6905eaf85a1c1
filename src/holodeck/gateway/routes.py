"""The table of routes: the whole HTTP surface of the gateway on one page."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.app import READY_PATH
from holodeck.gateway.endpoints.admin import AdminEndpoints
from holodeck.gateway.endpoints.chat_completions import ChatCompletions
from holodeck.gateway.endpoints.compact import ContextEndpoints
from holodeck.gateway.endpoints.conversations import Conversations
from holodeck.gateway.endpoints.messages import Messages
from holodeck.gateway.endpoints.pass_through import PassThroughEndpoints
from holodeck.gateway.endpoints.responses import Responses
from holodeck.gateway.http.mcp_errors import MCP_PATH
from holodeck.gateway.http.request import Route
from holodeck.gateway.mcp_endpoint.endpoint import MCPEndpoint
from holodeck.gateway.mcp_endpoint.resource_metadata import WELL_KNOWN, ResourceMetadata
from holodeck.gateway.openapi.endpoint import DocumentEndpoint


def build_routes(
    *,
    responses: Responses,
    conversations: Conversations,
    admin: AdminEndpoints,
    context: ContextEndpoints,
    chat: ChatCompletions,
    messages: Messages,
    pass_through: PassThroughEndpoints,
    mcp: MCPEndpoint,
    metadata: ResourceMetadata,
) -> list[Route]:
    """Build every route, with the key that it needs and whether it counts against the limits of its caller."""
    items, server = "/v1/conversations/{id}/items", "/v1/mcp/servers/{name}"
    document = DocumentEndpoint()
    document.routes = [
        Route(method="POST", path="/v1/responses", handler=responses.create),
        Route(method="POST", path="/v1/responses/compact", handler=context.compact),
        Route(method="POST", path="/v1/responses/input_tokens", handler=context.count_input_tokens),
        Route(method="POST", path="/v1/chat/completions", handler=chat.create),
        Route(method="POST", path="/v1/messages", handler=messages.create),
        Route(method="POST", path="/v1/messages/count_tokens", handler=messages.count_tokens),
        Route(method="POST", path="/v1/embeddings", handler=pass_through.create_embeddings),
        Route(method="POST", path="/v1/completions", handler=pass_through.create_completion),
        Route(method="GET", path="/v1/responses/{id}", handler=responses.get, is_counted=False),
        Route(method="DELETE", path="/v1/responses/{id}", handler=responses.delete, is_counted=False),
        Route(method="POST", path="/v1/responses/{id}/cancel", handler=responses.cancel, is_counted=False),
        Route(
            method="GET", path="/v1/responses/{id}/input_items", handler=responses.list_input_items, is_counted=False
        ),
        Route(method="POST", path="/v1/conversations", handler=conversations.create, is_counted=False),
        Route(method="GET", path="/v1/conversations/{id}", handler=conversations.get, is_counted=False),
        Route(method="POST", path="/v1/conversations/{id}", handler=conversations.update, is_counted=False),
        Route(method="DELETE", path="/v1/conversations/{id}", handler=conversations.delete, is_counted=False),
        Route(method="POST", path=items, handler=conversations.add_items, is_counted=False),
        Route(method="GET", path=items, handler=conversations.list_items, is_counted=False),
        Route(method="GET", path=f"{items}/{{item_id}}", handler=conversations.get_item, is_counted=False),
        Route(method="DELETE", path=f"{items}/{{item_id}}", handler=conversations.delete_item, is_counted=False),
        Route(method="GET", path="/v1/models", handler=admin.list_models, is_counted=False),
        Route(method="GET", path="/v1/models/{id}", handler=admin.get_model, is_counted=False, may_have_slashes=True),
        Route(method="GET", path="/v1/mcp/servers", handler=admin.list_servers, is_admin=True, is_counted=False),
        Route(method="GET", path=f"{server}/tools", handler=admin.list_tools, is_admin=True, is_counted=False),
        Route(method="POST", path=f"{server}/refresh", handler=admin.refresh_server, is_admin=True, is_counted=False),
        *_build_mcp_routes(mcp, metadata),
        Route(method="GET", path="/metrics", handler=admin.get_metrics, is_admin=True, is_counted=False),
        Route(method="GET", path="/healthz", handler=admin.get_health, is_public=True),
        Route(method="GET", path=READY_PATH, handler=admin.get_readiness, is_public=True),
        Route(method="GET", path="/openapi.json", handler=document.get, is_public=True),
    ]
    return document.routes


def _build_mcp_routes(mcp: MCPEndpoint, metadata: ResourceMetadata) -> list[Route]:
    """Build the routes of the MCP endpoint: for all servers, and for each one alone."""
    routes = [Route(method="GET", path=WELL_KNOWN, handler=metadata.get, is_public=True)]
    for path in (MCP_PATH, f"{MCP_PATH}/{{server}}"):
        routes += [
            Route(method="POST", path=path, handler=mcp.post, is_counted=False, counts_itself=True),
            Route(method="GET", path=path, handler=mcp.get, is_counted=False),
            Route(method="DELETE", path=path, handler=mcp.delete, is_counted=False),
            Route(method="GET", path=f"{WELL_KNOWN}{path}", handler=metadata.get, is_public=True),
        ]
    return routes


def list_routes() -> list[Route]:
    """Every route with handlers that belong to no gateway, for what only describes them."""
    described: Any = {
        "responses": Responses,
        "conversations": Conversations,
        "admin": AdminEndpoints,
        "context": ContextEndpoints,
        "chat": ChatCompletions,
        "messages": Messages,
        "pass_through": PassThroughEndpoints,
        "mcp": MCPEndpoint,
        "metadata": ResourceMetadata,
    }
    return build_routes(**described)
