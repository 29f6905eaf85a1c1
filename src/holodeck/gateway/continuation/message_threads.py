"""Threads of the Messages API: conversations that the gateway holds between requests.

A request with `thread: {"type": "create"}` begins one. The next request names the message that answered it, and has
only what is new; `join_body` puts what came before in front of it. Held in memory only: a client whose thread is gone,
as after a restart or at another gateway, is told so by `thread_not_found`, and sends the whole conversation again. The
tool runners of Anthropic's packages do that by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson

from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.request import RequestReservation
from holodeck.gateway.wire.messages.request import find_previous_message
from holodeck.lib.bounded_cache import BoundedCache
from holodeck.lib.limits import MIB

# Bytes of conversations, of all callers: as much as of the tool calls that clients do not send back.
MAX_THREAD_BYTES = 64 * MIB
# Seconds until a thread that nobody continues is forgotten.
THREAD_SECONDS = 3_600.0
# Fields that a thread has from the request that began it.
_THREAD_FIELDS = ("system", "tools")


class MessageThreads:
    """The threads of all callers, by the id of their last message. Evicts the least recently used first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_bytes: int = MAX_THREAD_BYTES) -> None:
        self._threads = BoundedCache[tuple[str, str], bytes](
            max_bytes=max_bytes, max_seconds=THREAD_SECONDS, clock=clock
        )

    def join_body(self, caller_id: str, body: Any, reservation: RequestReservation) -> Any:
        """Return a body with what its thread has before it; the same body if it continues none.

        Fields of the body win over those of the thread. Raises `APIError` where the thread is not found, and
        `TooManyError` where there is no room for it.
        """
        previous_id = find_previous_message(body)
        if previous_id is None:
            return body
        held = self._threads.get((caller_id, previous_id))
        if held is None:
            raise _thread_not_found_error(previous_id)
        reservation.acquire(len(held))
        reservation.acquire_parsed(held)
        thread = orjson.loads(held)
        messages = body.get("messages")
        # What is no array is refused by the reader of the body.
        joined = [*thread["messages"], *messages] if isinstance(messages, list) else messages
        return {**thread, **body, "messages": joined}

    def store(self, caller_id: str, body: dict[str, Any], message: dict[str, Any]) -> None:
        """Hold the conversation of a joined body, with the message that answers it, in place of the one before."""
        answer = {"role": "assistant", "content": message["content"]}
        thread = {key: body[key] for key in _THREAD_FIELDS if body.get(key) is not None}
        held = orjson.dumps({**thread, "messages": [*_without_marks(body["messages"]), answer]})
        previous_id = find_previous_message(body)
        if previous_id is not None:
            self._threads.delete((caller_id, previous_id))
        self._threads.set((caller_id, message["id"]), held, len(held))

    def forget_caller(self, caller_id: str) -> None:
        self._threads.delete_where(lambda key: key[0] == caller_id)


def _without_marks(value: Any) -> Any:
    """Return messages without the `cache_control` of their blocks.

    Each was set for the request that sent it, and a model takes only a few in one request. The input of a call is not
    searched: its keys are those of a tool.
    """
    if isinstance(value, list):
        return [_without_marks(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_marks(inner) if key in ("content", "source") else inner
        for key, inner in value.items()
        if key != "cache_control"
    }


def _thread_not_found_error(message_id: str) -> APIError:
    message = (
        f"There is no thread that ends with the message '{message_id}'. Send the whole conversation again, with "
        "'thread': {'type': 'create'}."
    )
    return APIError(404, message, kind="not_found", code="thread_not_found", param="thread.previous_message_id")
