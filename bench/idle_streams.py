"""Streams that wait: what one costs a gateway while its model says nothing, and whether others are still answered."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.gateway_model import WORD
from bench.gateway_targets import Target, holodeck
from bench.load import Line, asked, dialled, lines
from bench.processes import cpu, module, open_files, resident, serving
from bench.table import show
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


@dataclass(frozen=True, kw_only=True)
class Idle:
    """So many streams, and what they took."""

    streams: int
    opened: float
    opening_cpu: float
    memory: float
    quiet_cpu: float
    plain: float
    closed: float | None
    """Seconds until the server has let go of streams whose clients have left. None: it does not see that they have."""


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
            found = runner.run(_measured(name, min(number, most)))
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
    ]
    show(f"Idle streams (a plain request: the median of {PLAIN} beside them)", header, rows)


async def _measured(name: str, number: int) -> Idle:
    """Each number has servers of its own: memory that was used once is not given back."""
    with tempfile.TemporaryDirectory() as folder, serving(module("bench.gateway_model")) as (_, model):
        if name == "holodeck":
            with holodeck(Path(folder), model) as target:
                return await _streams(target, number)
        with (
            serving(FaultyMCPServer.command("normal", transport="http")) as (_, mcp),
            serving(module("bench.gateway_limit", model, mcp)) as (pid, url),
        ):
            return await _streams(Target(name=name, pid=pid, url=url), number)


async def _streams(target: Target, number: int) -> Idle:
    await _plain(target)
    files = open_files(target.pid)
    memory, spent, began = resident(target.pid), cpu(target.pid), time.perf_counter()
    async with lines(target.url, 0) as opened:
        async with asyncio.timeout(OPEN_SECONDS):
            await _open(target, number, opened)
        took, spent = time.perf_counter() - began, cpu(target.pid) - spent
        grown = resident(target.pid) - memory
        quiet = cpu(target.pid)
        await asyncio.sleep(QUIET_SECONDS)
        quiet = cpu(target.pid) - quiet
        beside = await _plain(target)
        began = time.perf_counter()
    closed = time.perf_counter() - began if await _has_let_go(target, files) else None
    return Idle(
        streams=number,
        opened=took,
        opening_cpu=spent / number,
        memory=grown / number,
        quiet_cpu=quiet / QUIET_SECONDS,
        plain=beside,
        closed=closed,
    )


async def _open(target: Target, number: int, opened: list[Line]) -> None:
    """Until the first word of every stream has come."""
    (request,) = target.ask("wait").requests
    left = iter(range(number))

    async def some() -> None:
        for _ in left:
            line = await dialled(target.url)
            opened.append(line)
            await line.begin(request, WORD.encode())

    async with asyncio.TaskGroup() as group:
        for _ in range(OPENING):
            group.create_task(some())


async def _plain(target: Target) -> float:
    """The median time of plain requests."""
    took = []
    async with lines(target.url, 1) as (line,):
        for _ in range(PLAIN):
            began = time.perf_counter()
            await asked(line, target.ask("plain"))
            took.append(time.perf_counter() - began)
    return sorted(took)[PLAIN // 2]


async def _has_let_go(target: Target, files: int) -> bool:
    """Wait until the streams are gone, as long as some of them go."""
    fewest, changed = open_files(target.pid), time.monotonic()
    while fewest > files + SPARE_FILES // 2:
        await asyncio.sleep(LOOK_SECONDS)
        now = open_files(target.pid)
        if now < fewest:
            fewest, changed = now, time.monotonic()
        elif time.monotonic() - changed > GOING_SECONDS:
            return False
    return True
