"""What a gateway keeps, and what it asks of wherever it is kept. Another owner's id is the same as a missing one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.lib.record import record

Order = Literal["asc", "desc"]
UNFINISHED = ("queued", "in_progress")
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
class Thread:
    """A conversation as it stood at one moment, with the calls that wait in it."""

    items: Sequence[ConversationItem] = ()
    end: int = 0
    """The place of the last item that was read."""
    waiting: bytes | None = None
    """Calls that wait for the client or for an approval; JSON, made by the gateway."""
    taken_by: str | None = None
    """The response that goes on with them, or was about to when its gateway died."""
    is_taken_here: bool = False
    """True when this very process has taken them."""
    is_taker_there: bool = False
    """True when the process that has taken them is alive."""


@record
class WaitingCall:
    """A call that waits for a person or a client, or did."""

    digest: bytes | None = None
    """Of what was asked for, made by the gateway. None: nobody has said."""
    taken_by: str | None = None
    """The response that has gone on with it."""


class ResponseStore(Protocol):
    """Keeps responses and conversations. Every failure is a `StorageError`."""

    @property
    def keeper(self) -> int:
        """The number of this process; the unfinished responses that it saves are its own to finish."""
        ...

    @property
    def refusal(self) -> str:
        """Why nothing can be kept, as far as that is known without trying. Empty: it is not."""
        ...

    async def save(self, record: StoredResponse, *, is_alone: bool = False) -> None:
        """Keep a response, or its newer state. A finished one has its stream in `events`, so its chunks are gone.

        `is_alone`: nobody else is being served, whom a moment's wait on this thread would hold up.
        """
        ...

    async def enter(self, record: StoredResponse, *, most: int, is_durable: bool) -> int | None:
        """Keep a new response in the making, unless its owner has `most` of them, whoever makes them.

        None: it has, and nothing is kept. Else the turn of the response among those that wait for room: owners take
        turns, and what somebody asks for later has a later one. The very same call again is not one more.
        `is_durable`: it may have to wait; the others do not, and have no turn.
        """
        ...

    async def count_unfinished(self, owner: str) -> int:
        """How many responses of an owner are in the making, whoever makes them."""
        ...

    async def finish(self, record: StoredResponse) -> bool:
        """Keep the end of a response that is this process's own to finish, as `save` does.

        False, and nothing is changed: it was deleted, or another has taken it over. The very same call again is True.
        """
        ...

    async def get(self, response_id: str, owner: str) -> StoredResponse | None: ...

    async def delete(self, response_id: str, owner: str) -> bool: ...

    async def context(self, response_id: str, owner: str, *, most: int = DEFAULT_CONTEXT_BYTES) -> list[bytes] | None:
        """The `items` of the response and of all before it, oldest first. None: there is no such response.

        With the first that makes it more than `most` bytes, it ends.
        """
        ...

    async def with_items(self, ids: Collection[str], owner: str) -> list[tuple[bytes, bytes]]:
        """The resource and the input of those among the owner's latest responses in which items of these ids stand.

        For each of them it is the newest one. How much is searched has a limit.
        """
        ...

    async def unfinished(self) -> list[StoredResponse]:
        """Responses that were queued or in progress when the gateway that made them ended."""
        ...

    async def orphans(self) -> dict[str, int | None]:
        """The ids of those same responses, each with the number of the keeper that is gone. None: it never had one."""
        ...

    async def in_the_making(self, ids: Collection[str]) -> set[str]:
        """Those of the ids whose responses are not finished, whoever makes them."""
        ...

    async def adopt(self, response_id: str, keeper: int | None = None) -> None:
        """Give an unfinished response another keeper: this process, or whom it names. A finished one is left alone."""
        ...

    async def grow(
        self,
        response_id: str,
        first: int,
        events: Sequence[bytes],
        *,
        resource: bytes | None = None,
        status: str | None = None,
    ) -> bool:
        """Add events to the stream of an unfinished response, and its newer state with them, all or none.

        `first` is the number of the first one, counted from 0. This process is its keeper then.
        False, and nothing is changed: there is no such unfinished response, or `first` is not the next number, because
        another writer was here. The very same call again is True: its answer may have been lost on the way.
        `status` is an unfinished one; to finish, `save`. No event has a line break in it.
        """
        ...

    async def grown(self, response_id: str, owner: str, starting_after: int = -1) -> list[bytes] | None:
        """The events after a number that an unfinished response has so far. None: there is no such response.

        Empty for a finished one: its `events` have them.
        """
        ...

    async def ask_cancel(self, response_id: str, owner: str) -> bool:
        """Ask whoever makes a response to stop. False: there is no such unfinished response."""
        ...

    async def cancels(self) -> list[str]:
        """The ids of the unfinished responses of this keeper that somebody asked to stop. Cheap: it is asked often."""
        ...

    async def create_conversation(self, conversation: Conversation, items: Sequence[ConversationItem]) -> None: ...

    async def conversation(self, conversation_id: str, owner: str) -> Conversation | None: ...

    async def update_conversation(self, conversation_id: str, owner: str, metadata: bytes) -> bool: ...

    async def delete_conversation(self, conversation_id: str, owner: str) -> bool: ...

    async def add_items(
        self,
        conversation_id: str,
        owner: str,
        items: Sequence[ConversationItem],
        *,
        by: str | None = None,
        waiting: bytes | None = None,
    ) -> bool:
        """Append, all or none, in order. An item whose id is there already stays as it is.

        `by` is the response whose items they are, if they are one's; `waiting` are then the calls that it leaves to
        the next. What it had taken is gone with that.
        """
        ...

    async def thread(
        self, conversation_id: str, owner: str, *, limit: int, most: int = DEFAULT_CONTEXT_BYTES
    ) -> Thread | None:
        """Its first items and what waits in it, all of one moment. `most`: as in `context`."""
        ...

    async def take(self, conversation_id: str, owner: str, seen: Thread, taker: str) -> bool:
        """Take what waits in a conversation for a response. False: it is not any more as it was seen.

        The very same call again is True.
        """
        ...

    async def give_back(self, conversation_id: str, owner: str, taker: str) -> None:
        """The response has not gone on with what it took: another may."""
        ...

    async def remember_calls(
        self, owner: str, response_id: str, digests: Mapping[str, bytes], *, turn: Collection[str] = ()
    ) -> None:
        """Calls that wait from now on, by their ids. `turn`: the client's own calls, by which `paused_in` finds it."""
        ...

    async def waiting_calls(self, owner: str, ids: Collection[str]) -> dict[str, WaitingCall]:
        """What is known of calls; nothing of some, perhaps."""
        ...

    async def take_calls(self, owner: str, ids: Collection[str], taker: str) -> dict[str, str]:
        """Take calls for a response, all or none. Empty: it has them, and nobody else ever will.

        Else those that others have, each with the response that has it. The very same call again is empty.
        """
        ...

    async def return_calls(self, owner: str, taker: str, ids: Collection[str] | None = None) -> None:
        """A response has not begun with calls that it took, or with none of them: another may."""
        ...

    async def paused_in(self, owner: str, call_id: str) -> list[str]:
        """The responses that paused with this call of the client, the newest first."""
        ...

    async def items(
        self,
        conversation_id: str,
        owner: str,
        *,
        after: str | None = None,
        limit: int = 100,
        order: Order = "asc",
        most: int = DEFAULT_CONTEXT_BYTES,
    ) -> list[ConversationItem] | None:
        """Items in this order. `most`: as in `context`."""
        ...

    async def item(self, conversation_id: str, owner: str, item_id: str) -> ConversationItem | None: ...

    async def find_item(self, item_id: str, owner: str) -> ConversationItem | None:
        """The newest item of this id, in whichever of the owner's conversations it is."""
        ...

    async def delete_item(self, conversation_id: str, owner: str, item_id: str) -> bool: ...

    async def forget(self, before: float) -> int:
        """Delete what is older and not in the making, a little at a time, and say how much it was."""
        ...

    async def is_healthy(self) -> bool: ...

    async def close(self) -> None: ...
