"""Asks for the health of a gateway five times a second, each time on a new connection, until its input ends.

A process of its own: beside the load, it would measure how busy that is. Prints the seconds of each answer as JSON.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time
from urllib.parse import urlsplit

PAUSE = 0.2
TIMEOUT = 60.0


def main(url: str) -> None:
    where, waits = urlsplit(url), list[float]()
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        began = time.perf_counter()
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=TIMEOUT)
        connection.request("GET", "/healthz")
        if connection.getresponse().status != http.client.OK:
            raise RuntimeError("the gateway says that it is not healthy")
        connection.close()
        waits.append(time.perf_counter() - began)
    print(json.dumps(waits))


main(sys.argv[1])
