"""A file server on loopback that can break off, ignore ranges or send something else, and records its requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """Serves `content`; each entry of `breaks` is where one answer stops."""

    content: bytes
    breaks: list[int] = field(default_factory=list)
    takes_ranges: bool = True
    status: int = 200
    moved_to: str = ""
    """Where it sends its clients instead."""
    ranges: list[str | None] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve_files(server: FileServer) -> Iterator[FileServer]:
    """Run it for a test."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            byte_range = self.headers["Range"]
            server.ranges.append(byte_range)
            if server.moved_to:
                self.send_response(302)
                self.send_header("Location", server.moved_to)
                self.end_headers()
                return
            start = int(byte_range.removeprefix("bytes=").rstrip("-")) if byte_range and server.takes_ranges else 0
            if server.status != 200 or start > len(server.content):
                self.send_error(server.status if server.status != 200 else 416)
                return
            body = server.content[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: server.breaks.pop(0)] if server.breaks else body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{httpd.server_port}/tiny.gguf"
        try:
            yield server
        finally:
            httpd.shutdown()
            thread.join(5)
