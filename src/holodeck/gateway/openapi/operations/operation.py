"""The description of one route, from which its part of the OpenAPI document and of the reference is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from holodeck.gateway.http.error_codes import ErrorGroup
from holodeck.gateway.http.replies import JSON
from holodeck.gateway.openapi.schemas.schema import Schema
from holodeck.lib.record import record


@record
class Operation:
    """What a route does, for the reader of the document: its fields, replies, errors and an example."""

    id: str
    tag: str
    summary: str
    description: str
    reply: str | None
    """The name of the schema of a successful reply, or its media type where that is no JSON. None: it has no body."""
    example: Any
    body: str | None = None
    """The name of the schema of the request body."""
    is_body_required: bool = True
    example_body: Any = None
    stream: str | None = None
    """The name of the schema of each event, for routes that can stream."""
    query: dict[str, Schema] | None = None
    headers: dict[str, Schema] | None = None
    """The headers of a request that it may have."""
    errors: tuple[ErrorGroup, ...] = ()
    """Beside those that the flags of the route imply."""
    media_type: str = JSON
    other_media_types: tuple[str, ...] = ()
    """Others of a successful reply, for clients that accept them: text."""
    error: str = "Error"
    """The name of the schema of an error."""
    unready_reply: str | None = None
    """The name of the schema of a reply with status 503 that is no error."""
    empty_replies: Mapping[int, str] = field(default_factory=dict)
    """Successful replies without a body: their statuses, and what each means."""
    error_pages: Mapping[int, str] = field(default_factory=dict)
    """Errors that a person sees in a browser, as pages of HTML: by status, when they happen."""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Errors of a route with JSON-RPC that have no code in the table of errors: by status, when they happen."""
