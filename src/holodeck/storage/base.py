"""What a gateway keeps, and what it asks of wherever it is kept. Another owner's id is the same as a missing one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.lib.types import record

Order = Literal["asc", "desc"]
UNFINISHED_STATUSES = ("queued", "in_progress")
"""The statuses of responses in the making."""


@record
class StoredResponse:
    """A response with everything that a later request may need of it. The bytes are JSON, made by the gateway."""

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
    """Calls that wait for the client or for an approval."""
    events: bytes = b""
    """Its stream, one event a line; empty when it was not streamed."""


@record
class Conversation:
    """A conversation that clients add items to."""

    id: str
    owner: str
    created_at: float
    metadata: bytes = b"{}"


@record
class ConversationItem:
    """One item of a conversation. Its wire form is JSON, made by the gateway."""

    id: str
    data: bytes


@record
class ConversationContents:
    """A conversation as it stood at one moment, with the calls that wait in it."""

    items: Sequence[ConversationItem] = ()
    last_position: int = 0
    """The place of the last item that was read."""
    pending_calls: bytes | None = None
    """Calls that wait for the client or for an approval; JSON, made by the gateway."""
    leased_by: str | None = None
    """The response that goes on with them, or was about to when its gateway died."""
    is_leased_here: bool = False
    """True when this very process has taken them."""
    is_leaseholder_alive: bool = False
    """True when the process that has taken them is alive."""


@record
class PendingCall:
    """A call that waits for a person or a client, or did."""

    digest: bytes | None = None
    """Of what was asked for, made by the gateway. None: nobody has said."""
    claimed_by: str | None = None
    """The response that has gone on with it."""


class ResponseStore(Protocol):
    """Keeps responses and conversations. Every failure is a `StorageError`."""

    @property
    def gateway_id(self) -> int:
        """The number of this process; the unfinished responses that it saves are its own to finish."""
        ...

    @property
    def unavailable_reason(self) -> str:
        """Why nothing can be kept, as far as that is known without trying. Empty: it is not."""
        ...

    async def save(self, record: StoredResponse, *, is_alone: bool = False) -> None:
        """Keep a response, or its newer state. A finished one has its stream in `events`, so its chunks are gone.

        `is_alone`: nobody else is being served, whom a moment's wait on this thread would hold up.
        """
        ...

    async def insert_within_quota(self, record: StoredResponse, *, quota: int, is_durable: bool) -> int | None:
        """Keep a new response in the making, unless its owner has `max_bytes` of them, whoever makes them.

        None: it has, and nothing is kept. Else the turn of the response among those that wait for room: owners take
        turns, and what somebody asks for later has a later one. The very same call again is not one more.
        `is_durable`: it may have to wait; the others do not, and have no turn.
        """
        ...

    async def count_unfinished(self, caller_id: str) -> int:
        """How many responses of an owner are in the making, whoever makes them."""
        ...

    async def finish(self, record: StoredResponse) -> bool:
        """Keep the end of a response that is this process's own to finish, as `save` does.

        False, and nothing is changed: it was deleted, or another has taken it over. The very same call again is True.
        """
        ...

    async def get(self, response_id: str, caller_id: str) -> StoredResponse | None: ...

    async def delete(self, response_id: str, caller_id: str) -> bool: ...

    async def read_context(
        self, response_id: str, caller_id: str, *, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> list[bytes] | None:
        """The `list_items` of the response and of all before it, oldest first. None: there is no such response.

        With the first that makes it more than `max_bytes` bytes, it ends.
        """
        ...

    async def find_responses_containing(self, ids: Collection[str], caller_id: str) -> list[tuple[bytes, bytes]]:
        """The resource and the input of those among the owner's latest responses in which items of these ids stand.

        For each of them it is the newest one. How much is searched has a limit.
        """
        ...

    async def read_orphans(self) -> list[StoredResponse]:
        """Responses that were queued or in progress when the gateway that made them ended."""
        ...

    async def find_orphans(self) -> dict[str, int | None]:
        """The ids of those same responses, each with the number of the keeper that is gone. None: it never had one."""
        ...

    async def find_unfinished(self, ids: Collection[str]) -> set[str]:
        """Those of the ids whose responses are not finished, whoever makes them."""
        ...

    async def assign_gateway(self, response_id: str, gateway_id: int | None = None) -> None:
        """Give an unfinished response another keeper: this process, or whom it names. A finished one is left alone."""
        ...

    async def append_events(
        self,
        response_id: str,
        first_number: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
    ) -> bool:
        """Add events to the stream of an unfinished response, and its newer state with them, all or none.

        `first_number` is the number of the first one, counted from 0. This process is its keeper then.
        False, and nothing is changed: there is no such unfinished response, or `first_number` is not the next number,
        because another writer was here. The very same call again is True: its answer may have been lost on the way.
        `status` is an unfinished one; to finish, `save`. No event has a line break in it.
        """
        ...

    async def read_events(self, response_id: str, caller_id: str, starting_after: int = -1) -> list[bytes] | None:
        """The events after a number that an unfinished response has so far. None: there is no such response.

        Empty for a finished one: its `events` have them.
        """
        ...

    async def request_cancel(self, response_id: str, caller_id: str) -> bool:
        """Ask whoever makes a response to stop. False: there is no such unfinished response."""
        ...

    async def read_cancel_requests(self) -> list[str]:
        """The ids of the unfinished responses of this keeper that somebody asked to stop. Cheap: it is asked often."""
        ...

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None: ...

    async def get_conversation(self, conversation_id: str, caller_id: str) -> Conversation | None: ...

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
        """Append, all or none, in order. An item whose id is there already stays as it is.

        `response_id` is the response whose items they are, if they are one's; `pending_calls` are then the calls that
        it leaves to the next. What it had taken is gone with that.
        """
        ...

    async def read_conversation(
        self, conversation_id: str, caller_id: str, *, limit: int, max_bytes: int = DEFAULT_CONTEXT_BYTES
    ) -> ConversationContents | None:
        """Its first items and what waits in it, all of one moment. `max_bytes`: as in `read_context`."""
        ...

    async def lease_conversation(
        self, conversation_id: str, caller_id: str, expected: ConversationContents, response_id: str
    ) -> bool:
        """Take what waits in a conversation for a response. False: it is not any more as it was seen.

        The very same call again is True.
        """
        ...

    async def release_conversation(self, conversation_id: str, caller_id: str, response_id: str) -> None:
        """The response has not gone on with what it took: another may."""
        ...

    async def add_pending_calls(
        self, caller_id: str, response_id: str, digests: Mapping[str, bytes], *, client_call_ids: Collection[str] = ()
    ) -> None:
        """Calls that wait from now on, by their ids. `client_call_ids`:
        the client's own calls, by which `find_paused_responses` finds it.
        """
        ...

    async def read_pending_calls(self, caller_id: str, ids: Collection[str]) -> dict[str, PendingCall]:
        """What is known of calls; nothing of some, perhaps."""
        ...

    async def claim_calls(self, caller_id: str, ids: Collection[str], response_id: str) -> dict[str, str]:
        """Take calls for a response, all or none. Empty: it has them, and nobody else ever will.

        Else those that others have, each with the response that has it. The very same call again is empty.
        """
        ...

    async def release_calls(self, caller_id: str, response_id: str, ids: Collection[str] | None = None) -> None:
        """A response has not begun with calls that it took, or with none of them: another may."""
        ...

    async def find_paused_responses(self, caller_id: str, call_id: str) -> list[str]:
        """The responses that paused with this call of the client, the newest first."""
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
        """Items in this order. `max_bytes`: as in `read_context`."""
        ...

    async def get_item(self, conversation_id: str, caller_id: str, item_id: str) -> ConversationItem | None: ...

    async def find_item(self, item_id: str, caller_id: str) -> ConversationItem | None:
        """The newest item of this id, in whichever of the owner's conversations it is."""
        ...

    async def delete_item(self, conversation_id: str, caller_id: str, item_id: str) -> bool: ...

    async def delete_older_than(self, before: float) -> int:
        """Delete what is older and not in the making, a little at a time, and say how much it was."""
        ...

    async def check_health(self) -> bool: ...

    async def close(self) -> None: ...
