"""Tells a client over standard input and output why there is no server for it.

Clients show little of what a program writes to standard error, and less of its exit code. They do show the error that
answers their first request.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress

from holodeck.lib.limits import MIB
from holodeck.mcp_server.errors import RPCError
from holodeck.tools.mcp.protocol.jsonrpc import INTERNAL_ERROR, decode, encode

# Seconds for the first request: a client that starts a program sends it at once.
FIRST_REQUEST_TIMEOUT = 5.0
# Seconds for a further one: clients that speak both eras of the protocol try one after the other.
NEXT_REQUEST_TIMEOUT = 1.0
# Bytes of all requests; the first ones of a session are short.
MAX_BYTES = MIB


def refuse_requests(stdin: int, stdout: int, reason: str) -> None:
    """Answer requests with an error of this text, until the client sends none for a while or leaves. Blocks.

    A person at a terminal is not waited for.
    """
    if os.isatty(stdin):
        return
    received, timeout = b"", FIRST_REQUEST_TIMEOUT
    with suppress(OSError, ValueError):
        while len(received) < MAX_BYTES:
            line, newline, rest = received.partition(b"\n")
            if newline:
                received = rest
                if _refuse_request(stdout, line, reason):
                    timeout = NEXT_REQUEST_TIMEOUT
                continue
            chunk = _read_within(stdin, timeout)
            if not chunk:
                return
            received += chunk


def _read_within(stdin: int, timeout: float) -> bytes:
    """Read what comes within `timeout` seconds; nothing at the end of the input."""
    ready, _, _ = select.select([stdin], [], [], timeout)
    return os.read(stdin, MAX_BYTES) if ready else b""


def _refuse_request(stdout: int, line: bytes, reason: str) -> bool:
    """Answer one message, if it is a request."""
    message = decode(line)
    request_id = message.get("id") if isinstance(message, dict) and "method" in message else None
    if not isinstance(request_id, int | str):
        return False
    os.write(stdout, encode(RPCError(INTERNAL_ERROR, reason).to_response(request_id)) + b"\n")
    return True
