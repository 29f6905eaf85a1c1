"""The calls and approvals of one run, recorded in the audit log.

`RunRecorder` is the `CallRecorder` of a run. It knows what all entries of the run have in common: the door, the caller,
the request, the response and the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from holodeck.gateway.audit.entry import Door, Outcome
from holodeck.gateway.audit.log import DECIDED_BY_RULE, AuditedCall, AuditLog
from holodeck.lib.call_errors import NOT_RECORDED
from holodeck.lib.errors import StorageError
from holodeck.models.items import FunctionCall, TextContent
from holodeck.tools.calls import BadArgumentsError, parse_arguments
from holodeck.tools.executor import (
    APPROVAL_DECLINED,
    CHANGED,
    INVALID_JSON,
    OUT_OF_SCOPE,
    TOOL_CHANGED,
    UNKNOWN_TARGET,
    UNKNOWN_TOOL,
    CallTarget,
    ToolCall,
    ToolResult,
)

_REFUSED_OUTCOMES: Mapping[str, Outcome] = {TOOL_CHANGED: "withheld", OUT_OF_SCOPE: "out_of_scope"}


class RunRecorder:
    """Records the calls of one run, and the approvals that it asks for and gets."""

    def __init__(
        self,
        audit: AuditLog,
        *,
        door: Door,
        caller: str,
        request_id: str,
        response_id: str,
        model: str,
    ) -> None:
        self._audit = audit
        self._door = door
        self._caller = caller
        self._request_id = request_id
        self._response_id = response_id
        self._model = model
        self._asked: set[str] = set()

    async def record_call(self, call: ToolCall, target: CallTarget) -> str | None:
        try:
            await self._audit.record_call(
                self._describe_call(call, target),
                decision="approved" if call.is_approved else "not_needed",
                decided_by=self._caller if call.is_approved else "",
            )
        except StorageError:
            return NOT_RECORDED
        return None

    async def record_result(self, call: ToolCall, target: CallTarget, result: ToolResult, seconds: float) -> None:
        outcome, code = _judge_result(result)
        text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        await self._audit.record_outcome(
            self._describe_call(call, target), outcome=outcome, seconds=seconds, error_code=code, result=text
        )

    def record_interruption(self, call: ToolCall, target: CallTarget, code: str, seconds: float) -> None:
        described = self._describe_call(call, target)
        self._audit.post_outcome(described, outcome="unknown", seconds=seconds, error_code=code)

    async def record_refusal(self, call: ToolCall, target: CallTarget, code: str) -> None:
        described = self._describe_call(
            call,
            UNKNOWN_TARGET if code == UNKNOWN_TOOL else target,
            has_arguments=code != INVALID_JSON,
        )
        outcome = _REFUSED_OUTCOMES.get(code, "refused")
        decided_by = self._caller if code == APPROVAL_DECLINED else DECIDED_BY_RULE
        await self._audit.record_refusal(described, error_code=code, outcome=outcome, decided_by=decided_by)

    async def record_approval_requests(
        self, calls: Collection[FunctionCall], targets: Mapping[str, tuple[str, str]]
    ) -> None:
        """Record the calls that wait for an approval, each once although the end of a run may be stored twice."""
        for call in calls:
            if call.call_id not in self._asked:
                self._asked.add(call.call_id)
                await self._audit.record_decision(self._describe_pending(call, targets), decision="asked")

    async def record_decisions(
        self,
        approved: Collection[FunctionCall],
        refused: Collection[FunctionCall],
        targets: Mapping[str, tuple[str, str]],
    ) -> None:
        """Record what the caller decided about calls that waited."""
        for call in approved:
            described = self._describe_pending(call, targets)
            await self._audit.record_decision(described, decision="approved", decided_by=self._caller)
        for call in refused:
            described = self._describe_pending(call, targets)
            await self._audit.record_decision(described, decision="refused", decided_by=self._caller)

    async def record_takeover(self) -> None:
        """Record that the run is that of a process that has ended."""
        await self._audit.record_takeover(caller=self._caller, response_id=self._response_id, model=self._model)

    def _describe_call(self, call: ToolCall, target: CallTarget, *, has_arguments: bool = True) -> AuditedCall:
        return self._build_call(call.key or call.call_id, target, call.arguments if has_arguments else None)

    def _describe_pending(self, call: FunctionCall, targets: Mapping[str, tuple[str, str]]) -> AuditedCall:
        server, tool = targets.get(call.call_id, ("", call.name))
        try:
            arguments = parse_arguments(call.arguments)
        except BadArgumentsError:
            arguments = None
        return self._build_call(call.id or call.call_id, CallTarget(server=server, tool=tool), arguments)

    def _build_call(self, call_id: str, target: CallTarget, arguments: Mapping[str, Any] | None) -> AuditedCall:
        return AuditedCall(
            door=self._door,
            caller=self._caller,
            tool=target.shown_tool,
            server=target.server,
            host=target.host,
            arguments=arguments,
            call_id=call_id,
            request_id=self._request_id,
            response_id=self._response_id,
            model=self._model,
        )


def _judge_result(result: ToolResult) -> tuple[Outcome, str]:
    """Return the outcome of an executed call, and the code of its error: that of the server's JSON-RPC error, or a
    kind."""
    metadata = result.metadata
    if not result.is_error:
        return "ok", ""
    if CHANGED in metadata:
        return "withheld", TOOL_CHANGED
    kind = str(metadata.get("error_kind", ""))
    code = str(metadata.get("error_code", ""))
    if metadata.get("outcome") == "unknown":
        return "unknown", code
    # A Python function that raises has no kind.
    return ("tool_error" if kind in ("tool", "") else "failed"), code or (kind if kind != "tool" else "")
