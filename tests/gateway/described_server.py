"""An MCP server whose tools are described as a test says; each call is remembered and answered alike."""

from __future__ import annotations

from typing import Any

from gateway.changing_server import ChangingServer


class DescribedServer(ChangingServer):
    """`DescribedServer({"name": "look", "inputSchema": {...}})`."""

    def __init__(self, *described: dict[str, Any]) -> None:
        super().__init__(*(each["name"] for each in described))
        self._described = described
        self.call_arguments: list[dict[str, Any]] = []

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            return {"result": {"tools": list(self._described)}}
        answer = super()._result(method, params)
        if method == "tools/call":
            self.call_arguments.append(params["arguments"])
            answer["result"]["structuredContent"] = {"a": "b"}
        return answer
