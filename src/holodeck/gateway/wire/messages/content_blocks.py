"""`system` and `messages` of the Messages API, built into items.

A `tool_use` block becomes a call and a `tool_result` block its output; all other blocks become parts of messages, or
reasoning. A block type that only Anthropic's own servers can fill is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from holodeck.gateway.api.model import APIModel
from holodeck.gateway.api.models.message_blocks import (
    MESSAGE_MODELS,
    AnswerMessage,
    DocumentContent,
    DocumentData,
    DocumentLocation,
    DocumentText,
    FetchedPage,
    FoundPage,
    ImageLocation,
    MessagesDocument,
    MessagesImage,
    MessagesRedactedThinking,
    MessagesSearchResult,
    MessagesSentThinking,
    MessagesServerToolResult,
    MessagesServerToolUse,
    MessagesText,
    MessagesToolResult,
    MessagesToolUse,
    MessagesWebFetchResult,
    MessagesWebSearchResult,
    MessagesWebToolUse,
    PartBlock,
    SystemMessage,
    UserMessage,
)
from holodeck.gateway.wire.messages.server_blocks import OWN_CONTENT
from holodeck.gateway.wire.request.content_parts import mark_link
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.parsed_input import Input, plain_tool_name
from holodeck.gateway.wire.request.validation import read_body, require_kind
from holodeck.models.items import (
    CacheMark,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Message,
    Part,
    Reasoning,
    Role,
    TextContent,
)

CACHE_FIELD = "cache_control"
"""The mark of a block for the prompt cache of the model's provider."""
_BETWEEN_BLOCKS = TextContent(text="\n\n")
# What Anthropic's models call their reasoning; see `Reasoning.opaque`.
_ANTHROPIC_KEY = "anthropic"
SIGNATURE_PREFIX = "rs_"
"""Begins the signatures that this gateway gives: the ids of reasoning items, whose content it remembers."""


def build_system(system: str | Sequence[MessagesText] | None) -> Message | None:
    """Build one message from `system`, a text or text blocks. Its blocks are joined by empty lines.

    Blocks with marks stay parts, with the empty lines between them as parts of their own.
    """
    if not system:
        return None
    if isinstance(system, str):
        return Message(role="system", content=(TextContent(text=system),))
    parts = [TextContent(text=block.text, cache_mark=_mark_of(block)) for block in system if block.text]
    content = [each for part in parts for each in (_BETWEEN_BLOCKS, part)][1:]
    if not any(part.cache_mark for part in parts):
        content = [TextContent(text="".join(part.text for part in content))] if content else []
    return Message(role="system", content=tuple(content)) if content else None


def read_messages(messages: Sequence[object]) -> Input:
    """Read `messages` into items. Raises `BadRequestError`, which names the field."""
    into = Input(
        list_file_paths=lambda: dict(_list_document_urls(messages, "messages")),
        file_advice="send it as a source of the type 'base64'",
    )
    for index, value in enumerate(messages):
        where = f"messages[{index}]"
        message: Any = read_body(require_kind(value, where, MESSAGE_MODELS, "role"), value, where)
        _add_message(message, where, into)
    if not into.items:
        refuse("Invalid 'messages': there is nothing that a model could answer.", "messages", "empty_array")
    return into


def _list_document_urls(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the URL of each document with the path of its field."""
    for index, each in enumerate(value if isinstance(value, list) else ()):
        where, source = f"{path}[{index}]", each.get("source")
        if isinstance(source, dict) and each.get("type") == "document" and source.get("type") == "url":
            yield source["url"], f"{where}.source.url"
        yield from _list_document_urls(each.get("content"), f"{where}.content")


def _add_message(message: UserMessage | AnswerMessage | SystemMessage, where: str, into: Input) -> None:
    """Add the blocks of a message. Neighbouring parts stay one message; calls and outputs are items of their own."""
    role, content = message.role, message.content
    if isinstance(content, str):
        into.items.append(Message(role=role, content=(TextContent(text=content),)))
        return
    parts: list[Part] = []
    for index, block in enumerate(content):
        at = f"{where}.content[{index}]"
        if isinstance(block, PartBlock):
            parts += _build_parts(block, at)
            continue
        _append_message(parts, role, into)
        item, mark = _ITEM_BUILDERS[type(block)](block, at), _mark_of(block)
        # The API has no marks for thinking.
        into.items.append(item if mark is None or isinstance(item, Reasoning) else replace(item, cache_mark=mark))
        if isinstance(block, MessagesServerToolUse | MessagesWebToolUse):
            into.shown_calls.add(block.id)
    _append_message(parts, role, into)


def _append_message(parts: list[Part], role: Role, into: Input) -> None:
    if parts:
        into.items.append(Message(role=role, content=tuple(parts)))
        parts.clear()


def _mark_of(block: Any) -> CacheMark | None:
    return None if block.cache_control is None else {CACHE_FIELD: block.cache_control}


def _build_parts(block: PartBlock, where: str) -> list[Part]:
    """Build the parts of a block, the last of them with its mark."""
    if isinstance(block, MessagesText):
        return [TextContent(text=block.text, cache_mark=_mark_of(block))]
    if isinstance(block, MessagesImage):
        source = block.source
        if isinstance(source, ImageLocation):
            url = mark_link(source.url, f"{where}.source.url")
        else:
            url = f"data:{source.media_type};base64,{source.data}"
        return [ImageLink(url=url, cache_mark=_mark_of(block))]
    parts = _build_document(block, where) if isinstance(block, MessagesDocument) else _build_result(block, where)
    mark = _mark_of(block)
    if mark is not None and parts and isinstance(parts[-1], TextContent | ImageLink | FileData):
        parts[-1] = replace(parts[-1], cache_mark=mark)
    return parts


def _build_document(block: MessagesDocument, where: str) -> list[Part]:
    """Build a document: a PDF stays a file, and a text becomes part of the message. Both begin with their context."""
    title, source = block.title, block.source
    is_text = isinstance(source, DocumentText | DocumentContent)
    about = [text for text in (title if is_text else None, block.context) if text]
    parts: list[Part] = [TextContent(text="\n\n".join(about))] if about else []
    match source:
        case DocumentLocation(url=url):
            parts.append(FileData(url=url, filename=title))
        case DocumentData(media_type=kind, data=data):
            parts.append(FileData(url=f"data:{kind};base64,{data}", filename=title or "document.pdf"))
        case DocumentText(data=data):
            parts.append(TextContent(text=data))
        case DocumentContent(content=str() as text):
            parts.append(TextContent(text=text))
        case DocumentContent(content=blocks):
            parts += _build_all(blocks or (), f"{where}.source.content")
    return parts


def _build_result(block: MessagesSearchResult, where: str) -> list[Part]:
    return [TextContent(text=f"{block.title}\n{block.source}"), *_build_all(block.content or (), f"{where}.content")]


def _build_all(blocks: Iterable[Any], where: str) -> list[Part]:
    return [part for index, block in enumerate(blocks) for part in _build_parts(block, f"{where}[{index}]")]


def _build_call(block: MessagesToolUse, where: str) -> FunctionCall:
    return FunctionCall(call_id=block.id, name=block.name, arguments=orjson.dumps(block.input or {}).decode())


def _build_server_call(block: MessagesServerToolUse, where: str) -> FunctionCall:
    """Build a call of a declared MCP server, which the gateway has run."""
    return replace(_build_call(block, where), name=plain_tool_name(block.server_name, block.name))


def _build_output(block: MessagesToolResult | MessagesServerToolResult, where: str) -> FunctionCallOutput:
    content: Sequence[Part] = (
        (TextContent(text=block.content or ""),)
        if block.content is None or isinstance(block.content, str)
        else _build_all(block.content, f"{where}.content")
    )
    return FunctionCallOutput(call_id=block.tool_use_id, content=tuple(content), is_error=block.is_error or False)


def _build_web_output(block: MessagesWebSearchResult | MessagesWebFetchResult, where: str) -> FunctionCallOutput:
    """Build the result of a web tool: the results of a search, a page, or the code of an error."""
    found, is_error = block.content, False
    content: list[Part]
    if isinstance(found, list):
        content = [part for page in found for part in _build_found_page(page)]
    elif isinstance(found, FetchedPage):
        content = _build_parts(found.content, f"{where}.content.content")
    else:
        content, is_error = [TextContent(text=found.error_code)], True
    return FunctionCallOutput(call_id=block.tool_use_id, content=tuple(content), is_error=is_error)


def _build_found_page(page: FoundPage) -> list[Part]:
    """Return what a result carries of the text of its search, or of Anthropic's servers, its title and its URL."""
    opaque = page.encrypted_content
    text = opaque.removeprefix(OWN_CONTENT) if opaque.startswith(OWN_CONTENT) else f"{page.title}\n{page.url}"
    return [TextContent(text=text)] if text else []


def _build_thinking(block: MessagesSentThinking, where: str) -> Reasoning:
    text, signature = block.thinking, block.signature
    if signature.startswith(SIGNATURE_PREFIX):
        return Reasoning(text=text, id=signature)
    # Signed by an Anthropic model in a conversation that began elsewhere.
    signed = {"type": "thinking", "thinking": text, "signature": signature}
    return Reasoning(text=text, opaque={_ANTHROPIC_KEY: signed} if signature else {})


def _build_redacted_thinking(block: MessagesRedactedThinking, where: str) -> Reasoning:
    return Reasoning(opaque={_ANTHROPIC_KEY: {"type": "redacted_thinking", "data": block.data}})


_ITEM_BUILDERS: Mapping[type[APIModel], Callable[[Any, str], FunctionCall | FunctionCallOutput | Reasoning]] = {
    MessagesToolUse: _build_call,
    MessagesWebToolUse: _build_call,
    MessagesServerToolUse: _build_server_call,
    MessagesToolResult: _build_output,
    MessagesServerToolResult: _build_output,
    MessagesWebSearchResult: _build_web_output,
    MessagesWebFetchResult: _build_web_output,
    MessagesSentThinking: _build_thinking,
    MessagesRedactedThinking: _build_redacted_thinking,
}
