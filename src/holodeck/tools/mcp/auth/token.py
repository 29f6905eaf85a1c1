"""An access token that knows when it grows old, and what a token endpoint's answer means."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holodeck.lib.limits import MAX_SHOWN_CHARS, TOKEN_LEEWAY, TOKEN_LEEWAY_SHARE
from holodeck.lib.redaction import MASK
from holodeck.lib.secret import Secret
from holodeck.tools.mcp.auth.auth_http import AuthResponse, display_url
from holodeck.tools.mcp.auth.provider import auth_error

ISSUED = (200, 201)


@dataclass(frozen=True, kw_only=True)
class Token:
    """What a server accepts as proof, for a while."""

    value: Secret
    expires_at: float | None = None
    """By the wall clock. None: until a server refuses it."""
    renew_at: float | None = None
    """A little before `expires_at`."""
    scope: str | None = None

    def is_fresh(self, now: float) -> bool:
        return self.renew_at is None or now < self.renew_at

    def is_valid(self, now: float) -> bool:
        return self.expires_at is None or now < self.expires_at

    @property
    def authorization(self) -> str:
        return f"Bearer {self.value.reveal()}"


def build_token(value: str, *, issued_at: float, lifetime: float | None, scope: str | None = None) -> Token:
    if lifetime is None:
        return Token(value=Secret(value), scope=scope)
    expires_at = issued_at + lifetime
    leeway = min(TOKEN_LEEWAY, lifetime * TOKEN_LEEWAY_SHARE)
    return Token(value=Secret(value), expires_at=expires_at, renew_at=expires_at - leeway, scope=scope)


def read_token(
    answer: AuthResponse,
    *,
    server: str,
    endpoint: str,
    now: float,
    secrets: Iterable[Secret] = (),
    kind: str = "bearer",
) -> Token:
    """The token in an answer, or an error that says what the endpoint did. `secrets` are cut out of its words."""
    where = f"the token endpoint {display_url(endpoint)}"
    content = answer.json()
    if answer.status not in ISSUED:
        raise auth_error(
            server, f"{where} answered {answer.status}{_read_reason(content, secrets)}.", status=answer.status
        )
    if content is None:
        raise auth_error(server, f"{where} answered {answer.status} with something that is not a JSON object.")
    value = content.get("access_token")
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise auth_error(server, f"{where} answered {answer.status} without a usable 'access_token'.")
    if str(content.get("token_type", kind)).lower() != kind:
        raise auth_error(server, f"{where} issued a token that is not of the kind '{kind}', which cannot be used.")
    scope = content.get("scope")
    return build_token(
        value,
        issued_at=now,
        lifetime=read_lifetime(content.get("expires_in")),
        scope=scope if isinstance(scope, str) else None,
    )


def read_lifetime(value: Any) -> float | None:
    """Seconds, from a number or (as some servers send it) its text. What makes no sense is no promise."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 and not isinstance(value, bool) else None


def _read_reason(content: dict[str, Any] | None, secrets: Iterable[Secret]) -> str:
    if content is None:
        return ""
    words = [content[key] for key in ("error", "error_description") if isinstance(content.get(key), str)]
    text = ": ".join(words)
    # An endpoint may quote what it was sent.
    for secret in secrets:
        if secret:
            text = text.replace(secret.reveal(), MASK)
    clean = "".join(char if char.isprintable() else " " for char in text)[: 4 * MAX_SHOWN_CHARS]
    return f" ({clean.rstrip('.')})" if clean else ""
