"""A small MCP server of a person's own: one file, without any package, over standard input and output."""

from __future__ import annotations

import json
import sys

TOOL = {"name": "hello", "description": "Says hello.", "inputSchema": {"type": "object", "properties": {}}}
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "own", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "hello " + " ".join(sys.argv[1:])}]},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in ANSWERS:
        answer["result"] = ANSWERS[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "There is no such method."}
    print(json.dumps(answer), flush=True)
