"""The response resource of the API, and the ending of a run in its terms.

A resource has all fields of the API at all times: defaults for what the request does not say, null for what is not
known yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from holodeck.gateway.api.models.create_response import PLAIN_MEMBERS, RESPONSE_DEFAULTS
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.lib.errors import ANSWER_MISFIT, BUDGET_EXCEEDED
from holodeck.lib.record import record
from holodeck.models.events import Cause, RunResult
from holodeck.models.generation import DEFAULT_OPTIONS, OPTIONS, TIER, GenerationOptions
from holodeck.models.items import Usage

_REPEATED = tuple(
    (option.name, option.repeated_as, option.neutral) for option in OPTIONS if option.repeated_as is not None
)
_plain_values_of = attrgetter(*PLAIN_MEMBERS)
ERROR_TYPES = {
    # The client has to change its request: repeating it would fail again.
    "context_length_exceeded": "invalid_request",
    "unsupported_parameter": "invalid_request",
    "invalid_prompt": "invalid_request",
    "rate_limit_exceeded": "too_many_requests",
    "budget_exceeded": "too_many_requests",
    # The model was asked as often as it may be: clients must not repeat that by themselves.
    ANSWER_MISFIT: "model_error",
}
"""The `type` of an error by its code; that of every other code is `server_error`."""
FAILED_RUN_STATUSES = {"invalid_request": 400, "too_many_requests": 429, "model_error": 422}
"""HTTP statuses of failed runs by the type of their error; that of every other type is 500."""
_RESPONSE_CODES = {
    **{code: code for code in ERROR_TYPES},
    # OpenAI's list of codes in a response has no such one.
    "unsupported_parameter": "invalid_prompt",
    "budget_exceeded": "rate_limit_exceeded",
    ANSWER_MISFIT: "server_error",
}


@record
class Ending:
    """The end of a response. `event` is one of the three types that clients know as the last of a stream."""

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
        self.id = response_id
        self._head: dict[str, Any] = {"id": response_id, "object": "response", "created_at": int(created_at)}
        self._tail: dict[str, Any] = {
            **RESPONSE_DEFAULTS,
            **dict(zip(PLAIN_MEMBERS, _plain_values_of(request), strict=True)),
            "model": model,
            "tools": list(request.tools.echo),
            "tool_choice": request.tool_choice.echo,
            "metadata": dict(request.metadata),
        }
        if request.conversation_id is not None:
            self._tail["conversation"] = {"id": request.conversation_id}
        if request.options is not DEFAULT_OPTIONS:
            self._repeat_options(request.options)
            self._tail["text"] = _text_to_json(request, client_kind)

    def set_model(self, name: str) -> None:
        """Say that another model answers than the one that was asked for."""
        self._tail["model"] = name

    def _repeat_options(self, options: GenerationOptions) -> None:
        self._tail["reasoning"] = {"effort": options.effort, "summary": options.summary}
        for name, member, neutral in _REPEATED:
            value = getattr(options, name)
            if value is not None and value != neutral:
                self._tail[member] = list(value) if isinstance(value, tuple) else value

    def build(
        self,
        status: str,
        output: Sequence[dict[str, Any]],
        *,
        completed_at: float | None = None,
        error: dict[str, str] | None = None,
        incomplete: str | None = None,
        result: RunResult | None = None,
    ) -> dict[str, Any]:
        """Build the resource in a status, with the output so far. Times are seconds since 1970.

        `result`: that of the run. Without it, the resource has the tier that was asked for.
        """
        return {
            **self._head,
            "completed_at": None if completed_at is None else int(completed_at),
            "status": status,
            "incomplete_details": None if incomplete is None else {"reason": incomplete},
            "output": list(output),
            "error": error,
            "usage": None if result is None else usage_to_json(result.usage),
            **self._tail,
            **({} if result is None else {TIER: result.service_tier or RESPONSE_DEFAULTS[TIER]}),
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
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def ending_of(result: RunResult, *, is_pause_completed: bool) -> Ending:
    """Return the ending of a run. `is_pause_completed`: a run with pending calls has the status `completed`."""
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
    text_format = dict(request.text_format)
    if client_kind == "open_responses" and "schema" in text_format:
        # The contract of Open Responses allows no other value.
        text_format["schema"] = None
    return {"format": text_format, "verbosity": request.options.verbosity or "medium"}
