"""Where a model is asked: what its errors call it, how its URL is made, and what of it may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from holodeck.lib.errors import ModelError
from holodeck.lib.escape import one_line
from holodeck.lib.redaction import MASK
from holodeck.lib.secret import Secret

# Of a provider's words quoted in an error.
MAX_MODEL_ERROR_CHARS = 500


_MIN_SECRET_CHARS = 4  # shorter "keys" are placeholders, and hiding them would hide ordinary words
_KEY_SHAPES = re.compile(r"\bsk-[\w*.-]{6,}|(?<=[Bb]earer )[\w*.~+/=-]{6,}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAddress:
    """Who was asked: all that an error needs to name."""

    provider: str
    model: str
    host: str
    key: Secret | None = None
    key_source: str = "model.api_key"
    """Where a person puts the key right."""

    @property
    def description(self) -> str:
        return f"Model '{self.model}' at {self.host} ({self.provider})"

    def error(
        self,
        what: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        is_retryable: bool = False,
        code: str = "",
    ) -> ModelError:
        """The error that says this about this model."""
        return ModelError(
            f"{self.description}: {self.redact(what)}",
            provider=self.provider,
            status=status,
            retry_after=retry_after,
            is_retryable=is_retryable,
            code=code,
        )

    def redact(self, text: str) -> str:
        """Words from outside: without secrets, on one line, not too long."""
        if self.key is not None and len(self.key.reveal()) >= _MIN_SECRET_CHARS:
            text = text.replace(self.key.reveal(), MASK)
        return one_line(_KEY_SHAPES.sub(MASK, text), MAX_MODEL_ERROR_CHARS)


def host_of(url: str) -> str:
    """Host and port: all of a URL that is shown, since its query may hold a key."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "?", parts.port
    except ValueError:  # whoever is asked there hears that it is no URL
        return "?"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def append_path(base_url: str, path: str) -> str:
    """The base URL with a path at its end, unless it has that already; its query stays."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return base_url
    base = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=base if base.endswith(path) else base + path))


def bearer_headers(api_key: Secret | None) -> Mapping[str, str]:
    """The header with the key, if there is one."""
    return {"Authorization": f"Bearer {api_key.reveal()}"} if api_key else {}
