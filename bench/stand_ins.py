"""CPU per request of a model with a stand-in and of one with two deployments, beside the same model alone, in turn.

The usual model answers every request. All are models of one gateway. Each round sends the same batch to each of them,
in changing order, so that a busy moment of the machine hits all; the middle of the rounds' ratios is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

import uvloop

from bench.gateway import Case, measure_once
from bench.gateway_targets import Target, run_holodeck
from bench.processes import module_command, run_server
from bench.table import print_table

ROUNDS = 30
REQUESTS = 320
"""Requests of each batch: some tenths of a second."""
AT_ONCE = 16
CASES = (
    Case(name="alone", model="plain", label="one model", counts={}),
    # The same again: how far apart two measurements of one thing are.
    Case(name="again", model="plain", label="one model, again", counts={}),
    Case(name="stand-in", model="with-stand-in", label="with a stand-in", counts={}),
    Case(name="deployments", model="with-deployments", label="from two deployments", counts={}),
)


async def measure(target: Target, rounds: int) -> dict[str, list[float]]:
    """CPU seconds per request of each, round by round."""
    for case in CASES:
        await measure_once(target, case, REQUESTS, AT_ONCE)  # what is made on first use is made
    costs: dict[str, list[float]] = {case.name: [] for case in CASES}
    for number in range(rounds):
        for place in range(len(CASES)):
            case = CASES[(place + number) % len(CASES)]
            costs[case.name].append((await measure_once(target, case, REQUESTS, AT_ONCE)).cpu)
    return costs


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench stand_ins", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        _, model = stack.enter_context(run_server(module_command("bench.gateway_model")))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        llm, there = {"provider": "openai_compatible", "name": "plain"}, {"endpoint": f"{model}/v1"}
        more = {
            "with-stand-in": {**llm, **there, "fallback": [{**llm, **there, "name": "long"}]},
            "with-deployments": {**llm, "deployments": [there, there]},
        }
        costs = runner.run(measure(stack.enter_context(run_holodeck(folder, model, more=more)), options.rounds))
    rows = []
    for case in CASES:
        ratios = sorted(cost / alone for cost, alone in zip(costs[case.name], costs["alone"], strict=True))
        quarter = len(ratios) // 4
        row = [case.label, f"{min(costs[case.name]) * 1000:.3f}", f"{statistics.median(ratios):.3f}"]
        rows.append([*row, f"{ratios[quarter]:.3f} to {ratios[-quarter - 1]:.3f}"])
    header = ["request", "CPU", "ratio", "half of the rounds"]
    print_table(f"CPU per request, in ms, {AT_ONCE} at once (the least of {options.rounds} rounds)", header, rows)
