"""From the raw answer of a call to its MCPToolResult: converted, cut to size, checked, and labelled."""

from __future__ import annotations

import time
from typing import Any

from holodeck.lib import log
from holodeck.lib.byte_budget import Reservation
from holodeck.lib.errors import MCPError
from holodeck.models.content import TextContent
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.channel import Delivery
from holodeck.tools.mcp.content import MCPToolResult, blocks_of, cut
from holodeck.tools.mcp.discovery import MCPToolInfo
from holodeck.tools.mcp.faults import Faults
from holodeck.tools.mcp.jsonrpc import Message
from holodeck.tools.mcp.outputs import OutputChecks

NEVER_SENT = "never_sent"
"""In the metadata of a failed call: nothing of it reached the server, so it has certainly not taken effect."""


class Trace:
    """One call on its way: which tool was asked for, since when, and how its last request went out."""

    __slots__ = ("began", "delivery", "key", "reserved", "tool")

    def __init__(self, tool: str, key: str, reserved: Reservation) -> None:
        """`reserved` holds the bytes of the answer until it is a result."""
        self.reserved = reserved
        self.tool = tool
        self.key = key
        self.began = time.perf_counter()
        self.delivery: Delivery | None = None


class Results:
    """Makes the results of one server."""

    def __init__(self, tool: MCPTool, faults: Faults, checks: OutputChecks) -> None:
        self._server = tool.name
        self._limit = tool.max_result_bytes
        self._faults = faults
        self._checks = checks

    async def close(self) -> None:
        await self._checks.close()

    async def of(self, info: MCPToolInfo, answer: Message, trace: Trace) -> MCPToolResult:
        """The result of an answer, good or bad."""
        blocks, warnings = blocks_of(answer.get("content"))
        blocks, full_size = cut(blocks, self._limit)
        structured = answer.get("structuredContent")
        is_error = answer.get("isError") is True
        if info.output_schema is not None and not is_error:
            problem = await self._checks.problem(info.name, info.output_schema, structured)
            if problem:
                warnings.append(problem)
        metadata = self._metadata(info.name, trace)
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
            said = " ".join(block.text for block in blocks if isinstance(block, TextContent)) or "it did not say why"
            text = f"the tool '{info.name}' reports an error: {self._faults.excerpt(said)}"
            error = self._faults.make(MCPError, "call", text, tool=info.name, is_error=True)
        return MCPToolResult(
            success=not is_error,
            content=blocks,
            error=error,
            metadata=metadata,
            structured=structured,
            is_error=is_error,
        )

    def failure(self, error: MCPError, trace: Trace) -> MCPToolResult:
        """The result of a call that got no answer."""
        metadata = self._metadata(trace.tool, trace)
        if trace.delivery is None or not trace.delivery.may_have_left:
            metadata[NEVER_SENT] = True
        told = self._faults.explain(error)
        if told == str(error):
            return MCPToolResult(success=False, error=error, metadata=metadata)
        # The caller is not told why, so the operator is.
        log.warning("mcp.failed", server=self._server, tool=trace.tool, error=error)
        return MCPToolResult(success=False, content=[TextContent(text=told)], error=error, metadata=metadata)

    def _metadata(self, name: str, trace: Trace) -> dict[str, Any]:
        elapsed = time.perf_counter() - trace.began
        metadata: dict[str, Any] = {"server": self._server, "tool": name, "duration_ms": round(elapsed * 1000, 3)}
        if trace.delivery is not None and trace.delivery.request_id is not None:
            metadata["request_id"] = trace.delivery.request_id
        return metadata
