"""The MCP server side of HoloDeck for clients that others wrote: one gateway file, served over stdio and over HTTP.

A client's program gets `URL KEY COMMAND...` as its arguments. It lists the tools and calls one, with the command over
stdio and with the key over HTTP, tries the URL with another key, and prints its answers as one JSON object.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, gateway_config

from holodeck.testing import FaultyMCPServer, ScriptedModel, call_raw, say
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import Received

KEY = "hd-ada"
EXPECTED = {
    "tools over stdio": "add, echo",
    "sum over stdio": "3",
    "tools over HTTP": "add, echo",
    "sum over HTTP": "3",
    "another key": "refused",
}


@dataclass(frozen=True, kw_only=True)
class Doors:
    """The two ways to the same servers."""

    url: str
    key: str
    command: tuple[str, ...]
    """Starts the one over stdio."""

    @property
    def arguments(self) -> list[str]:
        """Those of a client's program."""
        return [self.url, self.key, *self.command]


def _answer(received: Received) -> Turn:
    """The model of a client that needs one: it calls the tool that its client has from HoloDeck over one of the ways.

    The last words of the question name the way, which is also the name of the server in the client's configuration.
    """
    messages = received.json["messages"]
    if messages[-1]["role"] == "tool":
        return say(f"It is {_text(messages[-1]['content'])}.")
    question = next(_text(each["content"]) for each in reversed(messages) if each["role"] == "user")
    way = question.split()[-1]
    names = [tool["function"]["name"] for tool in received.json["tools"]]
    if "tools" in question:
        return say(", ".join(sorted(name.rpartition("__")[2] for name in names if way in name)))
    return call_raw(next(name for name in names if way in name and name.endswith("add")), '{"a":1,"b":2}')


def _text(content: object) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)  # type: ignore[attr-defined]


@asynccontextmanager
async def open_doors(folder: Path) -> AsyncIterator[Doors]:
    """Serve the file at both doors, with one key for HTTP."""
    async with FaultyMCPServer() as server, ScriptedModel(_answer).serve() as model:
        config = gateway_config(model.url, {"sums": server}, keys=[KEY])
        config["mcp_servers"][0]["allowed_tools"] = ["add", "echo"]
        file = write_gateway_file(folder, model.url, **config)
        async with run_gateway_process(file) as gateway:
            command = (sys.executable, "-m", "holodeck", "mcp", "serve", str(file))
            yield Doors(url=gateway.url, key=KEY, command=command)


__all__ = ["EXPECTED", "MODEL", "Doors", "open_doors"]
