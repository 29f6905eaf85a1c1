"""A prompt that a server filled in: messages with a role each, ready for a conversation."""

from __future__ import annotations

from dataclasses import dataclass

from holodeck.models.content import ContentBlock
from holodeck.tools.mcp.content import blocks_of, describe_block
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.versions import mapping


@dataclass(frozen=True, kw_only=True)
class PromptMessage:
    """One message of a prompt."""

    role: str
    content: list[ContentBlock]

    @property
    def text(self) -> str:
        return "\n".join(describe_block(block) for block in self.content)


@dataclass(frozen=True, kw_only=True)
class PromptResult:
    """What a prompt became."""

    messages: list[PromptMessage]
    description: str | None = None

    @property
    def text(self) -> str:
        """All messages as one text."""
        return "\n\n".join(message.text for message in self.messages)


def prompt_of(answer: Message) -> PromptResult:
    """The prompt in the answer to `prompts/get`; what is not a message is left out."""
    messages: list[PromptMessage] = []
    listed = answer.get("messages")
    for item in listed if isinstance(listed, list) else []:
        content = mapping(item).get("content")
        blocks, _ = blocks_of(content if isinstance(content, list) else [content])
        role = mapping(item).get("role")
        messages.append(PromptMessage(role=role if role in ("user", "assistant") else "user", content=blocks))
    description = answer.get("description")
    return PromptResult(messages=messages, description=description if isinstance(description, str) else None)
