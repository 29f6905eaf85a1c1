"""What HoloDeck adds to a call of an MCP client as a proxy, beside the official SDK's parts and FastMCP's proxy.

The same client before and the same server behind all of them, in one run and in turn. It prints the CPU of each proxy's
process for a call, for an answer of a million bytes and for a list of a thousand tools, the latency that it adds, and
whether ours takes at most a quarter of the CPU of each other.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import uvloop

from bench import fastmcp_proxy
from bench.bare_client import BareClient
from bench.mcp_proxies import ALONE, FASTMCP, FRONTS, OURS, SDK, Front, Proxy, run_proxies
from bench.table import print_table

ROUNDS = 5
COUNTS = {1: 60, 16: 160, 64: 256}
"""For each number of calls at once, how many are made in a round."""
BIG_COUNT = 4
LIST_COUNT = 3
MB = 1_000_000
TOOLS = 1_000
SHARE = 4
"""Never more than one part in so many of the CPU of another proxy."""
ANSWER_TIMEOUT = 120.0
"""Seconds for all calls of one measurement: a proxy that does not answer ends the run."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one call took, in seconds: CPU of the proxy, and time on the clock."""

    cpu: float
    time: float


@dataclass(frozen=True)
class Costs:
    """What the proxies took, in each round."""

    rounds: list[dict[str, Cost]] = field(default_factory=list)

    def median_cpu(self, proxy: str) -> float:
        return statistics.median(one[proxy].cpu for one in self.rounds)

    def median_time(self, proxy: str) -> float:
        return statistics.median(one[proxy].time for one in self.rounds)

    def ratio(self, other: str) -> float:
        """Our CPU as a share of another's: in a round, both were measured in the same moment of the machine."""
        return statistics.median(one[OURS].cpu / one[other].cpu for one in self.rounds)


@dataclass(frozen=True, kw_only=True)
class Work:
    """One kind of request: `run` makes `count` of them, `width` at once."""

    label: str
    count: int
    width: int
    run: Callable[[BareClient], Awaitable[None]]


async def _call_echo(client: BareClient) -> None:
    result = await client.call("echo", {"text": "hello"})
    if result["content"][0]["text"] != "hello":
        raise RuntimeError(f"not the answer that was expected: {result}")


async def _call_big(client: BareClient) -> None:
    result = await client.call("big", {"bytes": MB})
    if len(result["content"][0]["text"]) != MB:
        raise RuntimeError("the answer is not complete")


async def _list_tools(client: BareClient) -> None:
    if len(await client.list_tools()) != TOOLS:
        raise RuntimeError("the list is not complete")


def _plan_calls(widths: list[int]) -> list[Work]:
    calls = [Work(label=f"call, {width} at once", count=COUNTS[width], width=width, run=_call_echo) for width in widths]
    return [*calls, Work(label="call, 1 MB answer", count=BIG_COUNT, width=1, run=_call_big)]


LISTS = [Work(label=f"list of {TOOLS:,} tools", count=LIST_COUNT, width=1, run=_list_tools)]


async def measure_front(front: Front, widths: list[int], rounds: int, *, has_fastmcp: bool) -> dict[str, Costs]:
    """The costs of each kind of request through one transport."""
    measured: dict[str, Costs] = {}
    for mode, works in (("normal", _plan_calls(widths)), ("thousand-tools", LISTS)):
        async with run_proxies(front, mode, has_fastmcp=has_fastmcp) as proxies:
            for work in works:
                measured[work.label] = await _measure_in_turn(proxies, work, rounds)
                print(f"... {front}: {work.label}", file=sys.stderr)
    return measured


async def _measure_in_turn(proxies: dict[str, Proxy], work: Work, rounds: int) -> Costs:
    """Each proxy in turn, so that a busy moment of the machine hits all of them."""
    for proxy in proxies.values():
        # What is made on first use is made.
        await _measure(proxy, work)
    costs = Costs()
    for _ in range(rounds):
        costs.rounds.append({name: await _measure(proxy, work) for name, proxy in proxies.items()})
    return costs


async def _measure(proxy: Proxy, work: Work) -> Cost:
    left, took = iter(range(work.count)), list[float]()

    async def make_requests() -> None:
        for _ in left:
            began = time.perf_counter()
            await work.run(proxy.client)
            took.append(time.perf_counter() - began)

    before = proxy.cpu_seconds()
    async with asyncio.timeout(ANSWER_TIMEOUT), asyncio.TaskGroup() as group:
        for _ in range(work.width):
            group.create_task(make_requests())
    return Cost(cpu=(proxy.cpu_seconds() - before) / work.count, time=statistics.median(took))


def show(measured: dict[Front, dict[str, Costs]], peers: list[str], rounds: int) -> None:
    cpu, latency = [], []
    for front, by_label in measured.items():
        for label, costs in by_label.items():
            ratios = {peer: costs.ratio(peer) for peer in peers}
            is_met = all(ratio <= 1 / SHARE for ratio in ratios.values())
            cpu.append(
                [
                    front,
                    label,
                    *(_ms(costs.median_cpu(name)) for name in (OURS, *peers)),
                    *(f"{ratio:.2f}" for ratio in ratios.values()),
                    "met" if is_met else "NOT MET",
                ]
            )
            alone = costs.median_time(ALONE)
            added = [costs.median_time(name) - alone for name in (OURS, *peers)]
            latency.append([front, label, _ms(alone), *map(_ms, added)])
    goal = f"at most 1/{SHARE}"
    print_table(
        f"CPU of the proxy's process per request, in ms (medians of {rounds} rounds; shares: of the same round)",
        ["client", "request", OURS, *peers, *(f"of {peer}" for peer in peers), goal],
        cpu,
    )
    print_table(
        "Latency in ms, median; a request at a time where no number is given",
        ["client", "request", ALONE, *(f"{name} adds" for name in (OURS, *peers))],
        latency,
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def _options(arguments: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench mcp_endpoint", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured")
    parser.add_argument("--fronts", default="; ".join(FRONTS), help="of: %(default)s")
    parser.add_argument("--at-once", default=",".join(map(str, COUNTS)), help="of: %(default)s")
    parser.add_argument("--without-fastmcp", action="store_true", help="do not install it, nor measure it")
    return parser.parse_args(arguments)


def main(*arguments: str) -> None:
    options = _options(arguments)
    has_fastmcp = not options.without_fastmcp
    wanted = [each.strip() for each in options.fronts.split(";")]
    widths = [int(width) for width in options.at_once.split(",")]
    measured: dict[Front, dict[str, Costs]] = {}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for front in FRONTS:
            if front in wanted:
                work = measure_front(front, widths, options.rounds, has_fastmcp=has_fastmcp)
                measured[front] = runner.run(work)
    if has_fastmcp:
        print(fastmcp_proxy.NOTE)
    print("a list: ours sends the one that it remembers, the others ask the server for it each time")
    show(measured, [SDK, *([FASTMCP] if has_fastmcp else [])], options.rounds)


if __name__ == "__main__":
    main(*sys.argv[1:])
