"""What a run did, in lines of the log and in numbers: every tool call, and how it all ended. Never an argument."""

from __future__ import annotations

from collections.abc import Callable

from holodeck.gateway.metrics import Metrics
from holodeck.lib import log
from holodeck.models.events import Event, RunFinished, ToolFinished
from holodeck.tools.registry import Toolbox

UNKNOWN_TOOL = "unknown"
"""A name that a model has made up can be anything: it is neither logged nor counted as it is."""


def run_log(
    response: str, caller: str, model: str, toolbox: Toolbox, metrics: Metrics | None, *, is_asked: bool
) -> Callable[[Event], None]:
    """Hears the events of a run. `model` is the name that clients say; `toolbox` knows which tools exist.

    `is_asked`: somebody waits for its answer, and the line of that request says how it ended, too.
    """

    def tool_finished(event: ToolFinished) -> None:
        server, tool = _tool_of(event, toolbox)
        is_error = event.output.is_error
        if metrics is not None:
            metrics.tool_call(server, tool, event.seconds, is_error=is_error)
        log.info(
            "gateway.tool_call",
            response=response,
            caller=caller,
            server=server or None,
            tool=tool,
            outcome="error" if is_error else "ok",
            seconds=round(event.seconds, 4),
        )

    def run_finished(event: RunFinished) -> None:
        result = event.result
        if metrics is not None:
            metrics.run(model, result)
        did: dict[str, object] = {
            "turns": result.turns,
            "tool_calls": result.tool_calls,
            "input_tokens": result.usage.input_tokens,
            "output_tokens": result.usage.output_tokens,
        }
        if result.missing_servers:
            did["missing_servers"] = ",".join(server.name for server in result.missing_servers)
        if is_asked:
            log.note(model=model, run=result.status, **did)
            return
        ended = {"model": model, "status": result.status, **did, "seconds": round(result.seconds, 4)}
        log.info("gateway.run", response=response, caller=caller, **ended)

    def observe(event: Event) -> None:
        if isinstance(event, ToolFinished):
            tool_finished(event)
        elif isinstance(event, RunFinished):
            run_finished(event)

    return observe


def _tool_of(event: ToolFinished, toolbox: Toolbox) -> tuple[str, str]:
    """The server, if any, and the tool of a call, by names that the operator or a server gave."""
    metadata = event.metadata
    if "server" in metadata:
        return str(metadata["server"]), str(metadata.get("tool", event.name))
    is_ours = toolbox.spec(event.name) is not None and not toolbox.is_client(event.name)
    return "", event.name if is_ours else UNKNOWN_TOOL
