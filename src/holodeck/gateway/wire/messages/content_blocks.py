"""`system` and `messages` of the Messages API, read into items.

A `tool_use` block becomes a call and a `tool_result` block its output; all other blocks become parts of messages, or
reasoning. A block type that only Anthropic's own servers can fill is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import orjson

from holodeck.gateway.wire.messages.field_table import NO_CITATIONS, NO_FILES, NO_SERVER_BLOCKS
from holodeck.gateway.wire.messages.server_blocks import OWN_CONTENT, WEB_TOOLS
from holodeck.gateway.wire.request.content_parts import read_image_url
from holodeck.gateway.wire.request.json_fields import JSONFields, refuse, refuse_choice, refuse_type, refuse_unsupported
from holodeck.gateway.wire.request.parsed_input import Input, plain_tool_name
from holodeck.lib.limits import (
    MAX_CALL_ID_CHARS,
    MAX_FILE_DATA_CHARS,
    MAX_INPUT_TEXT_CHARS,
    MAX_TOOL_NAME_CHARS,
)
from holodeck.models.content import TextContent
from holodeck.models.items import FileData, FunctionCall, FunctionCallOutput, ImageLink, Message, Part, Reasoning, Role

ROLES = ("user", "assistant", "system")
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
PDF_TYPE = "application/pdf"
_PART_TYPES = ("text", "image", "document", "search_result")
USER_BLOCK_TYPES = (*_PART_TYPES, "tool_result")
ASSISTANT_BLOCK_TYPES = (
    *("text", "thinking", "redacted_thinking", "tool_use", "mcp_tool_use", "mcp_tool_result"),
    *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result"),
)
SOURCE_TYPES = ("base64", "url", "text", "content")
CACHE_FIELD = "cache_control"
"""The mark of a block for the prompt cache of the model's provider."""
_BETWEEN_BLOCKS = TextContent(text="\n\n")
# What Anthropic's models call their reasoning; see `Reasoning.opaque`.
_ANTHROPIC_KEY = "anthropic"
_SHOWN_CALLS = ("mcp_tool_use", "server_tool_use")
SIGNATURE_PREFIX = "rs_"
"""Begins the signatures that this gateway gives: the ids of reasoning items, whose content it remembers."""


def read_system(value: object) -> Message | None:
    """Read `system`, a text or text blocks, into one message. Its blocks are joined by empty lines.

    Blocks with marks stay parts, with the empty lines between them as parts of their own.
    """
    if value is None:
        return None
    fields = JSONFields({"system": value})
    if isinstance(value, str):
        text = fields.get_text("system", max_length=MAX_INPUT_TEXT_CHARS)
        return Message(role="system", content=(TextContent(text=text),)) if text else None
    if not isinstance(value, list):
        refuse_type("system", "a string or an array of text blocks", value)
    parts = [part for part in _read_parts(fields, "system", ("text",)) if isinstance(part, TextContent) and part.text]
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
        message = JSONFields(value, f"messages[{index}]")
        role = message.get_choice("role", ROLES) or message.refuse_missing("role")
        _read_message(message, cast(Role, role), into)
        message.refuse_unread()
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


def _read_message(message: JSONFields, role: Role, into: Input) -> None:
    """Read the blocks of a message. Neighbouring parts stay one message; calls and outputs are items of their own."""
    value = message.value.get("content")
    if isinstance(value, str):
        text = message.require_text("content", max_length=MAX_INPUT_TEXT_CHARS)
        into.items.append(Message(role=role, content=(TextContent(text=text),)))
        return
    if value is None:
        message.refuse_missing("content")
    if not isinstance(value, list):
        refuse_type(message.path_of("content"), "a string or an array of blocks", value)
    kinds = ASSISTANT_BLOCK_TYPES if role == "assistant" else USER_BLOCK_TYPES if role == "user" else ("text",)
    parts: list[Part] = []
    for block in message.iter_objects("content"):
        kind = _read_block_type(block, kinds)
        if kind in _ITEM_READERS:
            _append_message(parts, role, into)
            item = _finish_item(block, _ITEM_READERS[kind](block))
            into.items.append(item)
            if kind in _SHOWN_CALLS and isinstance(item, FunctionCall):
                into.shown_calls.add(item.call_id)
        else:
            parts += _finish_parts(block, _PART_READERS[kind](block))
    _append_message(parts, role, into)


def _append_message(parts: list[Part], role: Role, into: Input) -> None:
    if parts:
        into.items.append(Message(role=role, content=tuple(parts)))
        parts.clear()


def _read_block_type(block: JSONFields, kinds: tuple[str, ...]) -> str:
    kind = block.require_text("type")
    if kind not in kinds:
        is_of_server = "server_tool" in kind or kind.endswith("_tool_result") or kind.startswith("mcp_")
        refuse_choice(block.path_of("type"), kind, kinds, advice=NO_SERVER_BLOCKS if is_of_server else "")
    return kind


def _finish_item(
    block: JSONFields, item: FunctionCall | FunctionCallOutput | Reasoning
) -> FunctionCall | FunctionCallOutput | Reasoning:
    """Return the item of a block with its mark, and refuse what is unread of the block."""
    mark = block.get_cache_mark(CACHE_FIELD)
    block.refuse_unread()
    # The API has no marks for thinking.
    return item if mark is None or isinstance(item, Reasoning) else replace(item, cache_mark=mark)


def _finish_parts(block: JSONFields, parts: list[Part]) -> list[Part]:
    """Return the parts of a block, the last of them with its mark, and refuse what is unread of the block."""
    mark = block.get_cache_mark(CACHE_FIELD)
    block.refuse_unread()
    if mark is not None and parts and isinstance(parts[-1], TextContent | ImageLink | FileData):
        parts[-1] = replace(parts[-1], cache_mark=mark)
    return parts


def _read_parts(fields: JSONFields, key: str, kinds: tuple[str, ...]) -> list[Part]:
    parts: list[Part] = []
    for block in fields.iter_objects(key):
        parts += _finish_parts(block, _PART_READERS[_read_block_type(block, kinds)](block))
    return parts


def _read_text(block: JSONFields) -> list[Part]:
    # Answers have this field, and clients send them back.
    block.get_array("citations")
    return [TextContent(text=block.require_text("text", max_length=MAX_INPUT_TEXT_CHARS))]


def _read_image(block: JSONFields) -> list[Part]:
    if block.get_mapping("transformations"):
        refuse_unsupported(block.path_of("transformations"), "Images are handed on as they are.")
    source = _read_source(block)
    if source.value["type"] == "url":
        url = read_image_url(source, "url")
    elif source.value["type"] == "base64":
        kind = source.get_choice("media_type", IMAGE_TYPES) or source.refuse_missing("media_type")
        url = f"data:{kind};base64,{source.require_text('data', max_length=MAX_FILE_DATA_CHARS)}"
    else:
        refuse_choice(source.path_of("type"), source.value["type"], ("base64", "url"))
    source.refuse_unread()
    return [ImageLink(url=url)]


def _read_document(block: JSONFields) -> list[Part]:
    """Read a document: a PDF stays a file, and a text becomes part of the message. Both begin with their context."""
    _refuse_citations(block)
    title, context = block.get_text("title"), block.get_text("context", max_length=MAX_INPUT_TEXT_CHARS)
    source = _read_source(block)
    kind = source.value["type"]
    about = [text for text in (title if kind in ("text", "content") else None, context) if text]
    parts: list[Part] = [TextContent(text="\n\n".join(about))] if about else []
    if kind == "url":
        url = source.require_text("url", max_length=MAX_INPUT_TEXT_CHARS)
        if not url.startswith(("https://", "http://")):
            refuse(f"Invalid '{source.path_of('url')}': expected an http or https URL.", source.path_of("url"))
        parts.append(FileData(url=url, filename=title))
    elif kind == "base64":
        media_type = source.get_choice("media_type", (PDF_TYPE,)) or source.refuse_missing("media_type")
        data = source.require_text("data", max_length=MAX_FILE_DATA_CHARS)
        parts.append(FileData(url=f"data:{media_type};base64,{data}", filename=title or "document.pdf"))
    elif kind == "text":
        source.get_choice("media_type", ("text/plain",))
        parts.append(TextContent(text=source.require_text("data", max_length=MAX_INPUT_TEXT_CHARS)))
    elif isinstance(source.value.get("content"), str):
        parts.append(TextContent(text=source.require_text("content", max_length=MAX_INPUT_TEXT_CHARS)))
    else:
        parts += _read_parts(source, "content", ("text", "image"))
    source.refuse_unread()
    return parts


def _read_source(block: JSONFields) -> JSONFields:
    source = block.get_object("source") or block.refuse_missing("source")
    kind = source.require_text("type")
    if kind == "file":
        refuse_unsupported(source.path_of("file_id"), NO_FILES)
    if kind not in SOURCE_TYPES:
        refuse_choice(source.path_of("type"), kind, SOURCE_TYPES)
    return source


def _read_search_result(block: JSONFields) -> list[Part]:
    _refuse_citations(block)
    title, source = block.require_text("title"), block.require_text("source")
    return [TextContent(text=f"{title}\n{source}"), *_read_parts(block, "content", ("text",))]


def _refuse_citations(block: JSONFields) -> None:
    citations = block.get_object("citations")
    if citations is not None and citations.get_flag("enabled"):
        refuse_unsupported(block.path_of("citations"), NO_CITATIONS)


def _read_tool_use(block: JSONFields) -> FunctionCall:
    call_id = block.require_text("id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    name = block.require_text("name", max_length=2 * MAX_TOOL_NAME_CHARS, may_be_empty=False)
    arguments: dict[str, Any] = block.get_mapping("input") or {}
    # Answers of Anthropic's API say that the model itself made the call.
    block.get_mapping("caller")
    return FunctionCall(call_id=call_id, name=name, arguments=orjson.dumps(arguments).decode())


def _read_tool_result(block: JSONFields) -> FunctionCallOutput:
    call_id = block.require_text("tool_use_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    value = block.value.get("content")
    if value is None or isinstance(value, str):
        text = block.get_text("content", max_length=MAX_INPUT_TEXT_CHARS) or ""
        content: tuple[Part, ...] = (TextContent(text=text),)
    else:
        content = tuple(_read_parts(block, "content", _PART_TYPES))
    return FunctionCallOutput(call_id=call_id, content=content, is_error=block.get_flag("is_error") or False)


def _read_server_tool_use(block: JSONFields) -> FunctionCall:
    """Read a call of a declared MCP server, which the gateway has run."""
    server = block.require_text("server_name", max_length=MAX_TOOL_NAME_CHARS, may_be_empty=False)
    call = _read_tool_use(block)
    return replace(call, name=plain_tool_name(server, call.name))


def _read_web_call(block: JSONFields) -> FunctionCall:
    """Read a call of a web tool, which this gateway has run, or Anthropic's servers."""
    call = _read_tool_use(block)
    if call.name not in WEB_TOOLS:
        refuse_choice(block.path_of("name"), call.name, WEB_TOOLS, advice=NO_SERVER_BLOCKS)
    return call


def _read_web_result(block: JSONFields) -> FunctionCallOutput:
    """Read the result of a web tool: the results of a search, a page, or the code of an error."""
    tool = block.value["type"].removesuffix("_tool_result")
    call_id = block.require_text("tool_use_id", max_length=MAX_CALL_ID_CHARS, may_be_empty=False)
    block.get_mapping("caller")
    if tool == "web_search" and isinstance(block.value.get("content"), list):
        found = [part for result in block.iter_objects("content") for part in _read_web_search_result(result)]
        return FunctionCallOutput(call_id=call_id, content=tuple(found))
    inner = block.get_object("content") or block.refuse_missing("content")
    kinds = (f"{tool}_tool_result_error", *(("web_fetch_result",) if tool == "web_fetch" else ()))
    is_error = (inner.get_choice("type", kinds) or inner.refuse_missing("type")) == kinds[0]
    if is_error:
        content: list[Part] = [TextContent(text=inner.require_text("error_code"))]
    else:
        document = inner.get_object("content") or inner.refuse_missing("content")
        _read_block_type(document, ("document",))
        content = _finish_parts(document, _read_document(document))
        inner.require_text("url")
        inner.get_text("retrieved_at")
    inner.refuse_unread()
    return FunctionCallOutput(call_id=call_id, content=tuple(content), is_error=is_error)


def _read_web_search_result(result: JSONFields) -> list[Part]:
    """Read what a result carries of the text of its search, or of Anthropic's servers, its title and its URL."""
    if result.get_choice("type", ("web_search_result",)) is None:
        result.refuse_missing("type")
    opaque = result.require_text("encrypted_content", max_length=MAX_INPUT_TEXT_CHARS)
    shown = f"{result.require_text('title')}\n{result.require_text('url')}"
    result.get_text("page_age")
    result.refuse_unread()
    text = opaque.removeprefix(OWN_CONTENT) if opaque.startswith(OWN_CONTENT) else shown
    return [TextContent(text=text)] if text else []


def _read_thinking(block: JSONFields) -> Reasoning:
    text, signature = block.require_text("thinking"), block.require_text("signature")
    if signature.startswith(SIGNATURE_PREFIX):
        return Reasoning(text=text, id=signature)
    # Signed by an Anthropic model in a conversation that began elsewhere.
    signed = {"type": "thinking", "thinking": text, "signature": signature}
    return Reasoning(text=text, opaque={_ANTHROPIC_KEY: signed} if signature else {})


def _read_redacted_thinking(block: JSONFields) -> Reasoning:
    data = block.require_text("data")
    return Reasoning(opaque={_ANTHROPIC_KEY: {"type": "redacted_thinking", "data": data}})


_PART_READERS: dict[str, Callable[[JSONFields], list[Part]]] = {
    "text": _read_text,
    "image": _read_image,
    "document": _read_document,
    "search_result": _read_search_result,
}
_ITEM_READERS: dict[str, Callable[[JSONFields], FunctionCall | FunctionCallOutput | Reasoning]] = {
    "tool_use": _read_tool_use,
    "tool_result": _read_tool_result,
    "mcp_tool_use": _read_server_tool_use,
    "mcp_tool_result": _read_tool_result,
    "server_tool_use": _read_web_call,
    "web_search_tool_result": _read_web_result,
    "web_fetch_tool_result": _read_web_result,
    "thinking": _read_thinking,
    "redacted_thinking": _read_redacted_thinking,
}
