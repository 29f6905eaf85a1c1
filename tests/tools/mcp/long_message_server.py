"""An MCP server over stdio, each of whose answers is as long as its first argument says, in bytes.

A call of the tool KIND is answered by the message that `MESSAGES` has for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

SIZE = int(sys.argv[1])
ANY_OBJECT = {"type": "object"}


def repeat(make: Callable[[int], Any], size: int = SIZE) -> list[Any]:
    """As many elements as have `size` bytes in JSON."""
    found: list[Any] = []
    while size > 0:
        found.append(make(len(found)))
        size -= len(json.dumps(found[-1], separators=(",", ":"))) + 1
    return found


def some_object(number: int) -> dict[str, Any]:
    return {"a": "some text"}


def describe_tool(name: object) -> dict[str, Any]:
    return {"name": str(name), "inputSchema": ANY_OBJECT}


def notify(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


LISTS: dict[str, Callable[[], dict[str, Any]]] = {
    "tools/list": lambda: {"tools": [*map(describe_tool, (*RESULTS, *BESIDE, "error")), *repeat(describe_tool)]},
    "prompts/list": lambda: {"prompts": repeat(lambda n: {"name": f"p{n}"})},
    "resources/list": lambda: {"resources": repeat(lambda n: {"uri": f"a:{n}", "name": "r"})},
    "resources/templates/list": lambda: {"resourceTemplates": repeat(lambda n: {"uriTemplate": f"a:{n}", "name": "r"})},
    "resources/read": lambda: {"contents": repeat(lambda n: {"uri": f"a:{n}", "text": "x"})},
    "prompts/get": lambda: {"messages": repeat(lambda _: {"role": "user", "content": {"type": "text", "text": "x"}})},
    "completion/complete": lambda: {"completion": {"values": repeat(str)}},
}
RESULTS: dict[str, Callable[[], dict[str, Any]]] = {
    "texts": lambda: {"content": repeat(lambda _: {"type": "text", "text": "x"})},
    "nothing": lambda: {"content": repeat(lambda _: {})},
    "numbers": lambda: {"content": repeat(lambda n: n)},
    "links": lambda: {"content": repeat(lambda n: {"type": "resource_link", "uri": f"a:{n}", "name": "r"})},
    "images": lambda: {"content": repeat(lambda _: {"type": "image", "mimeType": "image/png", "data": "AA=="})},
    "resources": lambda: {
        "content": repeat(lambda n: {"type": "resource", "resource": {"uri": f"a:{n}", "text": "x"}})
    },
    "structured": lambda: {"content": [], "structuredContent": {"a": repeat(lambda n: {"n": n})}},
    "structured twice": lambda: {
        "content": repeat(lambda n: {"type": "text", "text": f'{{"n":{n}}}'}),
        "structuredContent": {"n": -1},
    },
    "keys": lambda: {str(n): 0 for n in repeat(lambda n: n)},
}
BESIDE: dict[str, Callable[[], Any]] = {
    "a batch of objects": lambda: repeat(lambda _: {}),
    "a batch of numbers": lambda: repeat(lambda n: n),
    "a batch of notifications": lambda: repeat(lambda n: notify("notifications/progress", progressToken=n, progress=n)),
    "a log": lambda: notify("notifications/message", level="error", data=repeat(some_object)),
    "progress": lambda: notify("notifications/progress", progressToken=1, progress=1, message="x" * SIZE),
    "a question": lambda: {
        "id": "q",
        **notify("elicitation/create", message="x", requestedSchema={"properties": repeat(some_object)}),
    },
    "a model's turn": lambda: {"id": "s", **notify("sampling/createMessage", messages=repeat(some_object))},
    "an unknown request": lambda: {"id": "u", **notify("no/such", values=repeat(some_object))},
    "a foreign answer": lambda: {"jsonrpc": "2.0", "id": "none", "result": repeat(some_object)},
    "no message": lambda: {"values": repeat(some_object)},
}
CAPABILITIES: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}, "logging": {}}


def answer(message: dict[str, Any]) -> Iterator[Any]:
    method, request_id = message["method"], message.get("id")
    kind = message.get("params", {}).get("name")
    result: dict[str, Any] = {}
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": {"name": "x", "version": "1"}}
    elif method in LISTS:
        result = LISTS[method]()
    elif kind == "error":
        error = {"code": -32000, "message": "x", "data": repeat(some_object)}
        yield {"jsonrpc": "2.0", "id": request_id, "error": error}
        return
    elif kind in RESULTS:
        result = RESULTS[kind]()
    elif kind in BESIDE:
        yield BESIDE[kind]()
        result = {"content": []}
    elif method == "server/discover":
        yield {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": "no such method"}}
        return
    if request_id is not None:
        yield {"jsonrpc": "2.0", "id": request_id, "result": result}


if __name__ == "__main__":
    for line in sys.stdin:
        received = json.loads(line)
        for sent in answer(received) if "method" in received else ():
            print(json.dumps(sent, separators=(",", ":")), flush=True)
