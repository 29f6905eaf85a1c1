"""`/openapi.json`: the OpenAPI document. It has no secrets, so it needs no key."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import orjson

from holodeck.gateway.api.route import Route, route
from holodeck.gateway.http.replies import Reply
from holodeck.gateway.http.request import Request


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
