"""Questions of MCP servers to a person (MCP elicitation), as a program meets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from holodeck.lib.record import record


@record
class Elicitation:
    """A question of an MCP server to a person, while it works on a call."""

    server: str
    message: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the answer: an object with simple members."""
    url: str = ""
    """A page that the person shall visit instead of giving an answer here. Empty: there is none."""

    @staticmethod
    def from_params(server: str, params: Mapping[str, Any]) -> Elicitation:
        """Return the question in the parameters of a server's request."""
        schema, url = params.get("requestedSchema"), params.get("url")
        return Elicitation(
            server=server,
            message=str(params.get("message") or ""),
            schema=schema if isinstance(schema, dict) else {},
            url=url if isinstance(url, str) else "",
        )

    def build_result(self, answer: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the result of the server's request. None: the person declines."""
        if answer is None:
            return {"action": "decline"}
        return {"action": "accept"} if self.url else {"action": "accept", "content": dict(answer)}
