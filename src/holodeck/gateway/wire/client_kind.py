"""Which of the two contracts a client speaks, by its headers: OpenAI's packages know only OpenAI's event names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

ClientKind = Literal["openai", "openai_agents", "open_responses"]
"""Where the two contracts differ: the names of reasoning events, and the schema in the echo of `text.format`.

`openai_agents` is OpenAI's, as programs speak it that take every `function_call` for a function of their own.
"""
REASONING_EVENT_NAMES: dict[ClientKind, str] = {
    "openai": "response.reasoning_text",
    "openai_agents": "response.reasoning_text",
    "open_responses": "response.reasoning",
}
_AGENT_NAMES = ("Agents/", "ai-sdk/", "langchainjs-openai/", "codex_", "pydantic-ai/")
"""How OpenAI's own agents, the AI SDK of Vercel, LangChain's for JavaScript, Codex and Pydantic AI name themselves."""


def detect_client_kind(headers: Mapping[str, str]) -> ClientKind:
    """What the sender of these headers speaks; their names are in lower case."""
    agent = headers.get("user-agent", "")
    if any(name in agent for name in _AGENT_NAMES):
        return "openai_agents"
    return "openai" if "x-stainless-lang" in headers or "OpenAI/" in agent else "open_responses"


def adapt_events(events: Sequence[bytes], client_kind: ClientKind) -> list[bytes]:
    """Events that may have been written for another client, for this one."""
    wrong, right = (
        _EVENT_PREFIXES["openai" if client_kind == "open_responses" else "open_responses"],
        _EVENT_PREFIXES[client_kind],
    )
    return [right + each[len(wrong) :] if each.startswith(wrong) else each for each in events]


_EVENT_PREFIXES = {dialect: f'{{"type":"{name}.'.encode() for dialect, name in REASONING_EVENT_NAMES.items()}
