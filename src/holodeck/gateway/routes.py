"""The table of routes: the whole surface of the gateway on one page."""

from __future__ import annotations

from holodeck.gateway.app import READY, Call, Route
from holodeck.gateway.chat import ChatCompletions
from holodeck.gateway.conversations import Conversations
from holodeck.gateway.operations import Operations
from holodeck.gateway.replies import Reply, Streamed
from holodeck.gateway.responses import Responses
from holodeck.gateway.windows import Windows


def all_routes(
    responses: Responses,
    conversations: Conversations,
    operations: Operations,
    windows: Windows,
    chat: ChatCompletions,
) -> list[Route]:
    """Every route, with who may use it."""

    async def create(call: Call) -> Reply | Streamed:
        return await responses.create(call.json(), call.caller, call.reservation, dialect=call.dialect)

    async def get(call: Call) -> Reply | Streamed:
        return await responses.get(call.path["id"], call.caller, call.query, dialect=call.dialect)

    async def delete(call: Call) -> Reply:
        return await responses.delete(call.path["id"], call.caller)

    async def cancel(call: Call) -> Reply:
        return await responses.cancel(call.path["id"], call.caller)

    async def input_items(call: Call) -> Reply:
        return await responses.input_items(call.path["id"], call.caller, call.query)

    async def compact(call: Call) -> Reply:
        return await windows.compact(call.json(), call.caller, call.reservation)

    async def input_tokens(call: Call) -> Reply:
        return await windows.input_tokens(call.json(), call.caller, call.reservation)

    async def complete(call: Call) -> Reply | Streamed:
        return await chat.create(call.json(), call.caller)

    items = "/v1/conversations/{id}/items"
    return [
        Route(method="POST", path="/v1/responses", handler=create),
        Route(method="POST", path="/v1/responses/compact", handler=compact),
        Route(method="POST", path="/v1/responses/input_tokens", handler=input_tokens),
        Route(method="POST", path="/v1/chat/completions", handler=complete),
        Route(method="GET", path="/v1/responses/{id}", handler=get, is_counted=False),
        Route(method="DELETE", path="/v1/responses/{id}", handler=delete, is_counted=False),
        Route(method="POST", path="/v1/responses/{id}/cancel", handler=cancel, is_counted=False),
        Route(method="GET", path="/v1/responses/{id}/input_items", handler=input_items, is_counted=False),
        Route(method="POST", path="/v1/conversations", handler=conversations.create, is_counted=False),
        Route(method="GET", path="/v1/conversations/{id}", handler=conversations.get, is_counted=False),
        Route(method="POST", path="/v1/conversations/{id}", handler=conversations.update, is_counted=False),
        Route(method="DELETE", path="/v1/conversations/{id}", handler=conversations.delete, is_counted=False),
        Route(method="POST", path=items, handler=conversations.add_items, is_counted=False),
        Route(method="GET", path=items, handler=conversations.list_items, is_counted=False),
        Route(method="GET", path=f"{items}/{{item_id}}", handler=conversations.get_item, is_counted=False),
        Route(method="DELETE", path=f"{items}/{{item_id}}", handler=conversations.delete_item, is_counted=False),
        Route(method="GET", path="/v1/models", handler=operations.models, is_counted=False),
        Route(method="GET", path="/v1/models/{id}", handler=operations.model, is_counted=False, is_deep=True),
        Route(method="GET", path="/v1/mcp/servers", handler=operations.servers, is_admin=True, is_counted=False),
        Route(
            method="GET", path="/v1/mcp/servers/{name}/tools", handler=operations.tools, is_admin=True, is_counted=False
        ),
        Route(
            method="POST",
            path="/v1/mcp/servers/{name}/refresh",
            handler=operations.refresh,
            is_admin=True,
            is_counted=False,
        ),
        Route(method="GET", path="/metrics", handler=operations.metrics, is_admin=True, is_counted=False),
        Route(method="GET", path="/healthz", handler=operations.healthz, is_open=True),
        Route(method="GET", path=READY, handler=operations.readyz, is_open=True),
    ]
