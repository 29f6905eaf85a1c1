"""What the routes of the questions of MCP servers do, and their schemas."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.endpoints.elicitations import ACTIONS
from holodeck.gateway.http.error_codes import ErrorGroup
from holodeck.gateway.openapi.operations.operation import Operation
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    array,
    body_of,
    choice,
    constant,
    integer,
    mapping,
    record_of,
    ref,
    string,
)

_STORED_ERRORS: tuple[ErrorGroup, ...] = ("lookup", "storage")
_PATH = "/v1/responses/{id}/elicitations"
_QUESTION: dict[str, Any] = {
    "id": "elic_5f2b8f1f4bb24d3f8f4a1d0a3a0a4d5e",
    "object": "elicitation",
    "response_id": "resp_5f2b8f1f4bb24d3f8f4a1d0a3a0a4d5e",
    "call_id": "mcp_0a4d5e8f4a1d0a3a5f2b8f1f4bb24d3f",
    "server_label": "bookings",
    "message": "For how many people?",
    "mode": "form",
    "requested_schema": {"type": "object", "properties": {"people": {"type": "integer"}}, "required": ["people"]},
    "created_at": 1781000000,
    "expires_at": 1781000600,
}

ELICITATION_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", _PATH): Operation(
        id="listElicitations",
        tag="Responses",
        summary="List the open questions of MCP servers",
        description=(
            "An MCP server may ask the person something while it works on a call (elicitation). A request with "
            '`"elicitation": "ask"` says that its client reads these questions and answers them; the call waits '
            "meanwhile. Ask about once a second while a call runs. A response that has ended has no open questions."
        ),
        reply="ElicitationList",
        example={"object": "list", "data": [_QUESTION]},
        errors=_STORED_ERRORS,
    ),
    ("POST", f"{_PATH}/{{elicitation_id}}"): Operation(
        id="answerElicitation",
        tag="Responses",
        summary="Answer a question of an MCP server",
        description=(
            "The answer goes to the server, at whichever gateway its call runs, and is not stored for longer than "
            "that takes. `decline` says no to the question, `cancel` that it was put aside without an answer. Content "
            "that does not fit the schema of the question is refused, and the question stays open."
        ),
        body="AnswerElicitation",
        example_body={"action": "accept", "content": {"people": 2}},
        reply="Elicitation",
        example={**_QUESTION, "status": "answered"},
        errors=(*_STORED_ERRORS, "fields", "elicitation"),
    ),
}


def build_elicitation_schemas() -> dict[str, Schema]:
    """Everything that these routes take and send, by the name of its schema."""
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
        "AnswerElicitation": body_of(
            {
                "action": choice(ACTIONS),
                "content": mapping("The members of an accepted form. A member that is left out has its default."),
            },
            required=("action",),
        ),
    }
