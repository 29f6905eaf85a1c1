"""FastMCP's proxy, in an environment of its own, set up as it costs least.

`python -m bench.fastmcp_proxy http URL` serves at an address that it prints; `stdio COMMAND ...` serves its standard
input. It is run by the Python of that environment, which has nothing else of the bench.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from pathlib import Path
from typing import Any

VERSION = "4.1.2"
NOTE = f"fastmcp is {VERSION}, with one session for all calls instead of one for each, and uvloop"
# Seconds that a connection stays open while the others are measured.
KEEP_ALIVE = 600


def install() -> Path:
    """The Python that has it, installed on first use."""
    from bench.cached_environment import install_program

    program = install_program("fastmcp", VERSION, beside=("uvloop", "httptools"), size="some fifty megabytes")
    return program.with_name("python")


async def main(over: str, *behind: str) -> None:
    import uvicorn
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport
    from fastmcp.server import create_proxy

    # A name of a tool that it does not like is a warning with each list.
    logging.disable(logging.WARNING)
    server: Any = behind[0] if over == "http" else StdioTransport(behind[0], [*behind[1:]])
    # A client that is not connected would be connected anew for each request.
    async with Client(server, mode="legacy") as client:
        proxy = create_proxy(client, name="proxy")
        if over == "stdio":
            await proxy.run_stdio_async(show_banner=False)
            return
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        # Plain JSON costs it less than the event streams that it would send by default.
        app = proxy.http_app(json_response=True)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=1
        )
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(*sys.argv[1:]))
    else:
        asyncio.run(main(*sys.argv[1:]))
