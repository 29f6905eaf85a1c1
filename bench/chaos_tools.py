"""Tools with side effects, as an MCP server of its own: each execution is a line of a journal that only they write.

`python -m bench.chaos_tools JOURNAL` prints its URL and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

IDEMPOTENT = ("book", "reserve")
OTHERS = ("charge", "mail")
KEY = "holodeck/idempotency-key"
BEFORE = 0.15  # seconds at most until the effect; a caller may die before it, ...
AFTER = 0.15  # ... or between the effect and the answer


def tool_server(journal: int) -> MCPServer:
    """`journal` is a file that is open for appending: a line is one write, so lines never mix."""
    server = MCPServer("chaos")

    async def execute(name: str, job: str, step: int, key: str | None) -> str:
        await asyncio.sleep(random.uniform(0, BEFORE))
        line = json.dumps({"tool": name, "job": job, "step": step, "key": key})
        os.write(journal, line.encode() + b"\n")
        await asyncio.sleep(random.uniform(0, AFTER))
        return f"Step {step} is done."

    def offer(name: str) -> None:
        async def tool(ctx: Context[Any], job: str, step: int) -> str:
            """Do one step of a job."""
            meta: Any = ctx.request_context.meta or {}
            return await execute(name, job, step, meta.get(KEY))

        server.add_tool(tool, name=name)

    for name in (*IDEMPOTENT, *OTHERS):
        offer(name)
    return server


async def main(path: str) -> None:
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    listener = socket.create_server(("127.0.0.1", 0))
    app = tool_server(journal).streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = server.force_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
