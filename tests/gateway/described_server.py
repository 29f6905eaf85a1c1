"""An MCP server whose tools are described as a test says; each call is remembered and answered alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.changing_server import ChangingServer


class DescribedServer(ChangingServer):
    """`DescribedServer({"name": "look", "inputSchema": {...}})`."""

    def __init__(self, *described: dict[str, Any], content: Sequence[dict[str, Any]] | None = None) -> None:
        """`content`: the blocks that each call returns, in place of a text."""
        super().__init__(*(each["name"] for each in described))
        self._content = content
        self._described = described
        self.call_arguments: list[dict[str, Any]] = []

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            return {"result": {"tools": list(self._described)}}
        answer = super()._result(method, params)
        if method == "tools/call":
            self.call_arguments.append(params["arguments"])
            if self._content is None:
                answer["result"]["structuredContent"] = {"a": "b"}
            else:
                answer["result"]["content"] = list(self._content)
        return answer
