"""Errors of model APIs: turns HTTP statuses and error events into `ModelError`s.

The text names the model, quotes the provider without secrets, and gives advice. The attributes say whether and when
the request may be repeated, and carry an error code that clients know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import orjson

from holodeck.lib.errors import BAD_QUESTION, CONTEXT_TOO_LONG, RATE_LIMITED, UNAVAILABLE, ModelError
from holodeck.lib.json.parse import parse_json
from holodeck.providers.http.model_address import ModelAddress, without_addresses

RETRYABLE_STATUSES = frozenset({408, 409, 429})
# Codes of a 429 that no retry resolves.
_FINAL_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_CALLERS_FAULTS = frozenset({BAD_QUESTION, CONTEXT_TOO_LONG})
_MEANINGS = {
    RATE_LIMITED: RATE_LIMITED,
    "rate_limit_error": RATE_LIMITED,
    "overloaded_error": UNAVAILABLE,
}
"""Our error codes for codes of providers that a client can act on."""
# Those of a proxy in front of the provider are among them; 529 is Anthropic's.
_OVERLOADED_STATUSES = frozenset({502, 503, 504, 529})
_BAD_QUESTIONS = frozenset({400, 413, 415, 422})
_HINT_REFUSALS = frozenset({400, 422})
_TOO_LONG_WORDS = ("context length", "context window", "context size", "prompt is too long", "input is too long")
_RETRYABLE_CODES = frozenset(
    {"server_error", "rate_limit_exceeded", "rate_limit_error", "overloaded_error", "api_error", "timeout_error"}
)


def refusal_error(
    address: ModelAddress, status: int, headers: Mapping[str, str], body: bytes, *, proxy: str = ""
) -> ModelError:
    """Build the error for a response with an error status. `proxy`: the host of the proxy in between, if any."""
    message, code = _parse_refusal_body(body)
    wait = parse_retry_after(headers)
    title = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "unknown status"
    what = address.redact(f"it answered {status} {title}" + (f": {message}" if message else ""))
    advice = _advice(address, status, wait, proxy)
    is_too_long = status < HTTPStatus.INTERNAL_SERVER_ERROR and _is_too_long(message, code)
    our_code = CONTEXT_TOO_LONG if is_too_long else _code_for_status(status)
    return ModelError(
        f"{address.description}: {what.rstrip('.')}." + (f" {advice}" if advice else ""),
        provider=address.provider,
        status=status,
        retry_after=wait,
        is_retryable=_is_retryable(status, headers, code),
        code=our_code,
        public_text=_public_refusal(address, message) if our_code in _CALLERS_FAULTS else "",
    )


def _public_refusal(address: ModelAddress, message: str) -> str:
    """Return the text for a caller that can correct its request, for which it has to read what the provider says."""
    said = without_addresses(address.redact(message), address.host).rstrip(".")
    return f"The model does not accept the request: {said}." if said else ""


def _code_for_status(status: int) -> str:
    """Return OpenAI's code for an error that a client can act on; empty for one that only the operator can."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RATE_LIMITED
    if status in _OVERLOADED_STATUSES:
        return UNAVAILABLE
    return BAD_QUESTION if status in _BAD_QUESTIONS else ""


def stream_error(address: ModelAddress, error: Any) -> ModelError:
    """Build the error for an error event inside a stream, in any of the forms that servers use."""
    message, code = _read_message_and_code(error)
    return address.error(
        f"it reported an error in the middle of its answer: {message or 'without a reason'}",
        is_retryable=code in _RETRYABLE_CODES,
        code=CONTEXT_TOO_LONG if _is_too_long(message, code) else _MEANINGS.get(code, ""),
    )


def find_refused_hints(error: ModelError, names: Iterable[str]) -> frozenset[str]:
    """Return those of the names that an error of the server is about, if it has refused the request.

    Hints change no answer, so that the request can be sent again without those that a server refuses as unknown.
    """
    if error.status not in _HINT_REFUSALS:
        return frozenset()
    text = str(error)
    return frozenset(name for name in names if re.search(rf"\b{name}\b", text) is not None)


def _is_too_long(message: str, code: str) -> bool:
    """Return whether the conversation exceeds the context window: OpenAI has a code for it, others only a message."""
    lowered = message.lower()
    return code == CONTEXT_TOO_LONG or any(phrase in lowered for phrase in _TOO_LONG_WORDS)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in `retry-after-ms` or `retry-after`, which may be a number or a date; None without them."""
    milliseconds = _parse_seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _parse_seconds(value)
    if seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _parse_seconds(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else -1.0
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _is_retryable(status: int, headers: Mapping[str, str], code: str) -> bool:
    wish = headers.get("x-should-retry")
    if wish in {"true", "false"}:
        return wish == "true"
    return (status in RETRYABLE_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR) and code not in _FINAL_CODES


def _advice(address: ModelAddress, status: int, wait: float | None, proxy: str) -> str:
    # A 403 may come from the API or from the proxy.
    if status == HTTPStatus.FORBIDDEN and proxy:
        return f"Check the key in {address.key_source}, and whether the proxy at {proxy} lets this model be asked."
    if status in {401, 403}:
        return f"Check the key in {address.key_source}."
    if status == HTTPStatus.NOT_FOUND:
        if address.provider == "ollama":
            return f"Check the name of the model ('ollama pull {address.model}' fetches it) and the endpoint."
        return "Check the name of the model and the path of the endpoint (most servers want /v1 at its end)."
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return f"Ask again in {wait:.0f} s." if wait is not None else "Ask again later, or raise the limit there."
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "The conversation with its images is too big for this server."
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return "Redirects are not followed: write the final address as the endpoint."
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "The fault is on its side: ask again later."
    return ""


def _parse_refusal_body(body: bytes) -> tuple[str, str]:
    """Return the message and the code in the body of an error response, which may have any form."""
    try:
        document = parse_json(body)
    except ValueError:
        text = body.decode("utf-8", "replace").strip()
        return ("a web page instead of JSON" if text.startswith("<") else text), ""
    # Google's endpoints wrap the error in a list.
    if isinstance(document, list) and document:
        document = document[0]
    if isinstance(document, dict):
        return _read_message_and_code(document.get("error", document))
    return _read_message_and_code(document)


def _read_message_and_code(error: Any) -> tuple[str, str]:
    if isinstance(error, str):
        return error, ""
    if not isinstance(error, dict):
        return "", ""
    value = next((error[key] for key in ("message", "detail", "msg", "error") if error.get(key)), "")
    code = error.get("code") or error.get("type") or ""
    message = value if isinstance(value, str) else orjson.dumps(value).decode()
    if isinstance(code, str) and code and code not in message:
        message = f"{message} ({code})" if message else code
    return message, code if isinstance(code, str) else ""
