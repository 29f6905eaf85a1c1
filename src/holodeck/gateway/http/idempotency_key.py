"""The header `Idempotency-Key`: a request that is sent again with it has the response that it had the first time."""

from __future__ import annotations

import hashlib
from typing import Any

from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.request import Request
from holodeck.lib.errors import BadRequestError
from holodeck.storage.idempotency_keys import IdempotencyKey

IDEMPOTENCY_KEY = "idempotency-key"
# As much as other APIs allow: a UUID has 36.
MAX_KEY_CHARS = 255
REPLAYED_HEADER = {"idempotent-replayed": "true"}
"""The header of a reply that another request was answered with before."""


def read_idempotency_key(request: Request, body: Any) -> IdempotencyKey:
    """Return the key of a request that has one. Raises `BadRequestError` where it cannot be used."""
    value = request.headers[IDEMPOTENCY_KEY]
    if not value or len(value) > MAX_KEY_CHARS or not (value.isascii() and value.isprintable()):
        message = f"The header 'Idempotency-Key' has 1 to {MAX_KEY_CHARS} printable characters of ASCII."
        raise BadRequestError(message, code="invalid_value", param="Idempotency-Key")
    if isinstance(body, dict) and body.get("store") is False:
        message = "The header 'Idempotency-Key' needs 'store': true: what is not stored cannot be returned again."
        raise BadRequestError(message, code="invalid_value", param="Idempotency-Key")
    return IdempotencyKey(owner=request.caller.id, value=value, digest=hashlib.sha256(request.body).digest())


def check_same_request(key: IdempotencyKey, stored: IdempotencyKey) -> None:
    """Raise `APIError` 422 if a key was first sent with another body."""
    if key.digest != stored.digest:
        message = "This 'Idempotency-Key' was sent with another body before. Use a new key for another request."
        raise APIError(422, message, kind="invalid_request", code="idempotency_key_reused")
