"""The table of routes: the whole surface of the gateway on one page."""

from __future__ import annotations

from holodeck.gateway.app import READY_PATH, Request, Route
from holodeck.gateway.endpoints.admin import AdminEndpoints
from holodeck.gateway.endpoints.chat_completions import ChatCompletions
from holodeck.gateway.endpoints.compact import ContextEndpoints
from holodeck.gateway.endpoints.conversations import Conversations
from holodeck.gateway.endpoints.responses import Responses
from holodeck.gateway.http.replies import Reply, StreamedReply


def build_routes(
    responses: Responses,
    conversations: Conversations,
    admin: AdminEndpoints,
    context: ContextEndpoints,
    chat: ChatCompletions,
) -> list[Route]:
    """Every route, with who may use it."""

    async def create_response(request: Request) -> Reply | StreamedReply:
        return await responses.create(
            request.json(), request.caller, request.reservation, client_kind=request.client_kind
        )

    async def get_response(request: Request) -> Reply | StreamedReply:
        return await responses.get(
            request.path_params["id"], request.caller, request.query, client_kind=request.client_kind
        )

    async def delete_response(request: Request) -> Reply:
        return await responses.delete(request.path_params["id"], request.caller)

    async def cancel_response(request: Request) -> Reply:
        return await responses.cancel(request.path_params["id"], request.caller)

    async def list_input_items(request: Request) -> Reply:
        return await responses.list_input_items(request.path_params["id"], request.caller, request.query)

    async def compact_context(request: Request) -> Reply:
        return await context.compact(request.json(), request.caller, request.reservation)

    async def count_input_tokens(request: Request) -> Reply:
        return await context.count_input_tokens(request.json(), request.caller, request.reservation)

    async def create_chat_completion(request: Request) -> Reply | StreamedReply:
        return await chat.create(request.json(), request.caller)

    items = "/v1/conversations/{id}/items"
    return [
        Route(method="POST", path="/v1/responses", handler=create_response),
        Route(method="POST", path="/v1/responses/compact", handler=compact_context),
        Route(method="POST", path="/v1/responses/input_tokens", handler=count_input_tokens),
        Route(method="POST", path="/v1/chat/completions", handler=create_chat_completion),
        Route(method="GET", path="/v1/responses/{id}", handler=get_response, is_counted=False),
        Route(method="DELETE", path="/v1/responses/{id}", handler=delete_response, is_counted=False),
        Route(method="POST", path="/v1/responses/{id}/cancel", handler=cancel_response, is_counted=False),
        Route(method="GET", path="/v1/responses/{id}/input_items", handler=list_input_items, is_counted=False),
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
        Route(
            method="GET", path="/v1/mcp/servers/{name}/tools", handler=admin.list_tools, is_admin=True, is_counted=False
        ),
        Route(
            method="POST",
            path="/v1/mcp/servers/{name}/refresh",
            handler=admin.refresh_server,
            is_admin=True,
            is_counted=False,
        ),
        Route(method="GET", path="/metrics", handler=admin.get_metrics, is_admin=True, is_counted=False),
        Route(method="GET", path="/healthz", handler=admin.get_health, is_public=True),
        Route(method="GET", path=READY_PATH, handler=admin.get_readiness, is_public=True),
    ]
