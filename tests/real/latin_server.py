"""A small server that speaks Latin-1 over its pipes, as one does that was written before UTF-8 was everywhere."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "latin", "version": "1"}
        return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": params["arguments"]["text"]}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        message = json.loads(line.decode("latin-1"))
        if "id" in message:
            answered = {"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], message.get("params", {}))}
            sys.stdout.buffer.write(json.dumps(answered, ensure_ascii=False).encode("latin-1") + b"\n")
            sys.stdout.buffer.flush()
