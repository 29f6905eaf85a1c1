"""`/openapi.json`: the OpenAPI document. It has no secrets, so it needs no key."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from holodeck.gateway.http.replies import Reply
from holodeck.gateway.http.request import Request, Route


class DocumentEndpoint:
    """Serves the document of `routes`, which are set once they are known. It is built at the first request."""

    def __init__(self) -> None:
        self.routes: Sequence[Route] = ()
        self._encoded: bytes | None = None

    async def get(self, request: Request) -> Reply:
        if self._encoded is None:
            # Schemas of the whole API: a gateway starts without them.
            from holodeck.gateway.openapi.document import build_document

            self._encoded = orjson.dumps(build_document(self.routes))
        return Reply(body=self._encoded)
