"""Servers that get the same requests: our gateway, the limit, LiteLLM's proxy and smg, each in its own process."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench import litellm_proxy, smg_router
from bench.gateway_model import EVENTS, OTHER_WORD, TOOL, TOOL_TEXT, WORD
from bench.http_load import RequestPlan, encode_post
from bench.processes import module_command, run_server, stop_at_end
from holodeck.gateway.auth.callers import hash_key
from holodeck.testing import FaultyMCPServer

MODELS = ("plain", "stream", "paced", "tool", "wait")
KEY = f"sk-{secrets.token_hex(16)}"
Endpoint = Literal["responses", "chat"]
"""Where a gateway is asked: `/v1/responses`, where answers are stored, or `/v1/chat/completions`."""
AT_ONCE = 20_000
"""Requests that our gateway is told to take on: more than the bench has."""
_START_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server that is measured, and how requests to it are built."""

    name: str
    pid: int
    url: str

    def can_answer(self, model: str) -> bool:
        """Whether it does what this model is about: smg runs no tools here, see `smg_router`."""
        return self.name != "smg" or model != "tool"

    def plan_requests(self, model: str, *, endpoint: Endpoint = "responses") -> RequestPlan:
        """What to send for each of the models: the same to both gateways. The rest know chat completions only.

        With tools, LiteLLM's `/v1/responses` needs a model that has it too, so that case uses chat completions.
        """
        streamed = model in {"stream", "paced", "wait"}
        marks = EVENTS // 2 if model in {"stream", "paced"} else 1
        mark = (OTHER_WORD if streamed else WORD).encode()
        has_doors = self.name == "holodeck" or (self.name == "LiteLLM" and model != "tool")
        requests = self._requests(model, stream=streamed, endpoint=endpoint if has_doors else "chat")
        return RequestPlan(requests=requests, mark=mark, marks=marks)

    def _requests(self, model: str, *, stream: bool, endpoint: Endpoint) -> list[bytes]:
        body: dict[str, Any] = {"model": model, "stream": stream}
        if self.name == "LiteLLM" and model == "tool":
            body["tools"] = litellm_proxy.TOOLS
        if endpoint == "responses":
            return [encode_post(self.url, "/v1/responses", {**body, "input": TOOL_TEXT}, key=KEY)]
        chat = {**body, "messages": [{"role": "user", "content": TOOL_TEXT}]}
        turns = _two_turns(chat) if self.name == "model" and model == "tool" else [chat]
        return [encode_post(self.url, "/v1/chat/completions", turn, key=KEY) for turn in turns]


def _two_turns(chat: dict[str, Any]) -> list[dict[str, Any]]:
    """The requests of a client that runs the loop itself, without the call between."""
    output = {"role": "tool", "tool_call_id": "call_1", "content": TOOL_TEXT}
    tools = [{"type": "function", "function": {"name": TOOL, "parameters": {}}}]
    return [{**chat, "tools": tools}, {**chat, "tools": tools, "messages": [*chat["messages"], output]}]


@contextmanager
def run_targets(folder: Path, *, has_litellm: bool, has_smg: bool) -> Iterator[dict[str, Target]]:
    """All of them, by name; the model itself is one too."""
    with ExitStack() as stack:
        pid, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        _, mcp = stack.enter_context(run_server(FaultyMCPServer.command("normal", transport="http")))
        found = {"model": Target(name="model", pid=pid, url=model)}
        found["holodeck"] = stack.enter_context(run_holodeck(folder, model, mcp))
        pid, url = stack.enter_context(run_server(module_command("bench.gateway_limit", model, mcp)))
        found["limit"] = Target(name="limit", pid=pid, url=url)
        if has_litellm:
            found["LiteLLM"] = stack.enter_context(_run_litellm(folder, model, mcp))
        if has_smg:
            found["smg"] = stack.enter_context(_run_smg(folder, model))
        yield found


@contextmanager
def run_holodeck(
    folder: Path, model: str, mcp: str | None = None, *, environ: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """`holodeck serve`, as an operator runs it: a key, SQLite, MCP servers, and limits that fit the load."""

    def model_entry(name: str) -> dict[str, Any]:
        where = {"provider": "openai_compatible", "name": name, "endpoint": f"{model}/v1"}
        return {"name": name, "model": where, "use_mcp": name == "tool"}

    port = _free_port()
    server = {"type": "mcp", "name": "bench", "description": "the tools", "transport": "http", "url": mcp}
    config = {
        "listen": {"port": port},
        "models": [model_entry(name) for name in MODELS],
        "mcp_servers": [server] if mcp else [],
        "keys": [{"name": "bench", "hash": hash_key(KEY)}],
        "limits": {"in_flight": AT_ONCE, "key": {"in_flight": AT_ONCE}, "drain_seconds": 1},
    }
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(config))
    command = module_command("holodeck", "serve", str(file))
    with _start_server(command, port, "/healthz", folder / "holodeck.log", environ=environ) as pid:
        yield Target(name="holodeck", pid=pid, url=f"http://127.0.0.1:{port}")


@contextmanager
def _run_litellm(folder: Path, model: str, mcp: str) -> Iterator[Target]:
    port = _free_port()
    file = folder / "litellm.yaml"
    file.write_text(json.dumps(litellm_proxy.build_config(MODELS, model, mcp)))
    command = [str(litellm_proxy.install()), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    environ = {**litellm_proxy.ENVIRON, "LITELLM_MASTER_KEY": KEY}
    log = folder / "litellm.log"
    with _start_server([*command, "--telemetry", "False"], port, "/health/liveliness", log, environ=environ) as pid:
        yield Target(name="LiteLLM", pid=pid, url=f"http://127.0.0.1:{port}")


@contextmanager
def _run_smg(folder: Path, model: str) -> Iterator[Target]:
    port = _free_port()
    command = smg_router.build_command(port=port, metrics_port=_free_port(), model=model, key=KEY)
    with _start_server(command, port, "/health", folder / "smg.log") as pid:
        yield Target(name="smg", pid=pid, url=f"http://127.0.0.1:{port}")


@contextmanager
def _start_server(
    command: Sequence[str], port: int, path: str, log: Path, *, environ: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A server on a port that was chosen for it, once it answers there; the id of its process."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLODECK_", "LITELLM_"))}
    clean["HOLODECK_TRUST"] = "all"
    with log.open("w") as written:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            text=True,
            env=clean | dict(environ or {}),
        )
    with stop_at_end(process):
        deadline = time.monotonic() + _START_SECONDS
        while not _is_answering(f"http://127.0.0.1:{port}{path}"):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[0]} did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield process.pid


def _is_answering(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
