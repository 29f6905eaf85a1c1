"""What a gateway costs: CPU of its processes and added latency, ours beside the bare limit and others, in one run."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvloop

from bench import agentic_api, idle_streams, litellm_proxy, smg_router
from bench.gateway_model import EVENTS, LONG_TOKENS, PACE
from bench.gateway_targets import PASSING, Endpoint, Target, run_targets
from bench.http_load import Times, open_connections, run_load
from bench.processes import check_out, cpu_seconds
from bench.table import print_table

ROUNDS = 3
IDLE = "1000"
BARS = {"plain": 0.001, "stream": 0.003}
"""Seconds of CPU that our gateway may take for a request, stored."""
NOTES = {"LiteLLM": litellm_proxy.NOTE, "smg": smg_router.NOTE, "agentic-api": agentic_api.NOTE}
"""Of the gateways of others, by name."""
SERVERS = ("holodeck", *PASSING, "before", *NOTES)
SHARE = 20
"""Never more than one part in so many of what LiteLLM takes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of request. `counts`: for each number at once, how many requests of ours and the limit, and of LiteLLM."""

    name: str
    model: str
    endpoint: Endpoint = "responses"
    label: str
    counts: dict[int, tuple[int, int]]


_PLAIN = {1: (200, 40), 16: (480, 96), 64: (640, 128), 256: (1024, 256)}
_STREAMED = {1: (40, 8), 16: (96, 16), 64: (192, 64), 256: (256, 256)}
_PACED = {1: (2, 1), 16: (32, 16)}
_WITH_A_TOOL = {1: (100, 8), 16: (192, 16), 64: (256, 64), 256: (512, 256)}
CASES = (
    Case(name="plain", model="plain", label="plain", counts=_PLAIN),
    Case(name="long", model="long", label=f"plain, {LONG_TOKENS} tokens", counts=_PLAIN),
    Case(name="chat", model="plain", endpoint="chat", label="plain, chat completions", counts=_PLAIN),
    Case(name="stream", model="stream", label=f"{EVENTS} events", counts=_STREAMED),
    Case(name="paced", model="paced", label=f"{EVENTS} events, {PACE * 1000:.0f} ms apart", counts=_PACED),
    Case(name="tool", model="tool", label="one tool", counts=_WITH_A_TOOL),
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one request took, in seconds."""

    cpu: float
    times: Times


@dataclass(frozen=True)
class Costs:
    """What the servers took, in each round."""

    rounds: list[dict[str, Cost]] = field(default_factory=list)

    def __contains__(self, server: str) -> bool:
        return server in self.rounds[0]

    def best(self, server: str) -> Cost:
        """The least of every figure: all that disturbs a measurement adds to it."""
        costs = [one[server] for one in self.rounds]
        times = Times(
            median=min(cost.times.median for cost in costs),
            slow=min(cost.times.slow for cost in costs),
            rate=max(cost.times.rate for cost in costs),
        )
        return Cost(cpu=min(cost.cpu for cost in costs), times=times)

    def ratio(self, server: str, of: str) -> float:
        """How many times as much CPU, as the middle of the rounds has it.

        A machine's speed changes from one moment to the next; in a round, both were measured in the same moment.
        """
        return statistics.median(one[server].cpu / one[of].cpu for one in self.rounds)


Measured = dict[tuple[str, int], Costs]


async def measure(found: dict[str, Target], cases: list[Case], rounds: int) -> Measured:
    """Each server in turn, so that a busy moment of the machine hits all of them."""
    measured: Measured = {}
    for case in cases:
        for target in found.values():
            await measure_once(target, case, 3, 1)  # what is made on first use is made
        for width, counts in case.counts.items():
            costs = measured[case.name, width] = Costs()
            for _ in range(rounds):
                costs.rounds.append(
                    {
                        name: await measure_once(target, case, counts[name == "LiteLLM"], width)
                        for name, target in found.items()
                    }
                )
            print(f"... {case.label}, {width} at once", file=sys.stderr)
    return measured


async def measure_once(target: Target, case: Case, count: int, width: int) -> Cost:
    async with open_connections(target.url, width) as on:
        before = cpu_seconds(target.pid)
        times = await run_load(on, target.plan_requests(case.model, endpoint=case.endpoint), count)
        return Cost(cpu=(cpu_seconds(target.pid) - before) / count, times=times)


def show_cpu(measured: Measured, labels: dict[str, str], rounds: int) -> None:
    servers = _measured_servers(measured)
    others = servers[1 + len(PASSING) :]
    rows = []
    for (name, width), costs in measured.items():
        row = [
            labels[name],
            str(width),
            *(_ms(costs.best(server).cpu) for server in servers),
        ]
        row += [f"{costs.ratio('holodeck', name):.1f}x" for name in PASSING]
        row += [f"{costs.ratio(server, 'holodeck'):.2f}" for server in others]
        row += [f"{costs.best(server).times.rate:.0f}" for server in servers]
        rows.append(row)
    ratios = [*(f"of {name}" for name in PASSING), *(f"{server} / ours" for server in others)]
    header = ["request", "at once", *servers, *ratios, *(f"{server}/s" for server in servers)]
    what = f"the best of {rounds} rounds; ratios: the middle of the rounds; ours stored, but for chat completions"
    print_table(f"CPU per request, in ms ({what})", header, rows)


def show_latency(measured: Measured, labels: dict[str, str]) -> None:
    servers = _measured_servers(measured)
    rows = []
    for (case, width), costs in measured.items():
        alone = costs.best("model").times
        cells = [f"{_ms(alone.median)}"]
        for name in servers:
            times = costs.best(name).times
            cells.append(f"{_ms(times.median - alone.median)} ({_ms(times.slow - alone.slow)})")
        rows.append([labels[case], str(width), *cells])
    header = ["request", "at once", "model alone", *(f"{name} adds" for name in servers)]
    print_table(
        "Latency in ms, median (of a hundred, one is slower); the call of the tool is part of what is added",
        header,
        rows,
    )


def _measured_servers(measured: Measured) -> list[str]:
    """Return the names of the servers in the order of the columns: all were asked for all cases."""
    costs = next(iter(measured.values()))
    return [server for server in SERVERS if server in costs]


def show_bars(measured: Measured, labels: dict[str, str]) -> None:
    """Each at its worst width. The limit's own figure shows how strict a bar is."""
    rows = []
    for name, label in labels.items():
        here = [costs for (case_name, _), costs in measured.items() if case_name == name]
        if name in BARS and here:
            worst = max(here, key=lambda costs: costs.best("holodeck").cpu)
            ours, limit = worst.best("holodeck").cpu, worst.best("limit").cpu
            verdict = _verdict(ours < BARS[name])
            rows.append([f"{label}: under {_ms(BARS[name])} ms of CPU", f"{_ms(ours)} ms", f"{_ms(limit)} ms", verdict])
        if here and "LiteLLM" in here[0]:
            worst = min(here, key=lambda costs: costs.ratio("LiteLLM", "holodeck"))
            ours, limit = (worst.ratio("LiteLLM", server) for server in ("holodeck", "limit"))
            bar = f"{label}: at most 1/{SHARE} of LiteLLM's CPU for the same"
            rows.append([bar, f"1/{ours:.1f}", f"1/{limit:.1f}", _verdict(ours >= SHARE)])
    print_table("The bars, each at its worst width", ["bar", "holodeck", "limit", ""], rows)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def _options(arguments: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench gateway", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES), help="of: %(default)s")
    parser.add_argument("--at-once", default="1,16,64,256", help="of: %(default)s")
    parser.add_argument("--idle", default=IDLE, help="numbers of idle streams, as in 1000,10000; empty: none")
    parser.add_argument("--others", default=",".join(NOTES), help="installed on first use, of: %(default)s")
    parser.add_argument("--base", help="a revision of this gateway to be measured as well")
    return parser.parse_args(arguments)


def main(*arguments: str) -> None:
    options = _options(arguments)
    widths = [int(width) for width in options.at_once.split(",")]
    cases = [
        replace(case, counts={w: case.counts[w] for w in widths if w in case.counts})
        for case in CASES
        if case.name in options.cases.split(",")
    ]
    labels = {case.name: case.label for case in cases}
    idle_streams.raise_file_limit()
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        if cases:
            before = check_out(options.base) if options.base else None
            with run_targets(Path(folder), options.others.split(","), before) as found:
                measured = runner.run(measure(found, cases, options.rounds))
                print(*(NOTES[name] for name in found if name in NOTES), sep="\n")
            show_cpu(measured, labels, options.rounds)
            show_latency(measured, labels)
            show_bars(measured, labels)
        idle = [int(number) for number in options.idle.split(",") if number.strip("0")]
        if idle:
            idle_streams.main(runner, idle)


if __name__ == "__main__":
    main(*sys.argv[1:])
