"""Log lines, metrics and usage of runs: one of each per tool call, and for the outcome. Arguments are never logged.

One observer serves all runs of a gateway and refers to none of them. If each run referred to an observer of its own
that refers back to the run, only the garbage collector would free both, which takes a fifth of a plain request.
"""

from __future__ import annotations

from typing import Any

from holodeck.gateway.metrics.counters import Metrics
from holodeck.gateway.runs.live_run import LiveRun
from holodeck.gateway.usage.meter import UsageMeter
from holodeck.lib import log
from holodeck.lib.errors import BAD_QUESTION, CONTEXT_TOO_LONG, UNSUPPORTED_FIELD
from holodeck.models.events import Failure, RunFinished, ToolFinished
from holodeck.tools.toolbox import Toolbox

_CALLERS_FAULTS = frozenset({BAD_QUESTION, CONTEXT_TOO_LONG, UNSUPPORTED_FIELD})
# Stands for a tool name that a model invented, which may be any text: it is neither logged nor counted itself.
_UNKNOWN_TOOL = "unknown"


class RunObserver:
    """Observes the end of the tool calls of all runs, and of the runs themselves."""

    def __init__(self, metrics: Metrics, meter: UsageMeter | None = None) -> None:
        """`meter`: None if usage is not counted."""
        self._metrics = metrics
        self._meter = meter

    def observe(self, live: LiveRun[Any], event: ToolFinished | RunFinished) -> None:
        """Note an event of a run."""
        if isinstance(event, ToolFinished):
            self._observe_call(live, event)
        else:
            self._observe_end(live, event)

    def _observe_call(self, live: LiveRun[Any], event: ToolFinished) -> None:
        server, tool = _tool_of(event, live.toolbox)
        is_error = event.output.is_error
        self._metrics.count_tool_call(server, tool, event.seconds, is_error=is_error)
        if self._meter is not None:
            self._meter.count_call(
                live.caller_id, live.model, server, tool, event.seconds, is_error=is_error, is_direct=False
            )
        log.info(
            "gateway.tool_call",
            response=live.id,
            caller=live.caller_id,
            server=server or None,
            tool=tool,
            outcome="error" if is_error else "ok",
            seconds=round(event.seconds, 4),
        )

    def _observe_end(self, live: LiveRun[Any], event: RunFinished) -> None:
        result, model = event.result, live.model
        self._metrics.count_run(model, result, live.caller_id)
        if self._meter is not None:
            trace = live.trace
            self._meter.count_run(
                live.caller_id,
                model,
                result,
                # As `/v1/runs` has it. `result.seconds` leaves out the queue and what comes before the first turn.
                seconds=trace.seconds,
                cost=trace.cost_of(result.usage),
                first_token=trace.first_token_seconds,
            )
        if result.error is not None:
            _log_failure(live.id, model, result.error)
        counts: dict[str, object] = {
            "turns": result.turns,
            "tool_calls": result.tool_calls,
            "input_tokens": result.usage.input_tokens,
            "output_tokens": result.usage.output_tokens,
        }
        if result.missing_servers:
            counts["missing_servers"] = ",".join(server.name for server in result.missing_servers)
        if live.has_request_log:
            log.add_fields(model=model, run=result.status, **counts)
            return
        outcome = {"model": model, "status": result.status, **counts, "seconds": round(result.seconds, 4)}
        log.info("gateway.run", response=live.id, caller=live.caller_id, **outcome)


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
    return "", event.name if is_ours else _UNKNOWN_TOOL
