"""Schemas of streamed events: those of `/v1/responses`, in a stream or on a WebSocket."""

from __future__ import annotations

from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    array,
    constant,
    integer,
    nullable,
    record_of,
    ref,
    string,
    variants,
)
from holodeck.lib.record import record

_PLACE = {"item_id": string(), "output_index": integer("The place of the item in the output.")}
_CONTENT = {**_PLACE, "content_index": integer("The place of the part in the item.")}
_SUMMARY = {**_PLACE, "summary_index": integer("The place of the part in the summary.")}
_OBFUSCATION = {"obfuscation": string("Padding, if the request asks for it.")}


@record
class EventKind:
    """One type of event. `about` is one sentence for the reader of a stream."""

    type: str
    about: str
    fields: dict[str, Schema]

    @property
    def schema_name(self) -> str:
        """The name of its schema: `response.output_text.delta` is `ResponseOutputTextDeltaEvent`."""
        words = self.type.replace(".", "_").split("_")
        return f"{''.join(map(str.capitalize, words))}Event"


def _delta(fields: dict[str, Schema]) -> dict[str, Schema]:
    return {**fields, "delta": string(), **_OBFUSCATION}


def _whole(about: str, kind: str) -> EventKind:
    return EventKind(type=kind, about=about, fields={"response": ref("Response")})


_ERROR = {"type": string(), "code": nullable(string()), "message": string(), "param": nullable(string())}


def _hosted_events() -> list[EventKind]:
    """Return the events of hosted tools, which the gateway runs with MCP tools."""
    kinds = []
    for tool, working, about in (
        ("web_search_call", "searching", "web search"),
        ("file_search_call", "searching", "file search"),
        ("code_interpreter_call", "interpreting", "run of code"),
        ("image_generation_call", "generating", "generation of an image"),
    ):
        kinds.append(EventKind(type=f"response.{tool}.in_progress", about=f"A {about} begins.", fields=_PLACE))
        if tool == "code_interpreter_call":
            code = "response.code_interpreter_call_code"
            kinds.append(EventKind(type=f"{code}.delta", about="The code that runs.", fields=_delta(_PLACE)))
            fields = {**_PLACE, "code": string()}
            kinds.append(EventKind(type=f"{code}.done", about="The whole code.", fields=fields))
        kinds.append(EventKind(type=f"response.{tool}.{working}", about=f"The {about} is at work.", fields=_PLACE))
        kinds.append(EventKind(type=f"response.{tool}.completed", about=f"The {about} has a result.", fields=_PLACE))
    return kinds


EVENT_KINDS = (
    _whole("The first event. The response has an id.", "response.created"),
    _whole("A background response waits until it can run.", "response.queued"),
    _whole("The run has started, or a turn of it begins anew.", "response.in_progress"),
    EventKind(
        type="response.output_item.added",
        about="An item begins. Its texts are empty yet.",
        fields={"output_index": integer(), "item": ref("OutputItem")},
    ),
    EventKind(
        type="response.content_part.added",
        about="A part of a message or of reasoning begins.",
        fields={**_CONTENT, "part": ref("OutputPart")},
    ),
    EventKind(
        type="response.output_text.delta",
        about="More text of a message.",
        fields={**_delta(_CONTENT), "logprobs": array(ref("Logprob"))},
    ),
    EventKind(
        type="response.output_text.done",
        about="The whole text of the part.",
        fields={**_CONTENT, "text": string(), "logprobs": array(ref("Logprob"))},
    ),
    EventKind(type="response.refusal.delta", about="More text of a refusal.", fields=_delta(_CONTENT)),
    EventKind(
        type="response.refusal.done", about="The whole text of the refusal.", fields={**_CONTENT, "refusal": string()}
    ),
    EventKind(type="response.reasoning_text.delta", about="More of what the model thinks.", fields=_delta(_CONTENT)),
    EventKind(
        type="response.reasoning_text.done", about="The whole text of the part.", fields={**_CONTENT, "text": string()}
    ),
    EventKind(
        type="response.reasoning.delta",
        about="The name of `response.reasoning_text.delta` for clients that are not OpenAI's.",
        fields=_delta(_CONTENT),
    ),
    EventKind(
        type="response.reasoning.done",
        about="The name of `response.reasoning_text.done` for clients that are not OpenAI's.",
        fields={**_CONTENT, "text": string()},
    ),
    EventKind(
        type="response.content_part.done",
        about="The part is complete.",
        fields={**_CONTENT, "part": ref("OutputPart")},
    ),
    EventKind(
        type="response.reasoning_summary_part.added",
        about="A part of a summary begins.",
        fields={**_SUMMARY, "part": ref("SummaryText")},
    ),
    EventKind(type="response.reasoning_summary_text.delta", about="More text of the summary.", fields=_delta(_SUMMARY)),
    EventKind(
        type="response.reasoning_summary_text.done",
        about="The whole text of the part.",
        fields={**_SUMMARY, "text": string()},
    ),
    EventKind(
        type="response.reasoning_summary_part.done",
        about="The part is complete.",
        fields={**_SUMMARY, "part": ref("SummaryText")},
    ),
    EventKind(
        type="response.function_call_arguments.delta",
        about="More of the arguments of a function call.",
        fields=_delta(_PLACE),
    ),
    EventKind(
        type="response.function_call_arguments.done",
        about="The whole arguments.",
        fields={**_PLACE, "name": string(), "arguments": string("JSON.")},
    ),
    EventKind(
        type="response.custom_tool_call_input.delta",
        about="The text for one of your tools that take text.",
        fields=_delta(_PLACE),
    ),
    EventKind(
        type="response.custom_tool_call_input.done", about="The whole text.", fields={**_PLACE, "input": string()}
    ),
    EventKind(type="response.mcp_list_tools.in_progress", about="The tools of a server follow.", fields=_PLACE),
    EventKind(type="response.mcp_list_tools.completed", about="The server has listed its tools.", fields=_PLACE),
    EventKind(type="response.mcp_list_tools.failed", about="The server has not listed its tools.", fields=_PLACE),
    EventKind(type="response.mcp_call.in_progress", about="The gateway runs a call.", fields=_PLACE),
    EventKind(type="response.mcp_call_arguments.delta", about="The arguments of the call.", fields=_delta(_PLACE)),
    EventKind(
        type="response.mcp_call_arguments.done",
        about="The whole arguments.",
        fields={**_PLACE, "arguments": string("JSON.")},
    ),
    EventKind(type="response.mcp_call.completed", about="The call has its output.", fields=_PLACE),
    EventKind(type="response.mcp_call.failed", about="The call has failed, or the run ended before it.", fields=_PLACE),
    *_hosted_events(),
    EventKind(
        type="response.output_item.done",
        about="The item is complete, as the response will have it.",
        fields={"output_index": integer(), "item": ref("OutputItem")},
    ),
    EventKind(
        type="error",
        about="The run failed, or its response could not be stored. `response.failed` usually follows.",
        fields={
            "error": record_of(_ERROR),
            "code": nullable(string()),
            "message": string(),
            "param": nullable(string()),
        },
    ),
    _whole("The last event of a response that is completed, or that waits for your outputs.", "response.completed"),
    _whole("The last event of a response that stopped at a limit, or was cancelled.", "response.incomplete"),
    _whole("The last event of a response that failed.", "response.failed"),
)
"""Every event of `/v1/responses`, roughly in the order in which they come."""


def build_event_schemas() -> dict[str, Schema]:
    """Build the schema of each event, of any event, and of the error message of a WebSocket."""
    schemas = {kind.schema_name: _event_schema(kind) for kind in EVENT_KINDS}
    socket_error = {**_ERROR, "code": string()}
    return {
        "ResponseEvent": variants(
            {kind.type: kind.schema_name for kind in EVENT_KINDS}, "The data of one event of a stream."
        ),
        **schemas,
        "SocketError": record_of(
            {
                "type": constant("error"),
                "status": integer("The HTTP status that the same error would have."),
                "error": record_of(socket_error),
                "stream_id": string(),
            },
            "The answer to a WebSocket message that is refused. The connection stays open.",
            optional=("stream_id",),
        ),
    }


def _event_schema(kind: EventKind) -> Schema:
    head = {
        "type": constant(kind.type),
        "sequence_number": integer("Counts the events of a response from 0."),
        **kind.fields,
        "stream_id": string("On a WebSocket: that of the message."),
    }
    return record_of(head, kind.about, optional=("stream_id", "obfuscation"))
