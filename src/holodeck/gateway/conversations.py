"""`/v1/conversations`: items that clients keep here between responses."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeGuard

import orjson

from holodeck.gateway.pages import limit_of, not_listed, order_of, page
from holodeck.gateway.problems import WireError, not_found
from holodeck.gateway.replies import Reply, json_reply
from holodeck.gateway.wire.fields import Fields
from holodeck.gateway.wire.input import check_unique, read_input
from holodeck.gateway.wire.options import read_metadata
from holodeck.gateway.wire.seal import SealKeys
from holodeck.gateway.wire.sealed_input import SealedInput
from holodeck.lib.ids import new_id
from holodeck.lib.limits import MAX_PAGE_BYTES
from holodeck.storage.store import Conversation, ConversationItem, ResponseStore

if TYPE_CHECKING:
    from holodeck.gateway.app import Call

_MAX_NEW_ITEMS = 20


class Conversations:
    """The conversations of all callers; each sees only its own."""

    def __init__(self, store: ResponseStore, seal_keys: SealKeys, *, most: int) -> None:
        """`most`: plain bytes of the sealed items of one request."""
        self._store = store
        self._seal_keys = seal_keys
        self._most = most

    async def create(self, call: Call) -> Reply:
        fields = Fields(call.json() if call.body else {})
        items = await self._read(call, fields.take("items") or [])
        metadata = dict(read_metadata(fields))
        fields.done()
        made = Conversation(
            id=new_id("conv"), owner=call.caller.id, created_at=time.time(), metadata=orjson.dumps(metadata)
        )
        await self._store.create_conversation(made, [_kept(item) for item in items])
        return json_reply(_shown(made))

    async def get(self, call: Call) -> Reply:
        return json_reply(_shown(await self._found(call)))

    async def update(self, call: Call) -> Reply:
        found = await self._found(call)
        fields = Fields(call.json())
        if "metadata" not in fields.value:
            fields.missing("metadata")
        metadata = orjson.dumps(dict(read_metadata(fields)))
        fields.done()
        await self._store.update_conversation(found.id, call.caller.id, metadata)
        return json_reply({**_shown(found), "metadata": orjson.loads(metadata)})

    async def delete(self, call: Call) -> Reply:
        conversation_id = call.path["id"]
        if not await self._store.delete_conversation(conversation_id, call.caller.id):
            raise not_found("Conversation", conversation_id)
        return json_reply({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    async def add_items(self, call: Call) -> Reply:
        fields = Fields(call.json())
        items = await self._read(call, fields.take("items"), await self._taken(call, fields.value.get("items")))
        fields.done()
        added = await self._store.add_items(call.path["id"], call.caller.id, [_kept(item) for item in items])
        if not added:
            raise not_found("Conversation", call.path["id"])
        return json_reply(page(items))

    async def list_items(self, call: Call) -> Reply:
        conversation_id, caller, query = call.path["id"], call.caller.id, call.query
        order, limit, after = order_of(query), limit_of(query), query.get("after")
        listed = await self._store.items(
            conversation_id, caller, after=after, limit=limit + 1, order=order, most=MAX_PAGE_BYTES
        )
        if listed is None:
            raise not_found("Conversation", conversation_id)
        if after is not None and not listed and await self._store.item(conversation_id, caller, after) is None:
            raise not_listed(after)
        is_large = sum(len(item.data) for item in listed) > MAX_PAGE_BYTES
        shown = listed[: min(limit, max(len(listed) - is_large, 1))]  # one that is too large stands alone
        has_more = is_large or len(listed) > limit
        return json_reply(page([orjson.loads(item.data) for item in shown], has_more=has_more))

    async def get_item(self, call: Call) -> Reply:
        item = await self._store.item(call.path["id"], call.caller.id, call.path["item_id"])
        if item is None:
            raise not_found("Item", call.path["item_id"])
        return Reply(body=item.data)

    async def delete_item(self, call: Call) -> Reply:
        found = await self._found(call)
        if not await self._store.delete_item(found.id, call.caller.id, call.path["item_id"]):
            raise not_found("Item", call.path["item_id"])
        return json_reply(_shown(found))

    async def _found(self, call: Call) -> Conversation:
        found = await self._store.conversation(call.path["id"], call.caller.id)
        if found is None:
            raise not_found("Conversation", call.path["id"])
        return found

    async def _taken(self, call: Call, value: object) -> set[str]:
        """Which of the ids that a client gives to its new items the conversation has already."""
        given = {entry["id"] for entry in value if _has_id(entry)} if isinstance(value, list) else set()
        if len(given) > _MAX_NEW_ITEMS:
            return set()
        found = [await self._store.item(call.path["id"], call.caller.id, each) for each in given]
        return {item.id for item in found if item is not None}

    async def _read(self, call: Call, value: object, taken: Collection[str] = ()) -> list[dict[str, Any]]:
        if isinstance(value, list) and len(value) > _MAX_NEW_ITEMS:
            message = f"Invalid 'items': at most {_MAX_NEW_ITEMS} at a time."
            raise WireError(400, message, kind="invalid_request", code="array_above_max_length", param="items")
        seal = self._seal_keys.for_caller(call.caller.id)
        sealed = SealedInput(seal, most=self._most, acquire=call.reservation.acquire)
        await sealed.open(value if isinstance(value, list) else (), param="items")
        shown = read_input(value, sealed=sealed, path="items").shown
        check_unique(shown, taken, "items")
        return shown


def _has_id(entry: object) -> TypeGuard[dict[str, str]]:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)


def _kept(item: dict[str, Any]) -> ConversationItem:
    return ConversationItem(id=item["id"], data=orjson.dumps(item))


def _shown(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": orjson.loads(conversation.metadata),
    }
