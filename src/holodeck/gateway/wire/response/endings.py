"""How a run ended, in the words of the wire: its status, its last event, and why."""

from __future__ import annotations

from holodeck.lib.types import record
from holodeck.models.events import RunResult

ERROR_TYPES = {
    "model_error": "model_error",
    # What the client can change: it is no use to ask again as it is.
    "context_length_exceeded": "invalid_request",
    "unsupported_parameter": "invalid_request",
    "invalid_prompt": "invalid_request",
    "rate_limit_exceeded": "too_many_requests",
}


@record
class Ending:
    """`event` is one of the three that clients know as the last."""

    status: str
    event: str
    error: dict[str, str] | None = None
    error_type: str = "server_error"
    incomplete: str | None = None


def ending_of(result: RunResult, *, needs_only_approval: bool) -> Ending:
    """A run that waits only for approvals is completed: the requests are its answer."""
    match result.status:
        case "completed":
            return Ending(status="completed", event="response.completed")
        case "requires_action":
            status = "completed" if needs_only_approval else "requires_action"
            return Ending(status=status, event="response.completed")
        case "incomplete":
            return Ending(status="incomplete", event="response.incomplete", incomplete=result.cause or "max_turns")
        case "cancelled":
            # Clients know no event for it; of the three that end a stream this is the true one.
            return Ending(status="cancelled", event="response.incomplete", incomplete="cancelled")
        case "failed":
            code, message = ("server_error", "The run failed.")
            if result.error is not None:
                code, message = result.error.code, result.error.message
            error = {"code": code if code in ERROR_TYPES else "server_error", "message": message}
            return Ending(
                status="failed",
                event="response.failed",
                error=error,
                error_type=ERROR_TYPES.get(code, "server_error"),
            )
