"""Why nobody answers at an address, in the words of the system: those of asyncio are for programmers."""

from __future__ import annotations

import os
import socket


def unreachable_reason(error: OSError) -> str:
    """`Connection refused`, or `Name or service not known`."""
    if error.errno is None or isinstance(error, socket.gaierror):  # whose numbers mean other things
        return error.strerror or str(error)
    return os.strerror(error.errno)
