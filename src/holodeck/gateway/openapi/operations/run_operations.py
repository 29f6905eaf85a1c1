"""What the routes of runs and of usage do."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.endpoints.usage import BUCKETS, GROUPS
from holodeck.gateway.http.error_codes import ErrorGroup
from holodeck.gateway.http.query import LIST_LIMIT, MAX_LIST_LIMIT
from holodeck.gateway.openapi.operations.operation import Operation
from holodeck.gateway.openapi.schemas.run_schemas import RUN_STATUSES
from holodeck.gateway.openapi.schemas.schema import choice, integer, number, string
from holodeck.gateway.usage.meter import MINUTES_DAYS
from holodeck.storage.runs import SEARCHED_RUNS

_TAG = "Runs and usage"
_STORED_ERRORS: tuple[ErrorGroup, ...] = ("lookup", "storage")
_CALLER = string(
    "Only of this caller: its id, such as `key:alice#qkzvhtwbarme` or `jwt:alice`, or the name of its key, such as "
    "`alice`: that of the key in force. `local` is the caller of a gateway without keys; a key of that name is "
    "`key:local`. Others than oneself are for operators."
)
_RUN_ID = "resp_5f2b8f1f4bb24d3f8f4a1d0a3a0a4d5e"
_TOKENS = {
    "input_tokens": 1,
    "output_tokens": 21,
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "reasoning_tokens": 0,
    "total_tokens": 22,
}
_RUN: dict[str, Any] = {
    "id": _RUN_ID,
    "object": "run",
    "caller": "local",
    "model": "demo",
    "status": "completed",
    "created_at": 1781000000.125,
    "completed_at": 1781000000.14,
    "seconds": 0.015,
    "background": False,
    "turns": 1,
    "tool_calls": 0,
    "tools": [],
    "servers": [],
    "usage": _TOKENS,
    "cost": None,
    "first_token_seconds": 0.009,
    "error": None,
    "incomplete_reason": None,
    "question": "Hello",
    "answer": "This is a rehearsal.",
    "previous_response_id": None,
    "conversation": None,
}
_SPAN: dict[str, Any] = {
    "id": "run",
    "parent": None,
    "kind": "run",
    "name": "run",
    "server": None,
    "tool": None,
    "call_id": None,
    "start": 0.0,
    "seconds": 0.015,
    "status": "ok",
    "first_token_seconds": 0.009,
    "usage": _TOKENS,
    "cost": None,
    "arguments": None,
    "output": None,
    "is_error": None,
    "error": None,
    "input_items": None,
    "output_items": None,
    "tools": None,
}
_TURN = {**_SPAN, "id": "turn_1", "parent": "run", "kind": "turn", "name": "turn 1", "start": 0.001, "seconds": 0.014}
_MODEL = {
    **_TURN,
    "id": "model_1",
    "parent": "turn_1",
    "kind": "model",
    "name": "model",
    "input_items": [0],
    "output_items": [1],
    "tools": ["echo"],
}
_TRACE: dict[str, Any] = {
    "object": "run.trace",
    "run": _RUN,
    "started_at": 1781000000.125,
    "instructions": None,
    "agent_instructions": "Be brief.",
    "agent_instructions_changed": False,
    "context": {"previous_response_id": None, "conversation": None, "items": 0},
    "items": [
        {"type": "message", "role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "This is a rehearsal."}]},
    ],
    "spans": [_SPAN, _TURN, _MODEL],
}

_USAGE = {
    "start_time": 1780999200,
    "end_time": 1781002800,
    "requests": 1,
    "errors": 0,
    "input_tokens": 1,
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "output_tokens": 21,
    "reasoning_tokens": 0,
    "tool_calls": 0,
    "cost": None,
    "seconds_p50": 0.015,
    "seconds_p95": 0.0195,
    "first_token_seconds_p50": 0.005,
    "first_token_seconds_p95": 0.0095,
}

RUN_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/v1/runs"): Operation(
        id="listRuns",
        tag=_TAG,
        summary="List runs",
        description=(
            "The stored responses of the caller, newest first, and those that run at this gateway. An operator's key "
            "without a scope lists those of all callers.\n\n"
            f"A search by `model`, `tool`, `server` or `text` looks at {SEARCHED_RUNS} runs for each page. A page may "
            "then have fewer runs than `limit`, or none, and `has_more` all the same: go on with `last_id` as `after`."
        ),
        reply="RunList",
        example={
            "object": "list",
            "data": [_RUN],
            "first_id": _RUN_ID,
            "last_id": _RUN_ID,
            "has_more": False,
        },
        query={
            "limit": integer(f"Runs of a page. Left out: {LIST_LIMIT}.", minimum=1, maximum=MAX_LIST_LIMIT),
            "after": string("`last_id` of the page before."),
            "status": choice(RUN_STATUSES),
            "model": string("The public name of a model or an agent."),
            "tool": string("Only runs that called this tool."),
            "server": string("Only runs that called this MCP server."),
            "caller": _CALLER,
            "text": string("A part of the first 200 characters of the question or of the answer, in any case."),
            "created_after": number("Seconds since 1970; that moment included.", minimum=0),
            "created_before": number("Seconds since 1970; that moment excluded.", minimum=0),
        },
        errors=("query", "operator", "storage"),
    ),
    ("GET", "/v1/runs/{id}"): Operation(
        id="getRun",
        tag=_TAG,
        summary="Get a run",
        description="The run of a stored response. One that goes on is shown as far as it has come.",
        reply="Run",
        example=_RUN,
        errors=_STORED_ERRORS,
    ),
    ("GET", "/v1/runs/{id}/trace"): Operation(
        id="getRunTrace",
        tag=_TAG,
        summary="Get the trace of a run",
        description=(
            "When each step began and how long it took: turns, requests to the model, tool calls, waiting. It says "
            "what the model was sent and what it wrote in each turn, also for runs that failed or go on.\n\n"
            "Only an operator's key without a scope gets `agent_instructions` and the `tools` of spans: both are the "
            "operator's, and a request need not mention the servers whose tools its model is offered."
        ),
        reply="RunTrace",
        example=_TRACE,
        errors=_STORED_ERRORS,
    ),
    ("GET", "/v1/usage"): Operation(
        id="getUsage",
        tag=_TAG,
        summary="Get the usage",
        description=(
            "Requests, tokens, cost and durations of the caller by minute, hour or day (UTC), whether responses were "
            "stored or not. An operator's key without a scope gets those of all callers.\n\n"
            "With `server` or `tool` in `group_by` the rows count tool calls, and their durations: they have no "
            "requests, no tokens and no cost. `seconds_p50` and the like are estimated from buckets, and at most 300. "
            f"Minutes are stored for {MINUTES_DAYS} days. With `Accept: text/csv`, or `format=csv`, the rows are CSV."
        ),
        reply="UsageReport",
        other_media_types=("text/csv",),
        example={
            "object": "usage",
            "start_time": 1780999200,
            "end_time": 1781002800,
            "data": [_USAGE],
        },
        query={
            "start_time": number("Seconds since 1970. Left out: 60 minutes, 48 hours or 31 days ago.", minimum=0),
            "end_time": number("Seconds since 1970. Left out: now.", minimum=0),
            "bucket": choice(BUCKETS, "Left out: `hour`."),
            "group_by": string(
                f"Words with commas between them: {', '.join(f'`{name}`' for name in GROUPS)}.",
                example="caller,model",
            ),
            "caller": _CALLER,
            "format": choice(("json", "csv")),
        },
        errors=("query", "operator", "storage"),
    ),
}
