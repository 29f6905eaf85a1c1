"""Client kinds: the differences between the programs that call the Responses API, detected by their headers.

OpenAI's packages know only OpenAI's event names. The Open Responses contract has other names for reasoning events, and
no schema in the echo of `text.format`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

ClientKind = Literal["openai", "open_responses"]
REASONING_EVENT_NAMES: dict[ClientKind, str] = {
    "openai": "response.reasoning_text",
    "open_responses": "response.reasoning",
}
# Parts of the User-Agent of programs that know OpenAI's events and may send no `x-stainless-lang`.
_OPENAI_NAME = re.compile(r"OpenAI/|codex_|ai-sdk/")
_EVENT_PREFIXES = {kind: f'{{"type":"{name}.'.encode() for kind, name in REASONING_EVENT_NAMES.items()}


def detect_client_kind(headers: Mapping[str, str]) -> ClientKind:
    """Detect the client kind from request headers, whose names are in lower case."""
    if "x-stainless-lang" in headers or _OPENAI_NAME.search(headers.get("user-agent", "")):
        return "openai"
    return "open_responses"


def adapt_events(events: Sequence[bytes], client_kind: ClientKind) -> list[bytes]:
    """Rename the reasoning events among encoded events that may have been written for another client kind."""
    wrong, right = (
        _EVENT_PREFIXES["openai" if client_kind == "open_responses" else "open_responses"],
        _EVENT_PREFIXES[client_kind],
    )
    return [right + each[len(wrong) :] if each.startswith(wrong) else each for each in events]
