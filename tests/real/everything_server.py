"""The reference server that has everything, behind each of the transports that it offers."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from installed_servers import PACKAGES
from real.project import START_SECONDS, search_path

EverythingTransport: TypeAlias = Literal["stdio", "sse", "http"]
EVERYTHING_TRANSPORTS: tuple[EverythingTransport, ...] = ("stdio", "sse", "http")

STDIO = """
tools:
  - name: everything
    description: Everything that a server can do
    type: mcp
    command: npx
    args: ["-y", "@modelcontextprotocol/server-everything"]
    sampling: allow
    roots: [data]
"""
NETWORK = """
tools:
  - name: everything
    description: Everything that a server can do
    type: mcp
    transport: {door}
    url: {url}
    sampling: allow
    roots: [data]
"""
_MODES = {"sse": ("sse", "sse"), "http": ("streamableHttp", "mcp")}


@contextmanager
def serve_everything(transport: Literal["sse", "http"], folder: Path) -> Iterator[str]:
    """Start it as a network server, as its users do, and yield its URL."""
    mode, path = _MODES[transport]
    folder.joinpath("node_modules").symlink_to(PACKAGES)
    port = _free_port()
    process = subprocess.Popen(
        ["npx", "-y", "@modelcontextprotocol/server-everything", mode],
        cwd=folder,
        env={**os.environ, "PATH": search_path(), "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _wait_for(process, f"on port {port}")
        yield f"http://localhost:{port}/{path}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_for(process: subprocess.Popen[bytes], words: str) -> None:
    """Read what it says until it is ready. Its later words are few and stay in the pipe."""
    assert process.stderr is not None
    said = b""
    end = time.monotonic() + START_SECONDS
    while words.encode() not in said:
        ready, _, _ = select.select([process.stderr], [], [], max(0, end - time.monotonic()))
        chunk = os.read(process.stderr.fileno(), 65536) if ready else b""
        if not chunk:
            raise TimeoutError(f"The server did not come up. It said: {said.decode(errors='replace')}")
        said += chunk
