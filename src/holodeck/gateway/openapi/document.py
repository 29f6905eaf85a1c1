"""The OpenAPI 3.1 document of the gateway, built from its routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from holodeck import __version__
from holodeck.gateway.http.error_codes import ERROR_CODES, ErrorCode, ErrorGroup, errors_of
from holodeck.gateway.http.replies import EVENTS, JSON
from holodeck.gateway.http.request import Route
from holodeck.gateway.http.request_scope import PROBE_PATHS
from holodeck.gateway.openapi.operations.all_operations import OPERATIONS, TAGS
from holodeck.gateway.openapi.operations.elicitation_operations import build_elicitation_schemas
from holodeck.gateway.openapi.operations.login_operations import build_login_schemas
from holodeck.gateway.openapi.operations.operation import Operation
from holodeck.gateway.openapi.operations.operator_operations import build_operator_schemas
from holodeck.gateway.openapi.schemas.body_schemas import build_body_schemas
from holodeck.gateway.openapi.schemas.event_schemas import build_event_schemas
from holodeck.gateway.openapi.schemas.input_schemas import item_schemas, part_schemas, tool_schemas
from holodeck.gateway.openapi.schemas.mcp_schemas import build_mcp_schemas
from holodeck.gateway.openapi.schemas.messages_schemas import build_messages_schemas
from holodeck.gateway.openapi.schemas.reply_schemas import build_reply_schemas
from holodeck.gateway.openapi.schemas.run_schemas import build_run_schemas
from holodeck.gateway.openapi.schemas.schema import Schema, any_of, ref
from holodeck.gateway.wire.messages.errors import status_of

_INFO = (
    "Models, agents and MCP tools behind the HTTP API that OpenAI's clients know.\n\n"
    "A field that is null counts as one that is left out, and a field that is not listed is refused by its name, "
    "unless the operator allows it for the model. "
    "Every reply has an `x-request-id`, which the gateway's log has too."
)
_PATH_PARAMETERS = {
    "id": "The id of the response, the run or the conversation, or the name of the model.",
    "file": "The name of the file, as the page has it.",
    "item_id": "The id of the item.",
    "elicitation_id": "The id of the question.",
    "name": "The name of the MCP server, or of the caller of a key.",
    "server": "The name of the MCP server.",
}
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key of the gateway, or a token of its identity provider. Without both, no key is needed.",
}


def build_document(routes: Iterable[Route]) -> dict[str, Any]:
    """Build the document of these routes. Raises `KeyError` for a route that has no description."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _build_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "HoloDeck gateway", "version": __version__, "description": _INFO},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": _BEARER},
            "schemas": _build_schemas(),
        },
        "x-error-codes": [_error_entry(each) for each in ERROR_CODES],
    }


def errors_of_route(route: Route) -> list[ErrorCode]:
    """The errors that a route can answer, beside those that any request can have."""
    return errors_of(error_groups_of(route))


def error_groups_of(route: Route) -> set[ErrorGroup]:
    """The groups of these errors: those of its operation, and those that the flags of the route imply."""
    groups: set[ErrorGroup] = set(OPERATIONS[route.method, route.path].errors)
    if route.path not in PROBE_PATHS:
        groups.add("load")
    if not route.is_public:
        groups.update(("caller", "drain"))
        if route.is_counted or route.counts_itself:
            groups.add("limits")
        if route.method == "POST":
            groups.update(("limits", "body"))
    if route.is_admin:
        groups.add("operator")
    if route.is_paid:
        groups.add("budget")
    return groups


def _build_operation(route: Route) -> dict[str, Any]:
    operation = OPERATIONS[route.method, route.path]
    names = re.findall(r"\{(\w+)\}", route.path)
    parameters = [_parameter(name, "path", {"type": "string"}, _PATH_PARAMETERS[name]) for name in names]
    for place, described in (("query", operation.query), ("header", operation.headers)):
        for name, schema in (described or {}).items():
            plain = {key: value for key, value in schema.items() if key != "description"}
            parameters.append(_parameter(name, place, plain, schema.get("description", "")))
    built: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        **({"parameters": parameters} if parameters else {}),
        "responses": _build_responses(route, operation),
    }
    if operation.body is not None:
        content = {"schema": ref(operation.body), "example": operation.example_body}
        built["requestBody"] = {"required": operation.is_body_required, "content": {JSON: content}}
    if route.is_public:
        built["security"] = []
    return built


def _parameter(name: str, place: str, schema: Schema, about: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "description": about, "schema": schema}


def _build_responses(route: Route, operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if operation.reply is not None:
        is_plain = operation.reply in ("string", "object")
        schema = {"type": operation.reply} if is_plain else ref(operation.reply)
        example = {} if operation.example is None else {"example": operation.example}
        content: dict[str, Any] = {operation.media_type: {"schema": schema, **example}}
        content |= {media_type: {"schema": {"type": "string"}} for media_type in operation.other_media_types}
        if operation.stream is not None:
            content[EVENTS] = {"schema": ref(operation.stream)}
        responses["200"] = {"description": "Done.", "content": content}
    for status, about in operation.empty_replies.items():
        responses[str(status)] = {"description": about}
    for status, about in sorted(_describe_errors(route, operation).items()):
        responses[str(status)] = {"description": about, "content": {JSON: {"schema": ref(operation.error)}}}
    for status, about in operation.error_pages.items():
        responses[str(status)] = {"description": about, "content": {"text/html": {"schema": {"type": "string"}}}}
    if operation.unready_reply is not None:
        either = any_of(ref(operation.unready_reply), ref("Error"))
        responses["503"] = {"description": "Not ready.", "content": {JSON: {"schema": either}}}
    responses["default"] = {"description": "Any other error.", "content": {JSON: {"schema": ref(operation.error)}}}
    return responses


def _describe_errors(route: Route, operation: Operation) -> dict[int, str]:
    """What each status of an error means: the codes that a reply can have, or in words where it has none of them."""
    by_status: dict[int, list[ErrorCode]] = {}
    for each in errors_of_route(route):
        status = status_of(each.code, each.status) if operation.error == "MessagesError" else each.status
        by_status.setdefault(status, []).append(each)
    if operation.error != "MCPError":
        return {
            status: ", ".join(f"`{each.code}`" for each in errors if each.code is not None)
            for status, errors in by_status.items()
        }
    about = {status: [each.when for each in errors] for status, errors in by_status.items()}
    for status, text in operation.refusals.items():
        about.setdefault(status, []).append(text)
    return {status: " ".join(texts) for status, texts in about.items()}


def _build_schemas() -> dict[str, Schema]:
    groups: list[Mapping[str, Schema]] = [
        build_body_schemas(),
        item_schemas(),
        part_schemas(),
        tool_schemas(),
        build_reply_schemas(),
        build_event_schemas(),
        build_messages_schemas(),
        build_mcp_schemas(),
        build_operator_schemas(),
        build_login_schemas(),
        build_run_schemas(),
        build_elicitation_schemas(),
    ]
    return {name: schema for group in groups for name, schema in group.items()}


def _error_entry(error: ErrorCode) -> dict[str, Any]:
    entry = asdict(error)
    return {**{key: entry[key] for key in ("status", "code", "when", "advice")}, "type": error.kind}
