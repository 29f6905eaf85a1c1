"""Idle streams: what one costs a gateway while its model sends nothing, and whether others are still answered."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.gateway_model import WORD
from bench.gateway_targets import Target, run_holodeck
from bench.http_load import LoadConnection, connect, open_connections, send_requests
from bench.processes import count_open_files, cpu_seconds, module_command, resident_bytes, run_server
from bench.table import print_table
from holodeck.testing import FaultyMCPServer

SPARE_FILES = 100
"""Of a process, beside its streams: its storage, its listener, the plain requests."""
FILES_PER_STREAM = 2
"""The client's connection, and the model's."""
QUIET_SECONDS = 3.0
PLAIN = 20
"""Plain requests that are asked beside the streams."""
OPENING = 64
"""Streams that are opened at once."""
OPEN_SECONDS = 300.0
GOING_SECONDS = 5.0
"""In which at least one stream must go."""
LOOK_SECONDS = 0.2
RETURN_SECONDS = 20.0
"""In which a server returns memory that it does not use."""


@dataclass(frozen=True, kw_only=True)
class IdleCost:
    """So many streams, and what they took."""

    streams: int
    opened: float
    opening_cpu: float
    memory: float
    quiet_cpu: float
    plain: float
    closed: float | None
    """Seconds until the server has let go of streams whose clients have left. None: it does not see that they have."""
    left: float
    """Bytes of memory that the server has more than before them, a while after they have ended."""


def raise_file_limit() -> int:
    """As many files as this machine lets a process open; what is started from here inherits it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main(runner: asyncio.Runner, numbers: list[int]) -> None:
    most = (raise_file_limit() - SPARE_FILES) // FILES_PER_STREAM
    rows = []
    for number in numbers:
        if number > most:
            print(
                f"{number} idle streams take {number * FILES_PER_STREAM} files of one process; this machine allows "
                f"{most * FILES_PER_STREAM + SPARE_FILES}, so there are {most}. Raise 'ulimit -Hn' for all of them."
            )
        for name in ("holodeck", "limit"):
            found = runner.run(_measure_server(name, min(number, most)))
            rows.append(
                [
                    name,
                    str(found.streams),
                    f"{found.opened:.1f} s",
                    f"{found.opening_cpu * 1000:.2f} ms",
                    f"{found.memory / 1000:.0f} kB",
                    f"{found.quiet_cpu * 1000:.1f} ms",
                    f"{found.plain * 1000:.1f} ms",
                    "—" if found.closed is None else f"{found.closed:.1f} s",
                    f"{found.left / 1_000_000:.0f} MB",
                ]
            )
    header = [
        "",
        "streams",
        "all open",
        "CPU to open one",
        "memory of one",
        "CPU/s, all idle",
        "a plain request",
        "all gone",
        "memory after",
    ]
    print_table(f"Idle streams (a plain request: the median of {PLAIN} beside them)", header, rows)


async def _measure_server(name: str, number: int) -> IdleCost:
    """Each number has servers of its own: memory that was used once is not released."""
    with tempfile.TemporaryDirectory() as folder, run_server(module_command("bench.gateway_model")) as (_, model):
        if name == "holodeck":
            with run_holodeck(Path(folder), model) as target:
                return await _measure_streams(target, number)
        with (
            run_server(FaultyMCPServer.command("normal", transport="http")) as (_, mcp),
            run_server(module_command("bench.gateway_limit", model, mcp)) as (pid, url),
        ):
            return await _measure_streams(Target(name=name, pid=pid, url=url), number)


async def _measure_streams(target: Target, number: int) -> IdleCost:
    await _time_plain_requests(target)
    files = count_open_files(target.pid)
    memory, spent, began = resident_bytes(target.pid), cpu_seconds(target.pid), time.perf_counter()
    async with open_connections(target.url, 0) as opened:
        async with asyncio.timeout(OPEN_SECONDS):
            await _open_streams(target, number, opened)
        took, spent = time.perf_counter() - began, cpu_seconds(target.pid) - spent
        grown = resident_bytes(target.pid) - memory
        quiet = cpu_seconds(target.pid)
        await asyncio.sleep(QUIET_SECONDS)
        quiet = cpu_seconds(target.pid) - quiet
        beside = await _time_plain_requests(target)
        began = time.perf_counter()
    closed = time.perf_counter() - began if await _wait_released(target, files) else None
    return IdleCost(
        streams=number,
        opened=took,
        opening_cpu=spent / number,
        memory=grown / number,
        quiet_cpu=quiet / QUIET_SECONDS,
        plain=beside,
        closed=closed,
        left=await _measure_left(target.pid, memory),
    )


async def _measure_left(pid: int, before: int) -> float:
    """The least memory, beyond that before, in the time in which memory is returned."""
    least, until = resident_bytes(pid) - before, time.monotonic() + RETURN_SECONDS
    while least > 0 and time.monotonic() < until:
        await asyncio.sleep(LOOK_SECONDS)
        least = min(least, resident_bytes(pid) - before)
    return least


async def _open_streams(target: Target, number: int, opened: list[LoadConnection]) -> None:
    """Return when the first delta of every stream has arrived."""
    (request,) = target.plan_requests("wait").requests
    numbers = iter(range(number))

    async def open_some() -> None:
        for _ in numbers:
            line = await connect(target.url)
            opened.append(line)
            await line.send_and_wait_for(request, WORD.encode())

    async with asyncio.TaskGroup() as group:
        for _ in range(OPENING):
            group.create_task(open_some())


async def _time_plain_requests(target: Target) -> float:
    """The median time of plain requests."""
    took = []
    async with open_connections(target.url, 1) as (line,):
        for _ in range(PLAIN):
            began = time.perf_counter()
            await send_requests(line, target.plan_requests("plain"))
            took.append(time.perf_counter() - began)
    return sorted(took)[PLAIN // 2]


async def _wait_released(target: Target, files: int) -> bool:
    """Wait until the streams have ended, as long as their number falls."""
    fewest, changed = count_open_files(target.pid), time.monotonic()
    while fewest > files + SPARE_FILES // 2:
        await asyncio.sleep(LOOK_SECONDS)
        now = count_open_files(target.pid)
        if now < fewest:
            fewest, changed = now, time.monotonic()
        elif time.monotonic() - changed > GOING_SECONDS:
            return False
    return True
