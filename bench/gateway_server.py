"""The gateway with a model at zero think time, and a bare application on the same server, for `bench.gateway`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import orjson
import uvicorn
import uvloop

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.backends import Backend
from holodeck.gateway.serving import Service
from holodeck.lib.log_lines import write_log
from holodeck.models.exchange import Answered, ModelEvent, ModelRequest, TextDelta
from holodeck.models.gateway import GatewayFile
from holodeck.models.items import Usage, said
from holodeck.models.llm import LLM
from holodeck.tools.mcp.executor import MCPExecutor

DELTAS = 200
TEXT = "word "
DISCARDED = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the log, which costs the same wherever it goes


class Instant:
    """A model that answers at once, in as many pieces as it is asked for."""

    name = "instant"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        pieces = DELTAS if request.temperature == 0 else 1
        for _ in range(pieces):
            yield TextDelta(text=TEXT)
        usage = Usage(input_tokens=10, output_tokens=pieces)
        yield Answered(items=(said("assistant", TEXT * pieces),), finish="stop", usage=usage)

    async def close(self) -> None:
        """There is nothing to let go of."""


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """The least that a gateway can do: read the body, answer with as many events."""
    if scope["type"] != "http":
        return
    body = orjson.loads((await receive())["body"])
    headers = [(b"content-type", b"text/event-stream" if body.get("stream") else b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if body.get("stream"):
        for number in range(DELTAS):
            event = orjson.dumps({"type": "response.output_text.delta", "sequence_number": number, "delta": TEXT})
            piece = b"event: response.output_text.delta\ndata: %b\n\n" % event
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": orjson.dumps({"id": "x", "output": [TEXT]})})


async def main(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if kind == "bare":
            listener = socket.create_server(("127.0.0.1", 0))
            print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
            config = uvicorn.Config(bare, log_config=None, access_log=False, lifespan="off")
            await uvicorn.Server(config).serve(sockets=[listener])
            return
        write_log("text", "info", DISCARDED)
        gateway = GatewayFile.model_validate({"listen": {"port": 0}})
        path = Path(folder) / "gateway.yaml"
        loaded = LoadedGateway(gateway=gateway, path=path, agents={}, servers=(), warnings=())
        backend = Backend(name="instant", created=int(time.time()), llm=LLM(), provider=Instant(), mcp=MCPExecutor([]))
        await Service(loaded, {"instant": backend}).run(lambda url: print(url, flush=True))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
