"""The OpenAPI 3.1 document of the gateway, built from its routes, and the route that serves it without a key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from holodeck import __version__
from holodeck.gateway.api.route import Route, route
from holodeck.gateway.http.error_codes import ERROR_CODES, ErrorCode, ErrorGroup, errors_of
from holodeck.gateway.http.observation import PROBE_PATHS
from holodeck.gateway.http.replies import EVENTS, JSON, Reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.openapi.schemas.body_schemas import build_body_schemas
from holodeck.gateway.openapi.schemas.event_schemas import build_event_schemas
from holodeck.gateway.openapi.schemas.input_schemas import item_schemas, part_schemas, tool_schemas
from holodeck.gateway.openapi.schemas.mcp_schemas import build_mcp_schemas
from holodeck.gateway.openapi.schemas.messages_schemas import build_messages_schemas
from holodeck.gateway.openapi.schemas.operator_schemas import build_operator_schemas
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


TAGS = {
    "Responses": (
        "A response is one answer of the model, with the tool calls that it took.\n\n"
        "The same requests can be sent over a WebSocket: open `/v1/responses` with the `Authorization` header, and "
        "send each request as a text message (schema `SocketMessage`: the body of `POST /v1/responses` with "
        '`"type": "response.create"`). The events of the response come back as messages, each one JSON object '
        "(schema `ResponseEvent`). One response runs at a time, and further messages wait. A message that is refused "
        "is answered by an `error` message (schema `SocketError`), and the connection stays open. With "
        '`"store": false` a message can still continue the latest responses of its own connection.'
    ),
    "Chat completions": "The older API, with the same models and tools. Nothing is stored.",
    "Messages": (
        "Anthropic's Messages API, with the same models and tools. Nothing is stored. A key may be sent as "
        "`x-api-key`, and errors have the form of this API."
    ),
    "Embeddings and completions": (
        "Bodies that are handed on to the provider of a model as they are. A model of the file has these routes if its "
        "provider has them: `openai`, `azure_openai`, `ollama` and `openai_compatible`. Tools are not "
        "involved. The rehearsal model of these examples has none of them."
    ),
    "Conversations": "A conversation stores items. Responses that name it read and extend it.",
    "Runs and usage": (
        "What was asked, what it took and what it cost. A caller sees its own; an operator's key without a scope sees "
        "everything."
    ),
    "Models": "The models and agents of this gateway.",
    "MCP servers": "The MCP servers of this gateway. These routes need an operator's key.",
    "Keys": (
        "The keys of callers, in the gateway's file. These routes need an operator's key, and a file that the gateway "
        "may write. What they change is in force when the reply comes."
    ),
    "Persons": (
        "Persons log in with the identity provider of `jwt`, and use the console, or this API from a page of this "
        "gateway, by a cookie. A request with it that changes anything has to come from such a page."
    ),
    "MCP": (
        "The gateway as an MCP server, over streamable HTTP. `/mcp` has the tools, prompts and resources of all MCP "
        "servers, and the agents as tools; `/mcp/{server}` has those of one server. The messages are those of the "
        "Model Context Protocol, versions 2024-11-05 to 2026-07-28. Use an MCP client."
    ),
    "Operation": "Health, metrics, this document and the console.",
}
"""What belongs together, in the order of the document."""


def build_document(routes: Iterable[Route]) -> dict[str, Any]:
    """Build the document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for each in routes:
        paths.setdefault(each.path, {})[each.method.lower()] = _build_operation(each)
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
    """Return the errors that a route can answer, beside those that any request can have."""
    return errors_of(error_groups_of(route))


def error_groups_of(route: Route) -> set[ErrorGroup]:
    """Return the groups of these errors: those that the route declares, and those that its flags imply."""
    groups: set[ErrorGroup] = set(route.errors)
    if route.path not in PROBE_PATHS:
        groups.add("load")
    if not route.is_public:
        groups.update(("caller", "drain"))
        if route.is_counted or route.counts_itself:
            groups.add("limits")
        if route.method == "POST":
            groups.update(("limits", "body"))
    if route.is_paid:
        groups.add("budget")
    return groups


def _describe_route(route: Route) -> str:
    """Return the description of a route, with the roles of which a caller needs one."""
    if not route.roles:
        return route.description
    *most, last = route.roles
    listed = f"{', '.join(most)} or {last}" if most else last
    others = ", or what is said above" if route.checks_caller else ""
    return f"{route.description}\n\nNeeds a key with the role {listed}{others}."


def _build_operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", route.path)
    parameters = [_parameter(name, "path", {"type": "string"}, _PATH_PARAMETERS[name]) for name in names]
    for place, declared in (("query", route.query), ("header", route.headers)):
        parameters += [_parameter(each.name, place, each.build_schema(), each.about) for each in declared]
    built: dict[str, Any] = {
        "operationId": route.id,
        "tags": [route.tag],
        "summary": route.summary,
        "description": _describe_route(route),
        **({"parameters": parameters} if parameters else {}),
        "responses": _build_responses(route),
    }
    if route.body is not None:
        content = {"schema": ref(route.body), "example": route.example_body}
        built["requestBody"] = {"required": route.is_body_required, "content": {JSON: content}}
    if route.is_public:
        built["security"] = []
    return built


def _parameter(name: str, place: str, schema: Schema, about: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "description": about, "schema": schema}


def _build_responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if route.reply is not None:
        schema = ref(route.reply) if isinstance(route.reply, str) else dict(route.reply)
        example = {} if route.example is None else {"example": route.example}
        content: dict[str, Any] = {route.media_type: {"schema": schema, **example}}
        content |= {media_type: {"schema": {"type": "string"}} for media_type in route.other_media_types}
        if route.stream is not None:
            content[EVENTS] = {"schema": ref(route.stream)}
        responses["200"] = {"description": "Done.", "content": content}
    for status, about in route.empty_replies.items():
        responses[str(status)] = {"description": about}
    for status, about in sorted(_describe_errors(route).items()):
        responses[str(status)] = {"description": about, "content": {JSON: {"schema": ref(route.error)}}}
    for status, name in route.other_replies.items():
        responses[str(status)] = {"description": _OTHER_REPLIES[name], "content": {JSON: {"schema": ref(name)}}}
    for status, about in route.error_pages.items():
        responses[str(status)] = {"description": about, "content": {"text/html": {"schema": {"type": "string"}}}}
    if route.unready_reply is not None:
        either = any_of(ref(route.unready_reply), ref("Error"))
        responses["503"] = {"description": "Not ready.", "content": {JSON: {"schema": either}}}
    responses["default"] = {"description": "Any other error.", "content": {JSON: {"schema": ref(route.error)}}}
    return responses


_OTHER_REPLIES = {"RegisteredClient": "Registered.", "OAuthError": "Refused, in the words of OAuth."}


def _describe_errors(route: Route) -> dict[int, str]:
    """Describe each status of an error: the codes that a reply can have, or in words where it has none of them."""
    by_status: dict[int, list[ErrorCode]] = {}
    for each in errors_of_route(route):
        status = status_of(each.code, each.status) if route.error == "MessagesError" else each.status
        by_status.setdefault(status, []).append(each)
    if route.error != "MCPError":
        return {
            status: ", ".join(f"`{each.code}`" for each in errors if each.code is not None)
            for status, errors in by_status.items()
        }
    about = {status: [each.when for each in errors] for status, errors in by_status.items()}
    for status, text in route.refusals.items():
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
        build_run_schemas(),
    ]
    return {name: schema for group in groups for name, schema in group.items()}


def _error_entry(error: ErrorCode) -> dict[str, Any]:
    entry = asdict(error)
    return {**{key: entry[key] for key in ("status", "code", "when", "advice")}, "type": error.kind}


class DocumentEndpoint:
    """Serves the document of a gateway's routes. It is built at the first request."""

    def __init__(self, get_routes: Callable[[], Iterable[Route]]) -> None:
        self._get_routes = get_routes
        self._encoded: bytes | None = None

    @route(
        "GET",
        "/openapi.json",
        id="getDocument",
        tag="Operation",
        summary="Get this document",
        description="It has no secrets, and is the same for every caller.",
        reply={"type": "object"},
        is_public=True,
    )
    async def get(self, request: Request) -> Reply:
        if self._encoded is None:
            # Schemas of the whole API: a gateway starts without them.
            from holodeck.gateway.openapi.document import build_document

            self._encoded = orjson.dumps(build_document(self._get_routes()))
        return Reply(body=self._encoded)
