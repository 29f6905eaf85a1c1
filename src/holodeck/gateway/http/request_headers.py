"""The headers of a request, and the rule that some of them occur once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from holodeck.gateway.http.asgi import Scope
from holodeck.gateway.http.errors import APIError

# Headers that decide what a request may do, or where it ends. They may occur once.
_SINGLE_HEADERS = frozenset(
    (
        *(b"host", b"origin", b"authorization", b"x-api-key", b"api-key"),
        *(b"content-length", b"content-type", b"idempotency-key"),
    )
)


def decode_headers(scope: Scope) -> dict[str, str]:
    """The headers by their names. Of a repeated one, the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def check_duplicate_headers(scope: Scope, headers: Mapping[str, str]) -> None:
    """Raise `APIError` for a repeated header that may occur once: a proxy may have used the other value."""
    if len(headers) == len(scope["headers"]):
        return
    for name, count in Counter(name for name, _ in scope["headers"]).items():
        if count > 1 and name in _SINGLE_HEADERS:
            message = f"The header '{name.decode()}' is there {count} times. Send it once."
            raise APIError(400, message, kind="invalid_request", code="duplicate_header")
