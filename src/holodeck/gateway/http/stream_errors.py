"""The last events of streams that an error ends after their replies were started, in the form of each API."""

from __future__ import annotations

from holodeck.gateway.http.errors import APIError, encode_error_event, reply_for
from holodeck.gateway.wire.chat.response import encode_chat_sse
from holodeck.gateway.wire.messages.errors import error_to_json, status_of
from holodeck.gateway.wire.messages.response import encode_message_event
from holodeck.gateway.wire.response.event_encoder import SSE_DONE, encode_sse


def encode_response_error(error: APIError, sequence: int) -> bytes:
    """The `error` event of a stream of a response. `sequence`: the number of the event."""
    return encode_sse(encode_error_event(error, sequence)) + SSE_DONE


def encode_chat_error(error: APIError) -> bytes:
    """The error in a stream of chat completions or of completions, whose events have no names."""
    return encode_chat_sse(reply_for(error, "").body) + SSE_DONE


def encode_message_error(error: APIError) -> bytes:
    """The `error` event of a stream of the Messages API."""
    return encode_message_event(error_to_json(status_of(error.code, error.status), str(error)))
