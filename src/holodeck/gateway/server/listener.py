"""The socket that a gateway listens on."""

from __future__ import annotations

import errno
import socket

from holodeck.lib.errors import ConfigError

# Connections that the kernel queues before they are accepted, so that many at once are not refused.
LISTEN_BACKLOG = 2_048

# Errors of `bind` whose fix is another port; the others are about the host.
_PORT_ERRNOS = frozenset({errno.EADDRINUSE, errno.EACCES})


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that accepts connections. Raises `ConfigError` for an address that cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Before the gateway reports that it is ready: a client may connect at once.
        listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        key = "listen.port" if error.errno in _PORT_ERRNOS else "listen.host"
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror}. Use another '{key}'.") from None
    return listener
