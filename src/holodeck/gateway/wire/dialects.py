"""Which of the two contracts a client speaks, by its headers: OpenAI's packages know only OpenAI's event names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Dialect = Literal["openai", "openai_agents", "open_responses"]
"""Where the two contracts differ: the names of reasoning events, and the schema in the echo of `text.format`.

`openai_agents` is OpenAI's, as programs speak it that take every `function_call` for a function of their own.
"""
REASONING_NAMES: dict[Dialect, str] = {
    "openai": "response.reasoning_text",
    "openai_agents": "response.reasoning_text",
    "open_responses": "response.reasoning",
}
_AGENTS = ("Agents/", "ai-sdk/", "langchainjs-openai/", "codex_", "pydantic-ai/")
"""How OpenAI's own agents, the AI SDK of Vercel, LangChain's for JavaScript, Codex and Pydantic AI name themselves."""


def dialect_of(headers: Mapping[str, str]) -> Dialect:
    """What the sender of these headers speaks; their names are in lower case."""
    agent = headers.get("user-agent", "")
    if any(name in agent for name in _AGENTS):
        return "openai_agents"
    return "openai" if "x-stainless-lang" in headers or "OpenAI/" in agent else "open_responses"


def in_dialect(payloads: Sequence[bytes], dialect: Dialect) -> list[bytes]:
    """Events that may have been written for another client, for this one."""
    wrong, right = _STARTS["openai" if dialect == "open_responses" else "open_responses"], _STARTS[dialect]
    return [right + each[len(wrong) :] if each.startswith(wrong) else each for each in payloads]


_STARTS = {dialect: f'{{"type":"{name}.'.encode() for dialect, name in REASONING_NAMES.items()}
