"""What the kernel holds of a connection between two sockets of this process."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import select
import socket
import termios
from contextlib import suppress
from pathlib import Path


async def wait_read(writer: asyncio.StreamWriter) -> None:
    """Wait until the other end has read every byte that was written. A busy kernel delivers late."""
    own, other = writer.get_extra_info("socket").fileno(), _other_end(writer)
    # What is on its way is looked at first: what arrives after that look is seen at the other end.
    while (  # noqa: ASYNC110 - the kernel has no event for it
        writer.transport.get_write_buffer_size() or _pending(own, termios.TIOCOUTQ) or _pending(other, termios.FIONREAD)
    ):
        await asyncio.sleep(0)


async def wait_read_elsewhere(writer: asyncio.StreamWriter) -> None:
    """Wait until another process on this machine has read every byte that was written."""
    own = writer.get_extra_info("socket")
    ports = f":{own.getpeername()[1]:04X}", f":{own.getsockname()[1]:04X}"
    while (  # noqa: ASYNC110 - the kernel has no event for it
        writer.transport.get_write_buffer_size()
        or _pending(own.fileno(), termios.TIOCOUTQ)
        or not all(queues.endswith(":00000000") for queues in _kernel_queues(*ports))
    ):
        await asyncio.sleep(0.02)


async def wait_full(writer: asyncio.StreamWriter) -> None:
    """Wait until the other end can send no more to this one, which does not read."""
    other = _other_end(writer)
    while select.select([], [other], [], 0)[1]:  # noqa: ASYNC110 - the kernel has no event for it
        await asyncio.sleep(0)


def _kernel_queues(own_port: str, other_port: str) -> list[str]:
    """Bytes to send and bytes to read of the connection with these ports, in hexadecimal."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[4] for row in rows if row[1].endswith(own_port) and row[2].endswith(other_port)]


def _pending(number: int, request: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(number, request, count)
    return count[0]


def _other_end(writer: asyncio.StreamWriter) -> int:
    """File number of the socket at the other end."""
    ends = (writer.get_extra_info("peername"), writer.get_extra_info("sockname"))
    for entry in Path("/dev/fd").iterdir():
        # Other files than connected sockets have no such names.
        with suppress(OSError), os.fdopen(os.dup(int(entry.name)), "rb", buffering=0) as copy:
            found = socket.socket(fileno=copy.fileno())
            try:
                if (found.getsockname(), found.getpeername()) == ends:
                    return int(entry.name)
            finally:
                found.detach()
    raise AssertionError(f"no socket of this process connects {ends}")
