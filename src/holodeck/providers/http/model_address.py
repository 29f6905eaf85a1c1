"""The address of a model: its name in errors, its URL, and the redaction of quoted text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import urlsplit, urlunsplit

from holodeck.lib.errors import ModelError
from holodeck.lib.escape import one_line
from holodeck.lib.record import record
from holodeck.lib.redaction import MASK
from holodeck.lib.secret import Secret

# Characters of a provider's message quoted in an error.
MAX_MODEL_ERROR_CHARS = 500
# A shorter key is a placeholder, and masking it would mask ordinary words.
_MIN_SECRET_CHARS = 4
NO_HEADERS: Mapping[str, Secret] = {}
_KEY_SHAPES = re.compile(r"\bsk-[\w*.-]{6,}|(?<=[Bb]earer )[\w*.~+/=-]{6,}")

_URLS = re.compile(r"\b(?:https?|wss?)://[^\s'\"<>)]+")


@record
class ModelAddress:
    """The model that a request went to, as errors describe it."""

    provider: str
    model: str
    host: str
    key: Secret | None = None
    key_source: str = "model.api_key"
    """Where the key is configured: a variable or a key of the file."""
    extra_headers: Mapping[str, Secret] = field(default_factory=lambda: NO_HEADERS)
    """Headers of the file, which are sent with every request."""

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
        """Build a `ModelError` about this model; `what` is redacted, and no caller of a gateway reads it."""
        return ModelError(
            f"{self.description}: {self.redact(what)}",
            provider=self.provider,
            status=status,
            retry_after=retry_after,
            is_retryable=is_retryable,
            code=code,
        )

    def redact(self, text: str) -> str:
        """Return untrusted text without secrets, on one line, cut to `MAX_MODEL_ERROR_CHARS`."""
        for secret in (self.key, *self.extra_headers.values()):
            if secret is not None and len(secret.reveal()) >= _MIN_SECRET_CHARS:
                text = text.replace(secret.reveal(), MASK)
        return one_line(_KEY_SHAPES.sub(MASK, text), MAX_MODEL_ERROR_CHARS)


def without_addresses(text: str, host: str) -> str:
    """Return a provider's text without URLs and without the host of the model, for callers of a gateway."""
    text = _URLS.sub("[address]", text)
    name = host.rpartition(":")[0] or host
    return text.replace(host, "[address]").replace(name, "[address]") if len(name) > 1 else text


def host_of(url: str) -> str:
    """Return host and port of a URL, for messages: its query may contain a key."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "?", parts.port
    except ValueError:
        # The first request reports that it is no URL.
        return "?"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def append_path(base_url: str, path: str) -> str:
    """Append a path to a URL, unless it ends with it already; the query is preserved."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return base_url
    base = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=base if base.endswith(path) else base + path))
