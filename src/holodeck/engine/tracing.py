"""Spans of runs, model turns and tool calls, with the attributes of OpenTelemetry's GenAI conventions.

Attributes are names and numbers, never content. While tracing is disabled, every function returns at once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from holodeck.lib import tracing
from holodeck.models.events import RunResult
from holodeck.models.generation import OPTIONS
from holodeck.models.items import FunctionCall, Usage
from holodeck.models.model_io import ModelAnswer, ModelRequest

if TYPE_CHECKING:
    from holodeck.engine.loop import RunRequest

_OPTION_ATTRIBUTES = tuple((option.name, f"gen_ai.request.{option.name}") for option in OPTIONS if option.is_traced)
# Providers that the conventions name differently than our configuration files.
_PROVIDERS = {"azure_openai": "azure.ai.openai"}


def start_run_span(request: RunRequest, model: str) -> AbstractContextManager[tracing.Span]:
    """Start the span of a whole run."""
    if not tracing.tracers:
        return tracing.NOOP_SPAN
    attributes: tracing.Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": _provider_name(request.provider),
        "gen_ai.agent.name": request.agent or None,
        "gen_ai.request.model": model,
        "holodeck.response.id": request.run_id,
    }
    return tracing.span(f"invoke_agent {request.agent}".strip(), attributes)


def record_run_end(span: tracing.Span, result: RunResult) -> None:
    """Record the result of a run on its span."""
    if not tracing.tracers:
        return
    span.set(
        {
            "holodeck.status": result.status,
            "holodeck.turns": result.turns,
            "holodeck.tool_calls": result.tool_calls,
            **_usage_attributes(result.usage),
        }
    )
    if result.status == "cancelled":
        span.fail("cancelled")
    elif result.error is not None:
        span.fail(result.error.code)


def start_turn_span(provider: str, model: str, request: ModelRequest) -> AbstractContextManager[tracing.Span]:
    """Start the span of one model turn."""
    if not tracing.tracers:
        return tracing.NOOP_SPAN
    attributes: tracing.Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider_name(provider),
        "gen_ai.request.model": model,
        **{attribute: getattr(request, name) for name, attribute in _OPTION_ATTRIBUTES},
        "gen_ai.output.type": "text" if request.response_format is None else "json",
    }
    return tracing.span(f"chat {model}", attributes, kind="client")


def record_answer(span: tracing.Span, answer: ModelAnswer) -> None:
    """Record the answer of a turn on its span."""
    if tracing.tracers:
        finish = "tool_call" if answer.finish == "tool_calls" else answer.finish
        span.set(
            {
                "gen_ai.response.model": answer.model or None,
                "gen_ai.response.finish_reasons": (finish,),
                **_usage_attributes(answer.usage),
            }
        )


def start_call_span(call: FunctionCall, *, is_known: bool) -> AbstractContextManager[tracing.Span]:
    """Start the span of one tool call.

    A name that is not `is_known` was invented by the model and could be content, so the span does not have it.
    """
    if not tracing.tracers:
        return tracing.NOOP_SPAN
    attributes: tracing.Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name if is_known else None,
        "gen_ai.tool.type": "extension",
        "gen_ai.tool.call.id": call.call_id,
    }
    return tracing.span(f"execute_tool {call.name}" if is_known else "execute_tool", attributes)


def _usage_attributes(usage: Usage) -> tracing.Attributes:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens or None,
    }


def _provider_name(name: str) -> str | None:
    return _PROVIDERS.get(name, name) or None
