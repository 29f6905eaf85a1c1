"""A gateway whose event loop is busy with one computation still says that it lives, and loses no connection.

The event loop of the gateway is that of the test, so that a test that waits in it without `await` holds it up.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from async_tests import async_test
from gateway.running_gateway import run_gateway

from holodeck.gateway.server.health_thread import LATE_SECONDS, HealthThread

# A limit for what hangs.
SECONDS = 60.0
_PROBES = 5


def _get(url: str, path: str) -> tuple[int, bytes]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=SECONDS)
    connection.request("GET", path)
    reply = connection.getresponse()
    found = reply.status, reply.read()
    connection.close()
    return found


@async_test(2 * SECONDS)
async def test_probes_are_answered_while_the_event_loop_does_not_turn_and_other_requests_after_it(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path) as gateway:
        where = urlsplit(gateway.url)
        with ThreadPoolExecutor() as pool, socket.create_connection((where.hostname, where.port)) as silent:
            models = pool.submit(_get, gateway.url, "/v1/models")
            for _ in range(_PROBES):
                # Waits in the event loop.
                assert pool.submit(_get, gateway.url, "/healthz").result(SECONDS) == (200, b'{"status":"ok"}')
            assert not models.done()
            assert (await asyncio.wrap_future(models))[0] == 200
            # What was accepted beside the event loop is a connection like every other, also at the end of the gateway.
            silent.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            said: Future[bytes] = pool.submit(silent.recv, 4_096)
            assert b"200 OK" in await asyncio.wrap_future(said)
            assert (await asyncio.wrap_future(pool.submit(_get, gateway.url, "/healthz")))[0] == 200


@contextmanager
def _run_thread(loop: asyncio.AbstractEventLoop, stuck_seconds: float) -> Iterator[str]:
    """Run a thread of its own for a listener that nothing else accepts connections of, and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        health = HealthThread(loop, listener, socket.socket.close, stuck_seconds=stuck_seconds)
        health.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            health.stop()


@async_test(SECONDS)
async def test_an_event_loop_that_is_stuck_is_not_healthy_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with (
        ThreadPoolExecutor() as pool,
        caplog.at_level(logging.ERROR),
        _run_thread(asyncio.get_running_loop(), 2 * LATE_SECONDS) as url,
    ):
        first = pool.submit(_get, url, "/healthz").result(SECONDS)
        time.sleep(2 * LATE_SECONDS)  # noqa: ASYNC251 - the computation
        second, third = (pool.submit(_get, url, "/healthz").result(SECONDS) for _ in range(2))
    assert (first, second, third) == ((200, b'{"status":"ok"}'), *[(503, b'{"status":"stuck"}')] * 2)
    assert [each.getMessage().partition(" ")[0] for each in caplog.records] == ["gateway.stuck"]
