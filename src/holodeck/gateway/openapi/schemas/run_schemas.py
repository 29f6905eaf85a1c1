"""Schemas of runs, their traces, the questions that they wait for, and usage."""

from __future__ import annotations

from holodeck.gateway.api.models.other_bodies import AnswerElicitation
from holodeck.gateway.endpoints.runs import RUN_STATUSES
from holodeck.gateway.endpoints.usage import GROUPS
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    array,
    boolean,
    choice,
    constant,
    integer,
    mapping,
    model_schemas,
    nullable,
    number,
    record_of,
    ref,
    string,
)

SPAN_KINDS = ("run", "turn", "model", "tool", "approval", "wait", "retry", "recovery", "compaction", "notice")
SPAN_STATUSES = ("ok", "error", "running", "refused")
_TIME = number("Seconds since 1970.")
_COST = nullable(number("In the currency of the prices in the gateway's file. Null: the model has no price."))
_FIRST_TOKEN = nullable(number("Seconds until the model wrote something. Null: it has not."))


def build_run_schemas() -> dict[str, Schema]:
    """Build the schemas of everything that the routes of runs, elicitations and usage take and send, by name."""
    return {
        "RunTokens": _tokens_schema(),
        "Run": _run_schema(),
        "RunList": _list_schema(),
        "Span": _span_schema(),
        "RunTrace": _trace_schema(),
        "UsageRow": _usage_row_schema(),
        "UsageReport": _report_schema(),
        **_elicitation_schemas(),
    }


def _tokens_schema() -> Schema:
    return record_of(
        {
            "input_tokens": integer("Sent to the model, cached ones included."),
            "output_tokens": integer("Written by the model, those of its reasoning included."),
            "cached_tokens": integer(),
            "cache_write_tokens": integer(),
            "reasoning_tokens": integer(),
            "estimated_tokens": integer("Not told by the provider, whose answer was cut: estimated by what came."),
            "total_tokens": integer(),
        },
        "Tokens of the model.",
    )


def _run_schema() -> Schema:
    return record_of(
        {
            "id": string("The id of the response."),
            "object": constant("run"),
            "caller": string("Who asked: `key:NAME#ID`, `key:NAME`, `jwt:NAME`, or `local` without authentication."),
            "model": string("The public name of the model or agent."),
            "status": choice(RUN_STATUSES),
            "created_at": _TIME,
            "completed_at": nullable(number("When it ended, however. Null: it goes on.")),
            "seconds": number("How long it took, or has taken so far."),
            "background": boolean(),
            "turns": integer("Requests to the model."),
            "tool_calls": integer(),
            "tools": array(string(), "Names of the tools that were called, each once."),
            "servers": array(string(), "Names of the MCP servers that were called, each once."),
            "usage": ref("RunTokens"),
            "cost": _COST,
            "first_token_seconds": _FIRST_TOKEN,
            "error": nullable(mapping("Why it failed, as in the response.")),
            "incomplete_reason": nullable(string("Why it is incomplete or cancelled.")),
            "question": string("The beginning of the last message of the user in the input."),
            "answer": string("The beginning of the last message of the model."),
            "previous_response_id": nullable(string()),
            "conversation": nullable(string("The id of the conversation.")),
        },
        "One stored response, as a run.",
    )


def _list_schema() -> Schema:
    return record_of(
        {
            "object": constant("list"),
            "data": array(ref("Run")),
            "first_id": nullable(string()),
            "last_id": nullable(
                string("Send it as `after` for the next page. In a search it may be the id of another run.")
            ),
            "has_more": boolean(),
        }
    )


def _span_schema() -> Schema:
    indexes = nullable(array(integer(), "Indexes into `items` of the trace."))
    return record_of(
        {
            "id": string("Unique in the trace."),
            "parent": nullable(string("The id of the span around it.")),
            "kind": choice(
                SPAN_KINDS,
                "`model` is the request to the model within a `turn`; `wait` is a queue, or the client that has to run "
                "a call; `recovery` is the time from the last record of a gateway that died to the continuation.",
            ),
            "name": string(),
            "server": nullable(string("The MCP server of a call.")),
            "tool": nullable(string("The tool of a call, by the name that its server gives it.")),
            "call_id": nullable(string()),
            "start": number("Seconds from the creation of the run."),
            "seconds": nullable(number("How long it took. Null: it goes on.")),
            "status": choice(SPAN_STATUSES),
            "first_token_seconds": _FIRST_TOKEN,
            "usage": nullable(ref("RunTokens")),
            "cost": _COST,
            "arguments": {"description": "The arguments of a call: JSON, or the text of the model if it is none."},
            "output": nullable(string("The text of the output of a call, cut at 16384 characters.")),
            "is_error": nullable(boolean("Whether the output of a call is an error.")),
            "error": nullable(string("Why the step ended early.")),
            "input_items": nullable(
                array(
                    integer(),
                    "What the model was sent, after the `context`: indexes into `items`. Null: a later compaction "
                    "has replaced it, or it is no turn.",
                )
            ),
            "output_items": indexes,
            "tools": nullable(
                array(
                    string(),
                    "Of a `model` span: the names of the tools that the model was offered, as it saw them. For "
                    "operators. Null: it is another span or reader, or not recorded.",
                )
            ),
        },
        "One step of a run.",
    )


def _trace_schema() -> Schema:
    return record_of(
        {
            "object": constant("run.trace"),
            "run": ref("Run"),
            "started_at": _TIME,
            "instructions": nullable(string("The instructions of the request.")),
            "agent_instructions": nullable(
                string(
                    "For operators: the instructions of the agent's file or of the model's entry that the model was "
                    "sent. Null: it was sent none of them, they have changed since, or they are not recorded."
                )
            ),
            "agent_instructions_changed": boolean(
                "Whether the model was sent instructions of the operator that are not the current ones."
            ),
            "context": record_of(
                {
                    "previous_response_id": nullable(string()),
                    "conversation": nullable(string()),
                    "items": integer("How many items of them the model was sent before `items`."),
                },
                "What the model was sent from before this response.",
            ),
            "items": array(mapping("A message, a call, an output or reasoning."), "Input and output of the response."),
            "spans": array(ref("Span"), "Ordered by their start."),
        },
        "The steps of a run with their times. A run that goes on has those of so far.",
    )


def _usage_row_schema() -> Schema:
    seconds = nullable(number("Estimated. Null: there was none."))
    named = {name: string() for name in GROUPS}
    return record_of(
        {
            "start_time": integer("Seconds since 1970."),
            "end_time": integer("Seconds since 1970; that moment is in the next row."),
            **named,
            "requests": integer("Requests that used a model: responses, chat completions, messages, agents over MCP."),
            "errors": integer("Requests that failed; with `server` or `tool`, calls that did."),
            "input_tokens": integer(),
            "cached_tokens": integer(),
            "cache_write_tokens": integer(),
            "output_tokens": integer(),
            "reasoning_tokens": integer(),
            "estimated_tokens": integer("Not told by the provider, whose answer was cut: estimated by what came."),
            "tool_calls": integer("Of these requests, and of MCP clients."),
            "cost": _COST,
            "seconds_p50": seconds,
            "seconds_p95": seconds,
            "first_token_seconds_p50": seconds,
            "first_token_seconds_p95": seconds,
        },
        "Counts of one bucket and group. `caller`, `model` and the like are there if `group_by` has them.",
        optional=named,
    )


def _report_schema() -> Schema:
    return record_of(
        {
            "object": constant("usage"),
            "start_time": integer("Of the first bucket, in seconds since 1970."),
            "end_time": integer("Of the last bucket."),
            "currency": nullable(string("Of the cost. Null: that of the prices in the gateway's file.")),
            "total": ref("UsageRow"),
            "previous": ref("UsageRow"),
            "data": array(ref("UsageRow"), "Ordered by time. A bucket without anything is left out."),
        }
    )


def _elicitation_schemas() -> dict[str, Schema]:
    question = record_of(
        {
            "id": string(),
            "object": constant("elicitation"),
            "response_id": string(),
            "call_id": string("The id of the item of the call, where the server says which call the question is of."),
            "server_label": string("The name of the MCP server."),
            "message": string("What the server asks. It is the server's text: show it as text, with its name."),
            "mode": choice(("form", "url"), "`url`: the person shall visit a page instead of filling in a form."),
            "requested_schema": mapping("The JSON Schema of the `content` of an answer. Only of a form."),
            "url": string("The page, of http or https. Only with the mode `url`."),
            "created_at": integer("Seconds since 1970."),
            "expires_at": integer("Seconds since 1970. By then the call stops to wait."),
            "status": constant("answered"),
        },
        "A question of an MCP server.",
        optional=("call_id", "requested_schema", "url", "status"),
    )
    return {
        "Elicitation": question,
        "ElicitationList": record_of({"object": constant("list"), "data": array(ref("Elicitation"))}),
        **model_schemas((AnswerElicitation,)),
    }
