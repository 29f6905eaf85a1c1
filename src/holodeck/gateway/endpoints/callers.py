"""`/v1/callers`: callers as operators see them, whether they have a key of the file or of the store, or a token.

A caller that is paused is refused at every gateway of the storage within a second, and what runs for it is cancelled;
at the gateway that is asked, when it replies. Erasing a caller takes until every gateway has deleted what it had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.caller_states import CallerStates
from holodeck.gateway.auth.callers import LOCAL_CALLER_ID, is_storable, resolve_caller_id
from holodeck.gateway.endpoints.runs import FindKey
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.http.parameters import TextParameter, build_limit
from holodeck.gateway.http.replies import Reply, StreamedReply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.lib import log
from holodeck.storage.caller_export import export_caller
from holodeck.storage.store import ResponseStore

_caller_route = partial(
    route, tag="Keys", roles=("operator",), is_unscoped=True, is_counted=False, may_have_slashes=True
)
# Seconds that a request waits for its caller to be erased at all gateways.
ERASE_SECONDS = 30.0
_LINES = "application/x-ndjson"
_LIMIT = build_limit("Callers")
_AFTER = TextParameter(name="after", about="The id of the last caller of the page before.")
_TEXT = TextParameter(name="text", about="Only callers whose ids have this in them, in any case.")
_ID = " The id may also be the name of a key in force, and is escaped as the part of a URL: `key:alice%23qkzvhtwbarme`."


class CallerEndpoints:
    """Routes of callers."""

    def __init__(
        self,
        store: ResponseStore,
        states: CallerStates,
        *,
        find_key: FindKey,
        refresh: Callable[[], Awaitable[None]],
        store_usage: Callable[[], Awaitable[None]],
    ) -> None:
        """`refresh`: reads the states of callers as they are stored now. `store_usage`: stores what was counted."""
        self._store = store
        self._states = states
        self._find_key = find_key
        self._refresh = refresh
        self._store_usage = store_usage

    @route(
        "GET",
        "/v1/callers",
        tag="Keys",
        roles=("operator", "viewer"),
        is_unscoped=True,
        is_counted=False,
        is_plain_read=True,
        id="listCallers",
        summary="List the callers",
        description="The callers that have used the gateway or are paused, by their ids.",
        query=(_LIMIT, _AFTER, _TEXT),
        reply="CallerList",
        example={"object": "list", "data": [examples.CALLER], "has_more": False},
        errors=("query", "storage"),
    )
    async def list_callers(self, request: Request) -> Reply:
        limit, after, text = _LIMIT.read(request.query), _AFTER.read(request.query), _TEXT.read(request.query)
        found = await self._store.caller_states.list_callers(
            after=_storable(after or ""), text=_storable(text or ""), limit=limit + 1
        )
        data = await self._build_resources(found[:limit])
        return json_reply({"object": "list", "data": data, "has_more": len(found) > limit})

    @_caller_route(
        "POST",
        "/v1/callers/{id}/pause",
        id="pauseCaller",
        summary="Pause a caller",
        description=(
            "Its requests are refused from now on, at every gateway of the storage within a second, whatever "
            "credentials it has, and what runs for it is cancelled. What it has stored stays." + _ID
        ),
        reply="Caller",
        example={**examples.CALLER, "paused": True},
        errors=("keys", "lookup", "storage"),
    )
    async def pause(self, request: Request) -> Reply:
        return await self._set_paused(request, is_paused=True)

    @_caller_route(
        "POST",
        "/v1/callers/{id}/resume",
        id="resumeCaller",
        summary="Accept a paused caller again",
        description="What was cancelled stays so. A caller that is not paused stays as it is." + _ID,
        reply="Caller",
        example=examples.CALLER,
        errors=("keys", "lookup", "storage"),
    )
    async def resume(self, request: Request) -> Reply:
        return await self._set_paused(request, is_paused=False)

    @_caller_route(
        "GET",
        "/v1/callers/{id}/export",
        id="exportCaller",
        summary="Export what is stored of a caller",
        description=(
            "Lines of JSON, each with its `object`: `caller`, then each `conversation` with its `conversation.item`s, "
            "each `run` with its response, input and trace, newest first, and `usage` by day. An empty line means "
            "nothing. The connection is cut where something cannot be read." + _ID
        ),
        reply={"type": "string"},
        media_type=_LINES,
        example='{"object":"caller","id":"key:alice#qkzvhtwbarme","exported_at":1781000000}\n',
        errors=("lookup", "storage"),
    )
    async def export(self, request: Request) -> StreamedReply:
        await self._store_usage()
        lines = export_caller(self._store, self._read_id(request))
        return StreamedReply(chunks=lines, content_type=_LINES, keepalive=b"\n")

    @_caller_route(
        "GET",
        "/v1/callers/{id}",
        id="getCaller",
        summary="Get a caller",
        description="Whether a caller is paused, and when it was last seen." + _ID,
        reply="Caller",
        example=examples.CALLER,
        errors=("lookup", "storage"),
        is_plain_read=True,
    )
    async def get(self, request: Request) -> Reply:
        [resource] = await self._build_resources([self._read_id(request)])
        return json_reply(resource)

    @_caller_route(
        "DELETE",
        "/v1/callers/{id}",
        id="eraseCaller",
        summary="Erase what is stored of a caller",
        description=(
            "What runs for the caller is cancelled, and its responses, conversations, runs, traces, sessions, logins "
            "and everything else that it has stored is deleted, at every gateway of the storage. Its usage is counted "
            "as that of the caller `erased`. Until that is done its requests are refused. Its keys stay, and work as "
            f"before afterwards. A reply with `erasing` comes after {ERASE_SECONDS:g} seconds: the gateways go on with "
            "it. Entries of the audit log stay." + _ID
        ),
        reply="Caller",
        example={**examples.CALLER, "erased_at": 1781000000, "changed_at": 1781000000, "last_used_at": None},
        errors=("keys", "lookup", "storage"),
    )
    async def erase(self, request: Request) -> Reply:
        caller_id = self._read_other_id(request, "erase it")
        await self._store.caller_states.start_erasing(caller_id, request.caller.id)
        await self._refresh()
        with suppress(TimeoutError):
            async with asyncio.timeout(ERASE_SECONDS):
                while (state := self._states.find(caller_id)) is not None and state.is_erasing:
                    await self._states.wait_changed()
        [resource] = await self._build_resources([caller_id])
        return json_reply(resource, owner=caller_id)

    async def _set_paused(self, request: Request, *, is_paused: bool) -> Reply:
        caller_id = self._read_other_id(request, "pause it")
        await self._store.caller_states.set_paused(caller_id, request.caller.id, is_paused=is_paused)
        log.warning("caller.paused" if is_paused else "caller.resumed", name=caller_id, caller=request.caller.id)
        await self._refresh()
        [resource] = await self._build_resources([caller_id])
        return json_reply(resource, owner=caller_id)

    def _read_id(self, request: Request) -> str:
        """Return the id that a path names. Any id is accepted: a caller with a token may not have been here yet."""
        sent = request.path_params["id"]
        is_name = ":" not in sent and sent != LOCAL_CALLER_ID
        if not is_storable(sent) or (is_name and self._find_key(sent) is None):
            raise not_found_error("Caller", _storable(sent))
        return resolve_caller_id(sent, self._find_key)

    def _read_other_id(self, request: Request, what: str) -> str:
        """Return the caller that a request is about. Raises `APIError` where it is that of the request itself."""
        caller_id = self._read_id(request)
        if caller_id == request.caller.id:
            message = f"This is the caller of this request: {what} with another operator's key."
            raise APIError(409, message, kind="invalid_request", code="key_in_use")
        return caller_id

    async def _build_resources(self, caller_ids: list[str]) -> list[dict[str, Any]]:
        uses = await self._store.caller_keys.read_uses(caller_ids)
        return [self._build_resource(caller_id, uses.get(caller_id)) for caller_id in caller_ids]

    def _build_resource(self, caller_id: str, used_at: float | None) -> dict[str, Any]:
        state = self._states.find(caller_id)
        erased_at = None if state is None else state.erased_at
        return {
            "object": "caller",
            "id": caller_id,
            "paused": state is not None and state.is_paused,
            "erasing": state is not None and state.is_erasing,
            "erased_at": None if erased_at is None else int(erased_at),
            "changed_at": None if state is None else int(state.changed_at),
            "changed_by": None if state is None else state.changed_by,
            "last_used_at": None if used_at is None else int(used_at),
        }


def _storable(text: str) -> str:
    """Return a text without what no database can compare with."""
    return text.encode("utf-8", "ignore").decode().replace("\0", "")
