"""What an MCP call costs the client: ours, the official SDK's and a hand-written one, interleaved in one run.

`--without-sdk` leaves the SDK's out, which takes most of the time.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from bench.mcp_clients import NAMES, Client, Connect, TransportName, rss_mb, serve
from bench.table import print_table

ROUNDS = 7
CALLS = 200
AT_ONCE = 64
BATCHES = 4
BIG_ROUNDS = 3
MB = 1_000_000
HUGE_MB = 50

Cost = tuple[float, float]
"""CPU of this process, and time on the clock, in seconds."""


async def measure(work: Callable[[], Awaitable[object]]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    await work()
    return time.process_time() - cpu, time.perf_counter() - wall


async def measure_interleaved(
    clients: dict[str, Client], work: Callable[[Client], Awaitable[object]], *, rounds: int, calls: int
) -> dict[str, Cost]:
    """The median cost of one call, each client in turn, so that a busy moment of the machine hits all of them."""
    costs: dict[str, list[Cost]] = {name: [] for name in clients}
    for client in clients.values():
        await work(client)
    for _ in range(rounds):
        for name, client in clients.items():
            gc.collect()
            costs[name].append(await measure(partial(work, client)))
    return {name: _median(each, calls) for name, each in costs.items()}


def _median(costs: list[Cost], calls: int) -> Cost:
    return tuple(statistics.median(cost[part] for cost in costs) / calls for part in (0, 1))  # type: ignore[return-value]


async def call_one_by_one(client: Client) -> None:
    for _ in range(CALLS):
        await client.call("echo", {"text": "hello"})


async def call_at_once(client: Client) -> None:
    for _ in range(BATCHES):
        await asyncio.gather(*(client.call("echo", {"text": "hello"}) for _ in range(AT_ONCE)))


async def call_big(client: Client, size: int) -> None:
    if await client.call("big", {"bytes": size}) != size:
        raise AssertionError("the answer is not complete")


async def measure_calls(over: TransportName, names: Sequence[str]) -> list[list[str]]:
    rows: list[list[str]] = []
    async with AsyncExitStack() as stack:
        connects = stack.enter_context(serve(over))
        clients = {name: await stack.enter_async_context(connects[name]()) for name in names}
        cost = await measure_interleaved(clients, call_one_by_one, rounds=ROUNDS, calls=CALLS)
        rows.append(_row(f"{over}, one by one", cost))
        cost = await measure_interleaved(clients, call_at_once, rounds=ROUNDS, calls=BATCHES * AT_ONCE)
        rows.append(_row(f"{over}, {AT_ONCE} at once", cost))
        # The SDK takes no event of more than a mebibyte.
        for size in (1,) if over == "events" else (1, 10):
            work = partial(call_big, size=size * MB)
            cost = await measure_interleaved(clients, work, rounds=BIG_ROUNDS, calls=1)
            rows.append(_row(f"{over}, {size} MB", cost))
    return rows


async def measure_lists(over: TransportName, names: Sequence[str]) -> list[list[str]]:
    rows: list[list[str]] = []
    for mode, label in (
        ("normal", "connect and call"),
        ("thousand-tools", "1,000 tools"),
        ("ten-thousand-tools", "10,000 tools"),
    ):
        with serve(over, mode) as connects:
            costs: dict[str, list[Cost]] = {name: [] for name in names}
            for _ in range(BIG_ROUNDS):
                for name in names:
                    gc.collect()
                    costs[name].append(await measure(partial(_use_once, connects[name], mode)))
        rows.append(_row(f"{over}, {label}", {name: _median(each, 1) for name, each in costs.items()}))
    return rows


async def _use_once(connect: Connect, mode: str) -> None:
    async with connect() as client:
        if mode == "normal":
            await client.call("echo", {"text": "hello"})
        else:
            await client.tools()


async def measure_huge(over: TransportName) -> list[str]:
    """Fifty million bytes in one answer, and what memory they leave behind."""
    with serve(over) as connects:
        async with connects["holodeck"]() as client:
            await call_big(client, MB)
            gc.collect()
            before = rss_mb()
            costs = [await measure(lambda: call_big(client, HUGE_MB * MB)) for _ in range(BIG_ROUNDS)]
            await asyncio.sleep(0)  # the loop holds what woke us until the next pass
            gc.collect()
            after = rss_mb()
    slowest = max(wall for _, wall in costs)
    return [f"{over}, {HUGE_MB} MB", f"{slowest:.2f} s", f"{before:.0f} MB", f"{after:.0f} MB"]


def _row(label: str, costs: dict[str, Cost]) -> list[str]:
    ours = costs[NAMES[0]]
    return [
        label,
        *(_time(cost[0]) for cost in costs.values()),
        *(f"{ours[0] / cost[0]:.2f}" for name, cost in costs.items() if name != NAMES[0]),
        *(_time(cost[1]) for cost in costs.values()),
        *(f"{ours[1] / cost[1]:.2f}" for name, cost in costs.items() if name != NAMES[0]),
    ]


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 0.002 else f"{seconds * 1e3:.0f} ms"


def main(*options: str) -> None:
    unknown = [option for option in options if option != "--without-sdk"]
    if unknown:
        sys.exit(f"{__doc__}\nUnknown option: {unknown[0]}")
    names = [name for name in NAMES if name != "sdk" or not options]
    shares = [f"of {name}" for name in names[1:]]
    head = ["", *(f"{name} CPU" for name in names), *shares, *(f"{name} wall" for name in names), *shares]
    stock: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run
    transports: tuple[TransportName, ...] = ("stdio", "http", "events")
    rows = [row for over in transports for row in stock(measure_calls(over, names))]
    print_table("MCP calls: the client's cost of one (median, interleaved)", head, rows)
    rows = stock(measure_lists("stdio", names)) + stock(measure_lists("http", names))
    print_table("MCP connections: from nothing to the first call or the whole list", head, rows)
    rows = [stock(measure_huge("stdio")), stock(measure_huge("http"))]
    print_table(
        f"MCP, a huge answer through holodeck ({BIG_ROUNDS} times)", ["", "slowest", "RSS before", "RSS after"], rows
    )


if __name__ == "__main__":
    main()
