"""The reference server that has everything, behind each of the transports that it offers."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


class EverythingServer:
    """The server behind a network transport, started as its users do. Closed by `close`.

    It can end itself when it has something to say to a client that has left: the next test gets a new one.
    """

    def __init__(self, transport: Literal["sse", "http"], folder: Path) -> None:
        self._mode, self._path = _MODES[transport]
        self._folder = folder
        folder.joinpath("node_modules").symlink_to(PACKAGES)
        self._start()

    @property
    def url(self) -> str:
        """Its URL; it is started again if it has ended."""
        if self._process.poll() is not None:
            self.close()
            self._start()
        return f"http://localhost:{self._port}/{self._path}"

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _start(self) -> None:
        self._port = _free_port()
        self._process = subprocess.Popen(
            ["npx", "-y", "@modelcontextprotocol/server-everything", self._mode],
            cwd=self._folder,
            env={**os.environ, "PATH": search_path(), "PORT": str(self._port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        _wait_for(self._process, f"on port {self._port}")


@contextmanager
def serve_everything(transport: Literal["sse", "http"], folder: Path) -> Iterator[EverythingServer]:
    """Start it as a network server."""
    server = EverythingServer(transport, folder)
    try:
        yield server
    finally:
        server.close()


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
