"""The response resource of the API, and the ending of a run in its terms.

A resource has all fields of the API at all times: defaults for what the request does not say, null for what is not
known yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.lib.errors import BUDGET_EXCEEDED
from holodeck.lib.record import record
from holodeck.models.events import Cause, RunResult
from holodeck.models.items import Usage

_DEFAULT_TEMPERATURE = 1.0
_DEFAULT_TOP_P = 1.0
ERROR_TYPES = {
    # The client has to change its request: repeating it would fail again.
    "context_length_exceeded": "invalid_request",
    "unsupported_parameter": "invalid_request",
    "invalid_prompt": "invalid_request",
    "rate_limit_exceeded": "too_many_requests",
    "budget_exceeded": "too_many_requests",
}
"""The `type` of an error by its code; that of every other code is `server_error`."""
_RESPONSE_CODES = {
    **{code: code for code in ERROR_TYPES},
    # OpenAI's list of codes in a response has no such one.
    "unsupported_parameter": "invalid_prompt",
    "budget_exceeded": "rate_limit_exceeded",
}


@record
class Ending:
    """How a response ended. `event` is one of the three types that clients know as the last of a stream."""

    status: str
    event: str
    error: dict[str, str] | None = None
    error_type: str = "server_error"
    incomplete: str | None = None

    @property
    def details(self) -> dict[str, Any]:
        """What a completion or a message has beside its nearest reason to stop: their APIs know of no budgets."""
        return {"incomplete_details": {"reason": self.incomplete}} if self.incomplete == BUDGET_EXCEEDED else {}


class ResponseResource:
    """Builds the resource of one response. Fields that never change are built once; `build` adds the others."""

    def __init__(
        self,
        request: ResponseRequest,
        *,
        response_id: str,
        created_at: float,
        model: str,
        client_kind: ClientKind = "openai",
    ) -> None:
        options = request.options
        self._head: dict[str, Any] = {"id": response_id, "object": "response", "created_at": int(created_at)}
        self._tail: dict[str, Any] = {
            "model": model,
            "previous_response_id": request.previous_response_id,
            "instructions": request.instructions,
            "tools": list(request.tools.echo),
            "tool_choice": request.tool_choice.echo,
            "truncation": request.truncation,
            "parallel_tool_calls": request.parallel_tool_calls,
            "text": _text_to_json(request, client_kind),
            "top_p": _DEFAULT_TOP_P if options.top_p is None else options.top_p,
            "presence_penalty": options.presence_penalty or 0.0,
            "frequency_penalty": options.frequency_penalty or 0.0,
            "top_logprobs": options.top_logprobs or 0,
            "temperature": _DEFAULT_TEMPERATURE if options.temperature is None else options.temperature,
            "reasoning": {"effort": options.effort, "summary": options.summary},
            "max_output_tokens": options.max_output_tokens,
            "max_tool_calls": request.max_tool_calls,
            "store": request.store,
            "background": request.background,
            "service_tier": options.service_tier or "default",
            "metadata": dict(request.metadata),
            "safety_identifier": request.safety_identifier,
            "prompt_cache_key": request.prompt_cache_key,
        }
        if request.conversation_id is not None:
            self._tail["conversation"] = {"id": request.conversation_id}
        if request.user is not None:
            self._tail["user"] = request.user
        if options.stop:
            self._tail["stop"] = list(options.stop)
        if options.seed is not None:
            self._tail["seed"] = options.seed

    def build(
        self,
        status: str,
        output: Sequence[dict[str, Any]],
        *,
        completed_at: float | None = None,
        error: dict[str, str] | None = None,
        incomplete: str | None = None,
        usage: Usage | None = None,
        service_tier: str | None = None,
    ) -> dict[str, Any]:
        """Build the resource in a status, with the output so far. Times are seconds since 1970.

        `service_tier`: the one that was used. None: it is not known yet, and the resource has the requested one.
        """
        return {
            **self._head,
            "completed_at": None if completed_at is None else int(completed_at),
            "status": status,
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "output": list(output),
            "error": error,
            "usage": None if usage is None else usage_to_json(usage),
            **self._tail,
            **({} if service_tier is None else {"service_tier": service_tier}),
        }


# The reasons that clients know, and `max_turns`: for the limits of a whole run, the nearest of them.
_INCOMPLETE_REASONS: Mapping[Cause, str] = {
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
    "max_turns": "max_turns",
    "max_tokens": "max_output_tokens",
    "max_seconds": "max_turns",
    "max_cost": "max_output_tokens",
    "budget_exceeded": BUDGET_EXCEEDED,
}


def usage_to_json(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def ending_of(result: RunResult, *, is_pause_completed: bool) -> Ending:
    """The ending of a run. `is_pause_completed`: a run with pending calls has the status `completed`."""
    match result.status:
        case "completed":
            return Ending(status="completed", event="response.completed")
        case "requires_action":
            status = "completed" if is_pause_completed else "requires_action"
            return Ending(status=status, event="response.completed")
        case "incomplete":
            reason = _INCOMPLETE_REASONS[result.cause or "max_turns"]
            return Ending(status="incomplete", event="response.incomplete", incomplete=reason)
        case "cancelled":
            # The API has no event for a cancelled response; of the three that end a stream this is the nearest.
            return Ending(status="cancelled", event="response.incomplete", incomplete="cancelled")
        case "failed":
            code, message = ("server_error", "The run failed.")
            if result.error is not None:
                code, message = result.error.code, result.error.public_message
            error = {"code": _RESPONSE_CODES.get(code, "server_error"), "message": message}
            return Ending(
                status="failed",
                event="response.failed",
                error=error,
                error_type=ERROR_TYPES.get(code, "server_error"),
            )


def _text_to_json(request: ResponseRequest, client_kind: ClientKind) -> dict[str, Any]:
    text_format = dict(request.options.format)
    if client_kind == "open_responses" and "schema" in text_format:
        # The contract of Open Responses allows no other value.
        text_format["schema"] = None
    return {"format": text_format, "verbosity": request.options.verbosity or "medium"}
