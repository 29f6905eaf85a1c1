"""`holodeck` for the pages: hands the command to the process that `warm_holodeck` has started, and waits for its end.

Started as `python -I -S warm_command.py ADDRESS ARGUMENTS...`, without the imports of the product, so that a page with
many commands costs little. Signals go on to the command.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path

_NUMBER = struct.Struct("i")


def main(address: str, args: list[str]) -> None:
    about: dict[str, object] = {"args": args, "cwd": str(Path.cwd()), "environ": dict(os.environ), "program": ""}
    about |= {"is_offline": False, "has_terminal": False}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(bytes.fromhex(address))
        socket.send_fds(connection, [json.dumps(about).encode()], [0, 1, 2])
        (pid,) = _NUMBER.unpack(connection.recv(_NUMBER.size))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: os.kill(pid, received))
        # The streams are the command's now: a pipe must end when it ends.
        os.closerange(0, 3)
        (code,) = _NUMBER.unpack(connection.recv(_NUMBER.size))
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
