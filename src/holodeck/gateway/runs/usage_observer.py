"""Counting of the runs of a gateway and of their tool calls in the usage of their callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holodeck.gateway.runs.live_run import LiveRun
from holodeck.gateway.usage.meter import UsageMeter
from holodeck.models.events import RunFinished, ToolFinished

# Stands for a tool name that a model invented, which may be any text.
_UNKNOWN_TOOL = "unknown"


def build_usage_observer(live: LiveRun[Any], meter: UsageMeter) -> Callable[[ToolFinished | RunFinished], None]:
    """The observer of one run: of the end of its tool calls, and of its own."""

    def count_call(event: ToolFinished) -> None:
        server = str(event.metadata.get("server", ""))
        tool = str(event.metadata.get("tool", event.name)) if server else _name_own_tool(live, event.name)
        is_error = event.output.is_error
        meter.count_call(live.caller_id, live.model, server, tool, event.seconds, is_error=is_error, is_direct=False)

    def on_event(event: ToolFinished | RunFinished) -> None:
        if isinstance(event, ToolFinished):
            count_call(event)
        else:
            result = event.result
            meter.count_run(
                live.caller_id,
                live.model,
                result,
                cost=live.trace.cost_of(result.usage),
                first_token=live.trace.first_token_seconds,
            )

    return on_event


def _name_own_tool(live: LiveRun[Any], name: str) -> str:
    """The name of a function of an agent, or what stands for a name that is no tool."""
    is_ours = live.toolbox.find_spec(name) is not None and not live.toolbox.is_client_function(name)
    return name if is_ours else _UNKNOWN_TOOL
