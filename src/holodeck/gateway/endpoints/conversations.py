"""`/v1/conversations`: stored conversations and their items."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from typing import Any, TypeGuard

import orjson

from holodeck.gateway.api import examples
from holodeck.gateway.api.models.other_bodies import (
    MAX_NEW_ITEMS,
    AddItems,
    CreateConversation,
    UpdateConversation,
)
from holodeck.gateway.api.route import route
from holodeck.gateway.http.error_codes import STORED_ERRORS
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.http.parameters import (
    AFTER,
    ITEM_AFTER,
    ITEM_LIMIT,
    ITEMS_PAGE,
    ORDER,
    build_limit,
    build_page,
    item_not_listed_error,
)
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.sealing import SealKeys
from holodeck.gateway.wire.request.input import check_unique_ids, read_input
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.options import check_metadata
from holodeck.gateway.wire.request.parsed_input import SealedInput
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MIB
from holodeck.storage.conversations import Conversation, ConversationItem
from holodeck.storage.store import ResponseStore

# Bytes of the items of one page; further items are on the next page. A single larger item is a page of its own.
MAX_PAGE_BYTES = 32 * MIB

# Items that one request may add, as in OpenAI's API.

_route = partial(route, tag="Conversations", is_counted=False)
_LIMIT = build_limit("Conversations")


class Conversations:
    """Routes of conversations. A caller sees only its own."""

    def __init__(self, store: ResponseStore, seal_keys: SealKeys, *, max_sealed_bytes: int) -> None:
        """`max_sealed_bytes`: plain bytes of the sealed items of one request."""
        self._store = store
        self._seal_keys = seal_keys
        self._max_sealed_bytes = max_sealed_bytes

    @_route(
        "POST",
        "/v1/conversations",
        id="createConversation",
        summary="Create a conversation",
        description="The body may be empty.",
        body="CreateConversation",
        is_body_required=False,
        example_body={"items": [{"role": "user", "content": "Hello"}], "metadata": {"topic": "greetings"}},
        reply="Conversation",
        example=examples.CONVERSATION,
        errors=("fields", "input", "storage"),
    )
    async def create(self, request: Request) -> Reply:
        sent = read_body(CreateConversation, request.json() if request.body else {})
        items = await self._read_items(request, sent.items or [])
        metadata = sent.metadata or {}
        check_metadata(metadata)
        conversation = Conversation(
            id=new_id("conv"), caller_id=request.caller.id, created_at=time.time(), metadata=orjson.dumps(metadata)
        )
        await self._store.create_conversation(conversation, [_item_row_of(item) for item in items])
        return json_reply(_conversation_resource_of(conversation))

    @_route(
        "GET",
        "/v1/conversations",
        id="listConversations",
        summary="List conversations",
        description=(
            "A page of the caller's conversations without their items, by creation. An operator's key also lists only "
            "its own. OpenAI's API has no such route."
        ),
        query=(ORDER, AFTER, _LIMIT),
        reply="ConversationList",
        example=examples.CONVERSATIONS,
        errors=("query", "storage"),
    )
    async def list_conversations(self, request: Request) -> Reply:
        """Return a page of the caller's conversations, by creation."""
        query = request.query
        order, limit, after = ORDER.read(query), _LIMIT.read(query), AFTER.read(query)
        listed = await self._store.list_conversations(request.caller.id, after=after, limit=limit + 1, order=order)
        if listed is None:
            raise item_not_listed_error(after or "")
        shown = [_conversation_resource_of(conversation) for conversation in listed[:limit]]
        return json_reply(build_page(shown, has_more=len(listed) > limit))

    @_route(
        "GET",
        "/v1/conversations/{id}",
        id="getConversation",
        summary="Get a conversation",
        description="The conversation without its items.",
        reply="Conversation",
        example=examples.CONVERSATION,
        errors=STORED_ERRORS,
    )
    async def get(self, request: Request) -> Reply:
        return json_reply(_conversation_resource_of(await self._require_conversation(request)))

    @_route(
        "POST",
        "/v1/conversations/{id}",
        id="updateConversation",
        summary="Replace the metadata of a conversation",
        description="The items stay as they are.",
        body="UpdateConversation",
        example_body={"metadata": {"topic": "small talk"}},
        reply="Conversation",
        example={**examples.CONVERSATION, "metadata": {"topic": "small talk"}},
        errors=(*STORED_ERRORS, "fields"),
    )
    async def update(self, request: Request) -> Reply:
        found = await self._require_conversation(request)
        metadata = read_body(UpdateConversation, request.json()).metadata or {}
        check_metadata(metadata)
        await self._store.update_conversation(found.id, request.caller.id, orjson.dumps(metadata))
        return json_reply({**_conversation_resource_of(found), "metadata": metadata})

    @_route(
        "DELETE",
        "/v1/conversations/{id}",
        id="deleteConversation",
        summary="Delete a conversation",
        description="Its items are deleted with it; its responses are not.",
        reply="DeletedConversation",
        example=examples.DELETED_CONVERSATION,
        errors=STORED_ERRORS,
    )
    async def delete(self, request: Request) -> Reply:
        conversation_id = request.path_params["id"]
        if not await self._store.delete_conversation(conversation_id, request.caller.id):
            raise not_found_error("Conversation", conversation_id)
        return json_reply({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    @_route(
        "POST",
        "/v1/conversations/{id}/items",
        id="addItems",
        summary="Add items to a conversation",
        description="Returns the items with their ids.",
        body="AddItems",
        example_body={"items": [{"role": "user", "content": "How are you?"}]},
        reply="ItemList",
        example=examples.ADDED_ITEMS,
        errors=(*STORED_ERRORS, "fields", "input"),
    )
    async def add_items(self, request: Request) -> Reply:
        sent = read_body(AddItems, request.json()).items
        items = await self._read_items(request, sent, await self._find_used_ids(request, sent))
        added = await self._store.add_items(
            request.path_params["id"], request.caller.id, [_item_row_of(item) for item in items]
        )
        if not added:
            raise not_found_error("Conversation", request.path_params["id"])
        return json_reply(build_page(items))

    @_route(
        "GET",
        "/v1/conversations/{id}/items",
        id="listItems",
        summary="List the items of a conversation",
        description="A page of the items.",
        query=ITEMS_PAGE,
        reply="ItemList",
        example=examples.CONVERSATION_ITEMS,
        errors=(*STORED_ERRORS, "query"),
    )
    async def list_items(self, request: Request) -> Reply:
        conversation_id, caller, query = request.path_params["id"], request.caller.id, request.query
        order, limit, after = ORDER.read(query), ITEM_LIMIT.read(query), ITEM_AFTER.read(query)
        listed = await self._store.list_items(
            conversation_id, caller, after=after, limit=limit + 1, order=order, max_bytes=MAX_PAGE_BYTES
        )
        if listed is None:
            raise not_found_error("Conversation", conversation_id)
        if after is not None and not listed and await self._store.get_item(conversation_id, caller, after) is None:
            raise item_not_listed_error(after)
        is_large = sum(len(item.data) for item in listed) > MAX_PAGE_BYTES
        shown = listed[: min(limit, max(len(listed) - is_large, 1))]
        has_more = is_large or len(listed) > limit
        return json_reply(build_page([orjson.loads(item.data) for item in shown], has_more=has_more))

    @_route(
        "GET",
        "/v1/conversations/{id}/items/{item_id}",
        id="getItem",
        summary="Get an item",
        description="One item of a conversation.",
        reply="StoredItem",
        example=examples.SECOND_ITEM,
        errors=STORED_ERRORS,
    )
    async def get_item(self, request: Request) -> Reply:
        item = await self._store.get_item(request.path_params["id"], request.caller.id, request.path_params["item_id"])
        if item is None:
            raise not_found_error("Item", request.path_params["item_id"])
        return Reply(body=item.data)

    @_route(
        "DELETE",
        "/v1/conversations/{id}/items/{item_id}",
        id="deleteItem",
        summary="Delete an item",
        description="Returns the conversation.",
        reply="Conversation",
        example={**examples.CONVERSATION, "metadata": {"topic": "small talk"}},
        errors=STORED_ERRORS,
    )
    async def delete_item(self, request: Request) -> Reply:
        found = await self._require_conversation(request)
        if not await self._store.delete_item(found.id, request.caller.id, request.path_params["item_id"]):
            raise not_found_error("Item", request.path_params["item_id"])
        return json_reply(_conversation_resource_of(found))

    async def _require_conversation(self, request: Request) -> Conversation:
        found = await self._store.get_conversation(request.path_params["id"], request.caller.id)
        if found is None:
            raise not_found_error("Conversation", request.path_params["id"])
        return found

    async def _find_used_ids(self, request: Request, value: object) -> set[str]:
        """Return the ids of new items, as the client sent them, that the conversation already has."""
        new_ids = {entry["id"] for entry in value if _has_id(entry)} if isinstance(value, list) else set()
        if len(new_ids) > MAX_NEW_ITEMS:
            return set()
        found = [await self._store.get_item(request.path_params["id"], request.caller.id, each) for each in new_ids]
        return {item.id for item in found if item is not None}

    async def _read_items(
        self, request: Request, value: object, used_ids: Collection[str] = ()
    ) -> list[dict[str, Any]]:
        if isinstance(value, list) and len(value) > MAX_NEW_ITEMS:
            message = f"Invalid 'items': at most {MAX_NEW_ITEMS} at a time."
            raise APIError(400, message, kind="invalid_request", code="array_above_max_length", param="items")
        seal = self._seal_keys.for_caller(request.caller.id)
        sealed = SealedInput(seal, max_bytes=self._max_sealed_bytes, acquire=request.reservation.acquire)
        await sealed.open(value if isinstance(value, list) else (), param="items")
        read = read_input(value, sealed=sealed, path="items")
        if read.compaction_trigger is not None:
            refuse("A 'compaction_trigger' is for a request for a response only.", read.compaction_trigger)
        items = read.wire_items
        check_unique_ids(items, used_ids, "items")
        return items


def _has_id(entry: object) -> TypeGuard[dict[str, str]]:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)


def _item_row_of(item: dict[str, Any]) -> ConversationItem:
    return ConversationItem(id=item["id"], data=orjson.dumps(item))


def _conversation_resource_of(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": orjson.loads(conversation.metadata),
    }
