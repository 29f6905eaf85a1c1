"""A listener on loopback that nothing may connect to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Canary:
    """A server at `url` that counts its `connections`."""

    def __init__(self, listener: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        self.connections = 0
        self._listener = listener

    def count_connections(self) -> None:
        """Hang up on every visitor, until the listener is closed."""
        while True:
            try:
                visitor, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            visitor.close()


@contextmanager
def run_canary() -> Iterator[Canary]:
    """It runs in a thread, so that it also sees what blocks the event loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Canary(listener)
        thread = threading.Thread(target=made.count_connections, daemon=True)
        thread.start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
