"""Log lines and metrics of a run: one per tool call, and one for its outcome. Arguments are never logged."""

from __future__ import annotations

from collections.abc import Callable

from holodeck.gateway.metrics.counters import Metrics
from holodeck.lib import log
from holodeck.lib.errors import BAD_QUESTION, CONTEXT_TOO_LONG, UNSUPPORTED_FIELD
from holodeck.models.events import Failure, RunFinished, ToolFinished
from holodeck.tools.toolbox import Toolbox

_CALLERS_FAULTS = frozenset({BAD_QUESTION, CONTEXT_TOO_LONG, UNSUPPORTED_FIELD})
UNKNOWN_TOOL = "unknown"
"""Stands for a tool name that a model invented, which may be any text: it is neither logged nor counted itself."""


def build_run_observer(
    response_id: str, caller_id: str, model: str, toolbox: Toolbox, metrics: Metrics | None, *, has_request_log: bool
) -> Callable[[ToolFinished | RunFinished], None]:
    """The observer of one run: of the end of its tool calls, and of its own.

    `model` is its public name; `toolbox` knows which tools exist.
    `has_request_log`: the outcome is added to the log line of the current request, instead of a line of its own.
    """

    def log_tool_call(event: ToolFinished) -> None:
        server, tool = _tool_of(event, toolbox)
        is_error = event.output.is_error
        if metrics is not None:
            metrics.count_tool_call(server, tool, event.seconds, is_error=is_error)
        log.info(
            "gateway.tool_call",
            response=response_id,
            caller=caller_id,
            server=server or None,
            tool=tool,
            outcome="error" if is_error else "ok",
            seconds=round(event.seconds, 4),
        )

    def log_run(event: RunFinished) -> None:
        result = event.result
        if metrics is not None:
            metrics.count_run(model, result, caller_id)
        if result.error is not None:
            _log_failure(response_id, model, result.error)
        counts: dict[str, object] = {
            "turns": result.turns,
            "tool_calls": result.tool_calls,
            "input_tokens": result.usage.input_tokens,
            "output_tokens": result.usage.output_tokens,
        }
        if result.missing_servers:
            counts["missing_servers"] = ",".join(server.name for server in result.missing_servers)
        if has_request_log:
            log.add_fields(model=model, run=result.status, **counts)
            return
        outcome = {"model": model, "status": result.status, **counts, "seconds": round(result.seconds, 4)}
        log.info("gateway.run", response=response_id, caller=caller_id, **outcome)

    def on_event(event: ToolFinished | RunFinished) -> None:
        if isinstance(event, ToolFinished):
            log_tool_call(event)
        else:
            log_run(event)

    return on_event


def _log_failure(response_id: str, model: str, failure: Failure) -> None:
    """Log why a run failed. What the caller was told is left out: it may quote the conversation."""
    is_withheld = failure.message != failure.public_message and failure.code not in _CALLERS_FAULTS
    cause = {"error": failure.message} if is_withheld else {}
    log.warning("gateway.run_failed", response=response_id, model=model, code=failure.code, **cause)


def _tool_of(event: ToolFinished, toolbox: Toolbox) -> tuple[str, str]:
    """The server of a call (empty for a function of an agent) and its tool, by names of the operator or the server."""
    metadata = event.metadata
    if "server" in metadata:
        return str(metadata["server"]), str(metadata.get("tool", event.name))
    is_ours = toolbox.find_spec(event.name) is not None and not toolbox.is_client_function(event.name)
    return "", event.name if is_ours else UNKNOWN_TOOL
