"""Interface of the storage of a gateway, and the records that it stores.

`ResponseStore` has two implementations, `sqlite.store` and `postgres.store`. They hold responses with their streams,
conversations with their items, and pending calls. Every record belongs to one caller: a method that takes a
`caller_id` treats an id of another caller like an id that does not exist.

Several gateways may share one database. Each has a gateway id, and an unfinished response names the gateway that runs
it; when that gateway is not alive any more, the response is an orphan, and another gateway takes it over.

Writes whose acknowledgement may be lost on the network are idempotent: the same call again has the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.lib.record import record
from holodeck.storage.elicitations import ElicitationStore
from holodeck.storage.idempotency_keys import IdempotencyKeyStore
from holodeck.storage.runs import RunIndex, StoredRun
from holodeck.storage.usage import UsageStore

Order = Literal["asc", "desc"]
UNFINISHED_STATUSES = ("queued", "in_progress")
"""The statuses of a response that has not ended."""


@record
class StoredResponse:
    """A response with everything that a later request may need of it. The bytes are JSON, encoded by the gateway."""

    id: str
    owner: str
    created_at: float
    status: str
    previous_id: str | None = None
    conversation_id: str | None = None
    resource: bytes = b"{}"
    """The response exactly as it is returned."""
    input_items: bytes = b"[]"
    """Its input as it is listed, each item with an id."""
    items: bytes = b"[]"
    """What it added to the context: its input, then its output."""
    pending: bytes = b"[]"
    """Its pending calls."""
    events: bytes = b""
    """Its stream, one event per line; empty when it was not streamed."""
    trace: bytes | None = None
    """When its steps began and how long they took; JSON. None: it was stored before there were traces."""
    run: StoredRun | None = None
    """Its row in the index of runs, which is stored with it. None: that row is not changed; what is read has none."""


@record
class Conversation:
    """A conversation that clients add items to."""

    id: str
    owner: str
    created_at: float
    metadata: bytes = b"{}"


@record
class ConversationItem:
    """One item of a conversation. `data` is its wire form as JSON, encoded by the gateway."""

    id: str
    data: bytes


@record
class ConversationContents:
    """A consistent snapshot of a conversation: items, pending calls and lease."""

    items: Sequence[ConversationItem] = ()
    last_position: int = 0
    """The position of the last item that was read."""
    pending_calls: bytes | None = None
    """Calls that wait for the client or for an approval; JSON, encoded by the gateway."""
    leased_by: str | None = None
    """The response that holds the lease. It may be an orphan: see `is_leaseholder_alive`."""
    is_leased_here: bool = False
    """True when the response that holds the lease belongs to this gateway."""
    is_leaseholder_alive: bool = False
    """True when the gateway of the response that holds the lease is alive."""


@record
class PendingCall:
    """A call that waits, or waited, for an approval or for a client's output."""

    digest: bytes | None = None
    """A digest of the call, computed by the gateway. None for a call that was claimed before it was stored."""
    claimed_by: str | None = None
    """The response that has claimed it."""


class ResponseStore(Protocol):
    """Stores responses, conversations and pending calls. Every failure is a `StorageError`."""

    @property
    def gateway_id(self) -> int:
        """The number of this gateway process. An unfinished response that it saves is assigned to it."""
        ...

    @property
    def unavailable_reason(self) -> str:
        """Why nothing can be stored, as far as that is known without I/O. Empty when no reason is known."""
        ...

    @property
    def loss(self) -> str:
        """What the database is known to have lost, in public words, until an operator acknowledges it. Else empty."""
        ...

    @property
    def runs(self) -> RunIndex:
        """The index of the responses."""
        ...

    @property
    def usage(self) -> UsageStore:
        """Counts of usage, and what callers have spent."""
        ...

    @property
    def elicitations(self) -> ElicitationStore:
        """Questions of MCP servers that wait for an answer."""
        ...

    @property
    def idempotency_keys(self) -> IdempotencyKeyStore:
        """Keys by which clients repeat a request."""
        ...

    async def save(self, record: StoredResponse, *, is_alone: bool = False, is_reserved: bool = False) -> None:
        """Store a response, or replace its state.

        A finished response has its whole stream in `events`, so the chunks of `append_events` are deleted.
        `is_alone`: no other request is in progress, so a short write may block the event loop.
        `is_reserved`: `reserve` has stored it, which spares an attempt to insert it.
        """
        ...

    async def reserve(self, record: StoredResponse) -> None:
        """Store a new unfinished response for which a request waits: it is neither queued, nor does a quota count it.

        Idempotent.
        """
        ...

    async def insert_within_quota(self, record: StoredResponse, *, quota: int, is_durable: bool) -> int | None:
        """Store a new unfinished response, unless its caller has `quota` unfinished ones on all gateways together.

        Returns None, and stores nothing, when the quota is used up; else the queue position of the response. Positions
        alternate between callers, and a later response of a caller has a later position.
        `is_durable`: the response may be queued. Others start at once, and no position is stored for them.
        Idempotent: the response itself does not count towards the quota.
        """
        ...

    async def count_unfinished(self, caller_id: str) -> int:
        """The number of unfinished responses of a caller, on all gateways together."""
        ...

    async def finish(self, record: StoredResponse) -> bool:
        """Store the final state of a response that is assigned to this gateway, as `save` does.

        Returns False, and changes nothing, when the response was deleted or another gateway has taken it over.
        Idempotent.
        """
        ...

    async def get(self, response_id: str, caller_id: str) -> StoredResponse | None: ...

    async def delete(self, response_id: str, caller_id: str) -> bool: ...

    async def read_context(
        self, response_id: str, caller_id: str, *, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> list[bytes] | None:
        """The `items` of the response and of its predecessors, oldest first. None when there is no such response.

        Reading goes from the newest response back, and stops after the one that makes the sum exceed `max_bytes`.
        """
        ...

    async def find_responses_containing(self, ids: Collection[str], caller_id: str) -> list[tuple[bytes, bytes]]:
        """The resource and the input of the caller's newest response that contains each of these item ids.

        The search covers a bounded number of the caller's latest responses: see `items_by_id`.
        """
        ...

    async def read_orphans(self) -> list[StoredResponse]:
        """Unfinished responses whose gateway is not alive, or that have none."""
        ...

    async def find_orphans(self) -> dict[str, int | None]:
        """The ids of the same responses, each with the id of its dead gateway. None when none was ever assigned."""
        ...

    async def find_unfinished(self, ids: Collection[str]) -> set[str]:
        """The subset of the ids whose responses are unfinished, on any gateway."""
        ...

    async def find_unfinished_before(self, created_before: float) -> dict[str, str]:
        """The ids of unfinished responses from before a time, on any gateway, each with the id of its caller."""
        ...

    async def find_assigned(self) -> dict[str, str]:
        """The ids of the unfinished responses that are assigned to this gateway, each with the id of its caller."""
        ...

    async def assign_gateway(self, response_id: str, gateway_id: int | None = None) -> None:
        """Assign an unfinished response to this gateway, or to `gateway_id`. A finished response is not changed."""
        ...

    async def append_events(
        self,
        response_id: str,
        first_number: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
        trace: bytes | None = None,
    ) -> bool:
        """Append events to the stream of an unfinished response, and update its state, in one transaction.

        `first_number` is the number of the first event, counted from 0. The response is then assigned to this gateway.
        Returns False, and changes nothing, when there is no such unfinished response, or when `first_number` is not
        the next number because another writer has appended.
        Idempotent, because the acknowledgement of a commit may have been lost: of events from `first_number` on that
        this gateway has stored already, as they are here, only those after them are appended.
        `status` is an unfinished status; `save` and `finish` end a response. An event contains no line break.
        """
        ...

    async def read_events(self, response_id: str, caller_id: str, starting_after: int = -1) -> list[bytes] | None:
        """The events after a number that an unfinished response has so far. None when there is no such response.

        Empty for a finished response, whose events are in `StoredResponse.events`.
        """
        ...

    async def request_cancel(self, response_id: str, caller_id: str) -> bool:
        """Ask the gateway that runs a response to cancel it. False when there is no such unfinished response."""
        ...

    async def read_cancel_requests(self) -> list[str]:
        """The ids of the unfinished responses of this gateway for which `request_cancel` was called.

        Gateways poll this, so it is served from an index.
        """
        ...

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None: ...

    async def get_conversation(self, conversation_id: str, caller_id: str) -> Conversation | None: ...

    async def list_conversations(
        self, caller_id: str, *, after: str | None, limit: int, order: Order
    ) -> list[Conversation] | None:
        """Up to `limit` conversations of a caller by creation, behind the conversation `after`.

        None when `after` is no conversation of this caller. A page is read from an index, beginning behind `after`.
        """
        ...

    async def update_conversation(self, conversation_id: str, caller_id: str, metadata: bytes) -> bool: ...

    async def delete_conversation(self, conversation_id: str, caller_id: str) -> bool: ...

    async def add_items(
        self,
        conversation_id: str,
        caller_id: str,
        items: Sequence[ConversationItem],
        *,
        response_id: str | None = None,
        pending_calls: bytes | None = None,
    ) -> bool:
        """Append items in order, in one transaction. An item whose id exists already is not changed.

        `response_id` is the response that produced the items, if one did. `pending_calls` are then its pending calls:
        they replace those of the conversation, and the lease of the response ends.
        Returns False when there is no such conversation.
        """
        ...

    async def read_conversation(
        self, conversation_id: str, caller_id: str, *, limit: int, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> ConversationContents | None:
        """A consistent snapshot: the first `limit` items, pending calls, lease. None when there is no conversation.

        `max_bytes`: as in `read_context`.
        """
        ...

    async def lease_conversation(
        self, conversation_id: str, caller_id: str, expected: ConversationContents, response_id: str
    ) -> bool:
        """Lease a conversation for a response. False when it has changed since `expected` was read. Idempotent."""
        ...

    async def release_conversation(self, conversation_id: str, caller_id: str, response_id: str) -> None:
        """End the lease of a response that did not continue the conversation."""
        ...

    async def add_pending_calls(
        self, caller_id: str, response_id: str, digests: Mapping[str, bytes], *, client_call_ids: Collection[str] = ()
    ) -> None:
        """Store pending calls by their ids. A call that is stored already is not changed.

        `client_call_ids`: the calls of the client's own tools, by which `find_paused_responses` finds the response.
        """
        ...

    async def read_pending_calls(self, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
        """The stored calls by id. An id without a stored call is not in the result."""
        ...

    async def claim_calls(self, caller_id: str, ids: Collection[str], response_id: str) -> dict[str, str]:
        """Claim calls for a response, all or none. Empty on success: no other response can claim them then.

        Else the calls that are claimed already, each with the response that has claimed it. Idempotent.
        """
        ...

    async def release_calls(self, caller_id: str, response_id: str, ids: Collection[str] | None = None) -> None:
        """Release claims of a response on calls that it did not run; without `ids`, all of its claims."""
        ...

    async def find_paused_responses(self, caller_id: str, call_id: str) -> list[str]:
        """The responses that paused with this call of a client's tool, newest first."""
        ...

    async def list_items(
        self,
        conversation_id: str,
        caller_id: str,
        *,
        after: str | None = None,
        limit: int = 100,
        order: Order = "asc",
        max_bytes: int = DEFAULT_CONTEXT_BYTES,
    ) -> list[ConversationItem] | None:
        """Up to `limit` items in this order, behind the item `after`. None when there is no such conversation.

        `max_bytes`: as in `read_context`.
        """
        ...

    async def get_item(self, conversation_id: str, caller_id: str, item_id: str) -> ConversationItem | None: ...

    async def find_item(self, item_id: str, caller_id: str) -> ConversationItem | None:
        """The item of this id in the newest of the caller's conversations that has one."""
        ...

    async def delete_item(self, conversation_id: str, caller_id: str, item_id: str) -> bool: ...

    async def read_audit_end(self, file: str) -> tuple[int, str] | None:
        """The number and the hash of the last line of an audit log, as stored. None: nothing is stored for the file."""
        ...

    async def store_audit_end(self, file: str, seq: int, line_hash: str) -> None:
        """Store the number and the hash of the last line of an audit log. Idempotent."""
        ...

    async def delete_older_than(self, before: float) -> int:
        """Delete finished responses and conversations from before a time, in batches. Returns how many were deleted.

        Old pending calls, chunks of streams that belong to no unfinished response, and questions of MCP servers and
        idempotency keys that have expired are deleted as well.
        """
        ...

    async def check_health(self) -> bool:
        """Whether the database answers. Raises `StorageError` for as long as it cannot be written.

        After a failed write that is so until a probe has been written, which this method does, with growing pauses.
        """
        ...

    async def close(self) -> None: ...
