"""Converts answers of a server to content blocks of the engine, and builds the `MCPToolResult` of a call from them.

Content that is unknown, invalid or over the limit is replaced by a text that says so. The content of a result is cut to
`max_result_bytes`, structured content is checked against the output schema, and metadata about the call is added.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson

from holodeck.lib import log
from holodeck.lib.byte_budget import Reservation
from holodeck.lib.errors import MCPError
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.lib.record import record
from holodeck.models.items import (
    AudioContent,
    BinaryContent,
    ContentBlock,
    ImageContent,
    TextContent,
    base64_size,
    describe_block,
)
from holodeck.models.tool import MCPTool
from holodeck.tools.executor import ResumePoint
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.protocol.pending_requests import OnProgress
from holodeck.tools.mcp.protocol.versions import mapping
from holodeck.tools.mcp.transports.base import Delivery

__all__ = [
    "AudioContent",
    "BinaryContent",
    "ContentBlock",
    "ImageContent",
    "MCPToolResult",
    "TextContent",
    "blocks_of",
    "cut_to_limit",
]

EMPTY_ANSWER = "(the tool gave an empty answer)"
# Parts of one answer, and messages of one prompt: many more than a model is shown. Each takes some steps.
MAX_BLOCKS = 10_000
# Bytes of the longest character in UTF-8.
_BYTES_PER_CHAR = 4


@record
class MCPToolResult:
    """The outcome of a call. For a failed one `success` is false and `error` has the reason."""

    success: bool
    content: list[ContentBlock] = field(default_factory=list)
    error: MCPError | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    structured: Any = None
    """The `structuredContent` of the answer: any JSON value."""
    is_error: bool = False
    """True when the tool reported the failure; its text is in `content`."""

    @property
    def text(self) -> str:
        """The result as text, with structured content appended unless the text already contains it.

        It has no base64: images, sounds and bytes are described in a line with their type and size, also those inside
        structured content.
        """
        parts = [block.text if isinstance(block, TextContent) else describe_block(block) for block in self.content]
        if self.structured is not None and not _is_in_text(parts, self.structured):
            parts.append(_dump_structured(self.structured))
        if parts:
            return "\n".join(parts)
        return str(self.error) if self.error is not None else EMPTY_ANSWER


@record
class PromptMessage:
    """One message of a prompt."""

    role: str
    content: list[ContentBlock]

    @property
    def text(self) -> str:
        return "\n".join(describe_block(block) for block in self.content)


@record
class PromptResult:
    """The messages of a prompt, with its arguments filled in."""

    messages: list[PromptMessage]
    description: str | None = None

    @property
    def text(self) -> str:
        """All messages as one text."""
        return "\n\n".join(message.text for message in self.messages)


def blocks_of(content: object) -> tuple[list[ContentBlock], list[str]]:
    """Return the blocks of an answer, and a warning for each irregularity in it."""
    if not isinstance(content, list):
        return [], [] if content is None else ["the content of the answer is not a list"]
    blocks: list[ContentBlock] = []
    warnings: list[str] = []
    for item in content if len(content) <= MAX_BLOCKS else content[:MAX_BLOCKS]:
        if type(item) is dict and item.get("type") == "text" and type(text := item.get("text")) is str:
            blocks.append(TextContent(text=text))
        else:
            blocks.append(_parse_block(mapping(item), warnings))
    if len(content) > MAX_BLOCKS:
        warnings.append(f"the answer has {len(content)} parts, of which {MAX_BLOCKS} are used")
        blocks.append(TextContent(text=f"[left out: {len(content) - MAX_BLOCKS} further parts]"))
    return blocks, warnings


def prompt_of(answer: Message) -> PromptResult:
    """Return the prompt in the answer to `prompts/get`, with `MAX_BLOCKS` messages at most.

    Entries that are no messages are ignored.
    """
    messages: list[PromptMessage] = []
    listed = answer.get("messages")
    for item in listed[:MAX_BLOCKS] if isinstance(listed, list) else []:
        content = mapping(item).get("content")
        blocks, _ = blocks_of(content if isinstance(content, list) else [content])
        role = mapping(item).get("role")
        messages.append(PromptMessage(role=role if role in ("user", "assistant") else "user", content=blocks))
    description = answer.get("description")
    return PromptResult(messages=messages, description=description if isinstance(description, str) else None)


def cut_to_limit(blocks: list[ContentBlock], limit: int) -> tuple[list[ContentBlock], int]:
    """Return the blocks cut to `limit` bytes, and their full size if anything was cut (else 0)."""
    # Counting characters is cheap, and shows for most answers that no block needs to be encoded.
    if sum(map(_char_count, blocks)) * _BYTES_PER_CHAR <= limit:
        return blocks, 0
    sizes = [_byte_count(block) for block in blocks]
    if sum(sizes) <= limit:
        return blocks, 0
    shortened: list[ContentBlock] = []
    available = limit
    for block, size in zip(blocks, sizes, strict=True):
        if size <= available:
            shortened.append(block)
            available -= size
        elif isinstance(block, TextContent):
            text = block.text.encode("utf-8", "replace")[:available].decode("utf-8", "ignore")
            shortened.append(
                TextContent(text=f"{text}\n[cut: {size} bytes in all]", uri=block.uri, mime_type=block.mime_type)
            )
            available = 0
        else:
            shortened.append(TextContent(text=f"{describe_block(block)} [left out: {size} bytes]"))
    return shortened, sum(sizes)


def limit_answer(answer: Message, limit: int) -> Message:
    """Return the result of a call as it is, or cut to `limit` bytes: then it is an error that has the beginning.

    A cut result fits no output schema, and only an error needs none.
    """
    blocks, _ = blocks_of(answer.get("content"))
    structured = answer.get("structuredContent")
    # Counting characters is cheap, and shows for most answers that nothing needs to be encoded.
    if structured is None and sum(map(_char_count, blocks)) * _BYTES_PER_CHAR <= limit:
        return answer
    size = sum(map(_byte_count, blocks)) + (0 if structured is None else len(_dump_structured(structured)))
    if size <= limit:
        return answer
    shortened, _ = cut_to_limit(blocks, limit)
    texts = [block.text if isinstance(block, TextContent) else describe_block(block) for block in shortened]
    notice = f"The answer has {size} bytes and was cut to {limit} ('max_result_bytes')."
    return {"content": [{"type": "text", "text": text} for text in (notice, *texts)], "isError": True}


def count_resource_bytes(contents: object) -> int:
    """Return the bytes of the contents in an answer to `resources/read`: of texts in UTF-8, of blobs decoded."""
    total = 0
    for item in contents if isinstance(contents, list) else []:
        text, blob = mapping(item).get("text"), mapping(item).get("blob")
        if isinstance(text, str):
            total += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if isinstance(blob, str):
            total += base64_size(blob)
    return total


def _parse_block(item: Mapping[str, Any], warnings: list[str]) -> ContentBlock:
    kind = item.get("type")
    data, mime = item.get("data"), item.get("mimeType")
    if kind == "image" and isinstance(data, str):
        return ImageContent(data=data, mime_type=mime if isinstance(mime, str) else "application/octet-stream")
    if kind == "audio" and isinstance(data, str):
        return AudioContent(data=data, mime_type=mime if isinstance(mime, str) else "application/octet-stream")
    if kind == "resource":
        return _parse_resource(mapping(item.get("resource")), warnings)
    if kind == "resource_link":
        return BinaryContent(
            uri=_text_or_none(item.get("uri")),
            mime_type=_text_or_none(mime),
            name=_text_or_none(item.get("name")),
            description=_text_or_none(item.get("description")),
            is_link=True,
        )
    warnings.append(f"content of kind {str(kind)[:80]!r} is not known or not complete")
    return TextContent(text=f"[content of unknown kind {str(kind)[:80]!r}]")


def _parse_resource(resource: Mapping[str, Any], warnings: list[str]) -> ContentBlock:
    uri, mime = _text_or_none(resource.get("uri")), _text_or_none(resource.get("mimeType"))
    text, blob = resource.get("text"), resource.get("blob")
    if isinstance(text, str):
        return TextContent(text=text, uri=uri, mime_type=mime)
    data = b""
    if isinstance(blob, str):
        try:
            data = base64.b64decode(blob, validate=True)
        except (binascii.Error, ValueError):
            warnings.append(f"the data of resource {uri!r} is not base64")
    return BinaryContent(data=data, uri=uri, mime_type=mime)


def _char_count(block: ContentBlock) -> int:
    return len(block.text if isinstance(block, TextContent) else block.data)


def _byte_count(block: ContentBlock) -> int:
    return len(block.text.encode("utf-8", "replace")) if isinstance(block, TextContent) else len(block.data)


def _is_in_text(parts: list[str], structured: Any) -> bool:
    """Return whether one of the texts is the structured content, as JSON or, for a single value, as plain text."""
    equivalents = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        ((key, value),) = structured.items()
        if isinstance(value, str) and value in parts:
            return True
        # Servers wrap a value that is no object in an object with this key.
        if key == "result":
            equivalents.append(value)
    for part in parts:
        try:
            if parse_json(part) in equivalents:
                return True
        except ValueError:
            continue
    return False


def _dump_structured(value: Any) -> str:
    try:
        return orjson.dumps(_describe_binary_values(value)).decode()
    except (TypeError, ValueError, RecursionError):
        return "[structured content that is nested too deeply to show]"


def _describe_binary_values(value: Any) -> Any:
    """Return JSON with the base64 of content blocks replaced: servers repeat their blocks in structured content."""
    if isinstance(value, list):
        return [_describe_binary_values(item) for item in value]
    if not isinstance(value, dict):
        return value
    shown = {key: _describe_binary_values(item) for key, item in value.items()}
    for key in ("data", "blob"):
        data = value.get(key)
        if isinstance(data, str) and (value.get("type") in ("image", "audio") if key == "data" else "uri" in value):
            shown[key] = f"[{base64_size(data)} bytes]"
    return shown


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


# Metadata key of a failed call of which no byte reached the server, so that it has certainly not taken effect.
NEVER_SENT = "never_sent"


@record
class CallRequest:
    """The parts of a call that every attempt has in common; see `MCPClient.call`."""

    arguments: Mapping[str, Any]
    on_progress: OnProgress | None = None
    expected: MCPToolInfo | None = None
    peer: Peer | None = None
    resume: ResumePoint | None = None


class CallRecord:
    """One call in progress: the requested tool, the start time, and the delivery of its latest request."""

    __slots__ = ("delivery", "key", "reserved", "started_at", "tool")

    def __init__(self, tool: str, key: str, reserved: Reservation) -> None:
        """`reserved` holds the bytes of the answer until the result is built."""
        self.reserved = reserved
        self.tool = tool
        self.key = key
        self.started_at = time.perf_counter()
        self.delivery: Delivery | None = None


class ResultBuilder:
    """Builds the results of one server. Owns the checker of output schemas; `close` ends its process."""

    def __init__(self, tool: MCPTool, errors: ErrorFactory, *, in_process: bool = False) -> None:
        """`in_process`: see `SchemaChecker`."""
        self._server = tool.name
        self._limit = tool.max_result_bytes
        self._errors = errors
        self._checker = SchemaChecker(in_process=in_process)

    async def close(self) -> None:
        await self._checker.close()

    def build(self, tool: str, answer: Message, record: CallRecord, output_problem: str | None = None) -> MCPToolResult:
        """Build the result of an answer, successful or not. `output_problem`: of `find_output_problem`."""
        blocks, warnings = blocks_of(answer.get("content"))
        blocks, full_size = cut_to_limit(blocks, self._limit)
        structured = answer.get("structuredContent")
        is_error = answer.get("isError") is True
        if output_problem:
            warnings.append(output_problem)
        metadata = self._build_metadata(tool, record)
        if full_size:
            metadata["truncated"], metadata["full_size"] = True, full_size
            warnings.append(f"the answer has {full_size} bytes and was cut to {self._limit}")
        if not blocks and structured is None:
            warnings.append("the answer is empty")
        if warnings:
            metadata["warnings"] = warnings
        if "_meta" in answer:
            metadata["meta"] = answer["_meta"]
        error = None
        if is_error:
            reason = " ".join(block.text for block in blocks if isinstance(block, TextContent)) or "it did not say why"
            text = f"the tool '{tool}' reports an error: {self._errors.excerpt(reason)}"
            error = self._errors.build(MCPError, "call", text, tool=tool, is_error=True)
        return MCPToolResult(
            success=not is_error,
            content=blocks,
            error=error,
            metadata=metadata,
            structured=structured,
            is_error=is_error,
        )

    def build_failure(self, error: MCPError, record: CallRecord) -> MCPToolResult:
        """Build the result of a call without an answer."""
        metadata = self._build_metadata(record.tool, record)
        if record.delivery is None or not record.delivery.may_have_been_sent:
            metadata[NEVER_SENT] = True
        text = self._errors.explain(error)
        if text == str(error):
            return MCPToolResult(success=False, error=error, metadata=metadata)
        # The text for the caller hides the cause, so it is logged for the operator.
        log.warning("mcp.failed", server=self._server, tool=record.tool, error=error)
        return MCPToolResult(success=False, content=[TextContent(text=text)], error=error, metadata=metadata)

    def _build_metadata(self, name: str, record: CallRecord) -> dict[str, Any]:
        elapsed = time.perf_counter() - record.started_at
        metadata: dict[str, Any] = {"server": self._server, "tool": name, "duration_ms": round(elapsed * 1000, 3)}
        if record.delivery is not None and record.delivery.request_id is not None:
            metadata["request_id"] = record.delivery.request_id
        return metadata

    async def find_output_problem(self, tool: str, schema: Mapping[str, Any], answer: Message) -> str | None:
        """Return what is wrong with structured content, or why it was not checked. Does not raise; time is bounded.

        None for an error, which needs none.
        """
        if answer.get("isError") is True:
            return None
        value = answer.get("structuredContent")
        if value is None:
            return "the tool promises structured content and gave none"
        try:
            violations = await self._checker.find_violations(schema, value)
        except SchemaError as error:
            return f"the structured content has a schema that cannot be used: {error}"
        except UncheckedError as error:
            log.warning("mcp.answer_unchecked", tool=tool, reason=error)
            return f"the structured content was not checked: {error}"
        return f"the structured content does not fit its schema: {violations[0].message}" if violations else None
