"""Builds the `MCPToolResult` of a call from its answer or its error.

The content is converted and cut to `max_result_bytes`, structured content is checked against the output schema, and
metadata about the call is added.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from holodeck.lib import log
from holodeck.lib.byte_budget import Reservation
from holodeck.lib.errors import MCPError
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.lib.record import record
from holodeck.models.content import TextContent
from holodeck.models.tool import MCPTool
from holodeck.tools.executor import ResumePoint
from holodeck.tools.mcp.content import MCPToolResult, blocks_of, cut_to_limit
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.errors import ErrorFactory
from holodeck.tools.mcp.protocol.jsonrpc import Message
from holodeck.tools.mcp.protocol.peer import Peer
from holodeck.tools.mcp.protocol.pending_requests import OnProgress
from holodeck.tools.mcp.transports.base import Delivery

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
