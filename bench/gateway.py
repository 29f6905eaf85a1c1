"""What the gateway itself costs: CPU of its process per request, interleaved with a bare app on the same server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import aiohttp

from bench.table import show

ROUNDS = 3
REQUESTS = {1: 150, 16: 400, 64: 600}
STREAMS = {1: 40, 16: 80, 64: 120}
Servers = dict[str, tuple[subprocess.Popen[str], str]]
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def load(url: str, count: int, width: int, *, stream: bool) -> float:
    """Send requests, some at once, and return the seconds it took."""
    body = {"model": "instant", "input": "hello", "stream": stream, "temperature": 0 if stream else 1}
    left = iter(range(count))

    async def one(client: aiohttp.ClientSession) -> None:
        for _ in left:
            async with client.post(f"{url}/v1/responses", json=body) as response:
                await response.read()
                response.raise_for_status()

    began = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        await asyncio.gather(*(one(client) for _ in range(width)))
    return time.perf_counter() - began


def main() -> None:
    servers: Servers = {}
    for kind in ("bare", "gateway"):
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.gateway_server", kind], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        servers[kind] = (process, process.stdout.readline().strip())
    try:
        rows = [_row(servers, "plain, stored", REQUESTS, width, stream=False) for width in REQUESTS] + [
            _row(servers, "200-event stream, stored", STREAMS, width, stream=True) for width in STREAMS
        ]
    finally:
        for process, _ in servers.values():
            process.terminate()
            process.wait(timeout=30)
    header = ["request", "at once", "gateway CPU", "bare CPU", "ratio", "gateway/s"]
    show(f"The gateway's own cost per request (best of {ROUNDS}, interleaved)", header, rows)


def _row(
    servers: dict[str, tuple[subprocess.Popen[str], str]],
    name: str,
    counts: dict[int, int],
    width: int,
    *,
    stream: bool,
) -> list[str]:
    best: dict[str, float] = {}
    rate = 0.0
    for _ in range(ROUNDS):
        for kind, (process, url) in servers.items():
            before = cpu(process.pid)
            took = asyncio.run(load(url, counts[width], width, stream=stream))
            spent = (cpu(process.pid) - before) / counts[width]
            best[kind] = min(best.get(kind, spent), spent)
            if kind == "gateway":
                rate = max(rate, counts[width] / took)
    ratio = best["gateway"] / max(best["bare"], 1e-6)
    cells = [f"{best[kind] * 1000:.2f} ms" for kind in ("gateway", "bare")]
    return [name, str(width), *cells, f"{ratio:.1f}x", f"{rate:.0f}"]
