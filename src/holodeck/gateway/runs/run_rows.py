"""The row of a run in the index of runs, and the run as `/v1/runs` shows it.

`build_run_row` builds the row of a run as far as it has come, so that one that is running looks like one that is
stored. `build_run_resource` builds the JSON from a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from holodeck.gateway.runs.live_run import LiveResponse
from holodeck.lib.escape import replace_surrogates
from holodeck.models.items import Item, Message, Usage
from holodeck.storage.runs import StoredRun

# Digits of seconds: microseconds.
_DIGITS = 6
# Characters of the question and of the answer in a list.
PREVIEW_CHARS = 200


def build_run_row(live: LiveResponse, resource: Mapping[str, Any]) -> StoredRun:
    """Return the row of a run. `resource`: the response as it is now."""
    result, trace, request = live.result, live.trace, live.writer.request
    usage = trace.usage if result is None else result.usage
    servers, tools = trace.list_tools() if trace.calls else ((), ())
    details = {
        # None while it goes on: the time so far is that of the reader.
        "seconds": trace.seconds,
        "background": request.background,
        "turns": trace.turns if result is None else result.turns,
        "tool_calls": len(trace.calls),
        "usage": usage_of(usage),
        "cost": trace.cost,
        "first_token_seconds": trace.first_token_seconds,
        "error": resource["error"],
        "incomplete_reason": (resource["incomplete_details"] or {}).get("reason"),
        "previous_response_id": request.previous_response_id,
        "conversation": request.conversation_id,
    }
    return StoredRun(
        id=live.id,
        caller_id=live.caller_id,
        created_at=trace.created_at,
        status=str(resource["status"]),
        model=str(resource["model"]),
        servers=tuple(map(_to_line, servers)),
        tools=tuple(map(_to_line, tools)),
        question=_preview(_find_last_text(request.input.items, "user")),
        answer=_preview(_find_last_text(trace.items, "assistant")),
        details=orjson.dumps(details),
    )


def end_run(run: StoredRun, status: str, error: Mapping[str, Any] | None) -> StoredRun:
    """Return the row of a run that has ended without a process that runs it."""
    ended = {"seconds": time.time() - run.created_at, "error": error}
    return replace(run, status=status, details=orjson.dumps(orjson.loads(run.details) | ended))


def build_run_resource(run: StoredRun) -> dict[str, Any]:
    """Return the run as the API shows it. One that goes on has the seconds so far."""
    details: dict[str, Any] = orjson.loads(run.details)
    seconds = details["seconds"]
    so_far = max(0.0, time.time() - run.created_at) if seconds is None else seconds
    return {
        "id": run.id,
        "object": "run",
        "caller": run.caller_id,
        "model": run.model,
        "status": run.status,
        "created_at": run.created_at,
        "completed_at": None if seconds is None else round(run.created_at + seconds, _DIGITS),
        "seconds": round(so_far, _DIGITS),
        **{name: details[name] for name in ("background", "turns", "tool_calls")},
        "tools": list(run.tools),
        "servers": list(run.servers),
        **{name: details[name] for name in ("usage", "cost", "first_token_seconds", "error", "incomplete_reason")},
        "question": run.question,
        "answer": run.answer,
        **{name: details[name] for name in ("previous_response_id", "conversation")},
    }


def usage_of(usage: Usage) -> dict[str, int]:
    """Return tokens as the routes of runs and of usage show them."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "estimated_tokens": usage.estimated_tokens,
        "total_tokens": usage.total_tokens,
    }


def _find_last_text(items: Sequence[Item], role: str) -> str:
    """Return the text of the last message of a role: clients may send the whole conversation again."""
    for item in reversed(items):
        if isinstance(item, Message) and item.role == role:
            return item.text
    return ""


def _preview(text: str) -> str:
    """Return the beginning of a text as every database can store it: without NUL and half surrogate pairs."""
    shown = text[:PREVIEW_CHARS].replace("\0", "\ufffd")
    return shown if shown.isascii() else replace_surrogates(shown)


def _to_line(name: str) -> str:
    """Return a name without line breaks. Models invent names of tools, which may be any text."""
    return _preview(name).replace("\n", " ")
