"""A gateway with the server of the suite's scenarios behind it, whose MCP endpoint is what the suite tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from conformance.suite import ROOT

MODERN_LEG = "2026-07-28"


@contextmanager
def run_tested_gateway(folder: Path, leg: str) -> Iterator[str]:
    """Serve the endpoint, and yield its URL. The server behind speaks the era of the leg."""
    server = {
        "name": "tested",
        "transport": "stdio",
        "command": "python",
        "args": [str(ROOT / "tests/conformance/tested_server.py")],
        "protocol": "modern" if leg == MODERN_LEG else "legacy",
        "sampling": "allow",
    }
    file = folder / "gateway.yaml"
    config = {
        "listen": {"port": 0},
        "allow_stdio": True,
        "allowed_commands": ["python"],
        "mcp_servers": [server],
        "storage": {"url": "sqlite://:memory:"},
        "background": {"durable": False},
        "log": {"level": "warning"},
    }
    file.write_bytes(orjson.dumps(config))
    python = Path(sys.executable).parent
    environ = {**os.environ, "HOLODECK_TRUST": "all", "PATH": f"{python}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "holodeck", "serve", str(file)], stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert process.stderr is not None
        said = ""
        while (found := re.search(r"http://[\d.:]+", said)) is None:
            line = process.stderr.readline()
            assert line, f"the gateway has ended: {said}"
            said += line
        yield f"{found.group()}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=30)
