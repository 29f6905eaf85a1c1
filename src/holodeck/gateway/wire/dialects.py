"""Which of the two contracts a client speaks, by its headers: OpenAI's packages know only OpenAI's event names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Dialect = Literal["openai", "open_responses"]
"""Where the two contracts differ: the names of reasoning events, and the schema in the echo of `text.format`."""
REASONING_NAMES: dict[Dialect, str] = {"openai": "response.reasoning_text", "open_responses": "response.reasoning"}


def dialect_of(headers: Mapping[str, str]) -> Dialect:
    """What the sender of these headers speaks; their names are in lower case."""
    is_openai = "x-stainless-lang" in headers or "OpenAI/" in headers.get("user-agent", "")
    return "openai" if is_openai else "open_responses"


def in_dialect(payloads: Sequence[bytes], dialect: Dialect) -> list[bytes]:
    """Events that may have been written for another client, for this one."""
    wrong, right = _STARTS["open_responses" if dialect == "openai" else "openai"], _STARTS[dialect]
    return [right + each[len(wrong) :] if each.startswith(wrong) else each for each in payloads]


_STARTS = {dialect: f'{{"type":"{name}.'.encode() for dialect, name in REASONING_NAMES.items()}
