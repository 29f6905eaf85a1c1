"""Servers that get the same requests: our gateway, the limit and the gateways of others, each in its own process."""

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench import agentic_api, litellm_proxy, smg_router
from bench.gateway_model import EVENTS, MODELS, OTHER_WORD, TOOL, TOOL_TEXT, WORD
from bench.http_load import RequestPlan, encode_post
from bench.processes import module_command, run_server, stop_at_end
from holodeck.gateway.auth.callers import hash_key
from holodeck.testing import FaultyMCPServer

KEY = f"sk-{secrets.token_hex(16)}"
Endpoint = Literal["responses", "chat"]
"""Where a gateway is asked: `/v1/responses`, where answers are stored, or `/v1/chat/completions`."""
PASSING = ("limit", "usual")
"""Pass-throughs, which know chat completions only: see the modules `gateway_limit` and `gateway_usual`."""
AT_ONCE = 20_000
"""Requests that our gateway is told to take on: more than the bench has."""
_START_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server that is measured, and how requests to it are built."""

    name: str
    pid: int
    url: str
    tools: list[dict[str, Any]] = field(default_factory=list)
    """What a request declares so that the gateway runs the tool. Ours has it in its file."""

    def plan_requests(self, model: str, *, endpoint: Endpoint = "responses") -> RequestPlan:
        """Return what to send for each of the models: the same to all gateways. The rest know chat completions only.

        With tools, LiteLLM's `/v1/responses` needs a model that has it too, so that case uses chat completions.
        """
        streamed = model in {"stream", "paced", "wait"}
        marks = EVENTS // 2 if model in {"stream", "paced"} else 1
        mark = (OTHER_WORD if streamed else WORD).encode()
        has_responses = self.name not in {"model", *PASSING} and (self.name != "LiteLLM" or model != "tool")
        requests = self._requests(model, stream=streamed, endpoint=endpoint if has_responses else "chat")
        return RequestPlan(requests=requests, mark=mark, marks=marks)

    def _requests(self, model: str, *, stream: bool, endpoint: Endpoint) -> list[bytes]:
        body: dict[str, Any] = {"model": model, "stream": stream}
        if self.tools and model == "tool":
            body["tools"] = self.tools
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
def run_targets(folder: Path, others: Collection[str], before: Path | None = None) -> Iterator[dict[str, Target]]:
    """Run all of them, by name; the model itself is one too. `before`: the folder of another revision of ours."""
    with ExitStack() as stack:
        pid, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        _, mcp = stack.enter_context(run_server(FaultyMCPServer.command("normal", transport="http")))
        found = {"model": Target(name="model", pid=pid, url=model)}
        found["holodeck"] = stack.enter_context(run_holodeck(folder, model, mcp))
        for name in PASSING:
            pid, url = stack.enter_context(run_server(module_command(f"bench.gateway_{name}", model, mcp)))
            found[name] = Target(name=name, pid=pid, url=url)
        if before is not None:
            (apart := folder / "before").mkdir()
            environ = {"PYTHONPATH": str(before / "src")}
            found["before"] = stack.enter_context(run_holodeck(apart, model, mcp, environ=environ))
        for name, run in _OTHERS.items():
            if name in others:
                found[name] = stack.enter_context(run(folder, model, mcp))
        yield found


@contextmanager
def run_holodeck(
    folder: Path,
    model: str,
    mcp: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    storage: str | None = None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Target]:
    """`holodeck serve`, as an operator runs it: a key, SQLite, MCP servers, and limits that fit the load.

    `storage`: the URL of another database. `more`: models beside those of all measurements, by name.
    """

    def model_entry(name: str) -> dict[str, Any]:
        where = {"provider": "openai_compatible", "name": name, "endpoint": f"{model}/v1"}
        return {"name": name, "model": where, "use_mcp": name == "tool"}

    port = _free_port()
    server = {"type": "mcp", "name": "bench", "description": "the tools", "transport": "http", "url": mcp}
    config = {
        "listen": {"port": port},
        "models": [
            *(model_entry(name) for name in MODELS),
            *({"name": name, "model": llm} for name, llm in (more or {}).items()),
        ],
        "mcp_servers": [server] if mcp else [],
        "keys": [{"name": "bench", "hash": hash_key(KEY)}],
        "limits": {"in_flight": AT_ONCE, "key": {"in_flight": AT_ONCE}, "drain_seconds": 1},
    }
    if storage is not None:
        # Its password may not stand in the file.
        config["storage"] = {"url": "${BENCH_STORAGE}"}
        environ = {**(environ or {}), "BENCH_STORAGE": storage}
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
        yield Target(name="LiteLLM", pid=pid, url=f"http://127.0.0.1:{port}", tools=litellm_proxy.TOOLS)


@contextmanager
def _run_smg(folder: Path, model: str, mcp: str) -> Iterator[Target]:
    port = _free_port()
    command = smg_router.build_command(port=port, metrics_port=_free_port(), model=model, key=KEY)
    with _start_server(command, port, "/health", folder / "smg.log") as pid:
        yield Target(name="smg", pid=pid, url=f"http://127.0.0.1:{port}", tools=_declare(mcp))


@contextmanager
def _run_agentic_api(folder: Path, model: str, mcp: str) -> Iterator[Target]:
    port = _free_port()
    command = agentic_api.build_command(port=port, model=model, database=folder / "agentic.db")
    environ = {"OPENAI_API_KEY": KEY, "HOME": str(folder), "RUST_LOG": "error"}
    with _start_server(command, port, "/health", folder / "agentic.log", environ=environ) as pid:
        yield Target(name="agentic-api", pid=pid, url=f"http://127.0.0.1:{port}", tools=_declare(mcp))


def _declare(mcp: str) -> list[dict[str, Any]]:
    return [{"type": "mcp", "server_label": "bench", "server_url": mcp, "require_approval": "never"}]


_OTHERS = {"LiteLLM": _run_litellm, "smg": _run_smg, "agentic-api": _run_agentic_api}


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
