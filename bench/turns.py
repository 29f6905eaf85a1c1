"""The engine's own time per turn: a scripted model and a tool at zero think time, in process and over stdio MCP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.table import print_table
from holodeck.models.run_limits import RunLimits
from holodeck.runtime import build_runner, read_agent
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, stand_in

TURNS = 300
ROUNDS = 5
FUNCTION = "def add(a: int, b: int) -> int:\n    return a + b\n"


def _script() -> ScriptedModel:
    return ScriptedModel(*[call("add", a=1, b=2)] * TURNS, say("done"))


async def _measure_turns(folder: Path, tools: list[dict[str, object]]) -> tuple[float, float]:
    """CPU and wall seconds per turn, servers already started."""
    (folder / "agent.yaml").write_text(json.dumps({"name": "bench", "tools": tools}))
    loaded = read_agent(folder / "agent.yaml", has_model=True)
    async with build_runner(loaded, model=_script()) as agent:
        await agent.mcp.specs()
        cpu, wall = time.process_time(), time.perf_counter()
        result = await agent.run("go", limits=RunLimits(turns=TURNS + 1))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert result.status == "completed", result
    assert result.tool_calls == TURNS
    return cpu / TURNS, wall / TURNS


def _time_first_answer(folder: Path) -> float:
    """Seconds from `holodeck run` to the end of an answer of the rehearsal model, without tools."""
    (folder / "agent.yaml").write_text("name: bench\n")
    began = time.perf_counter()
    command = [sys.executable, "-m", "holodeck", "run", "-q", str(folder / "agent.yaml"), "hello"]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tools.py").write_text(FUNCTION)
        path = stand_in(folder / "bin", FaultyMCPServer.command("normal"))["PATH"]
        os.environ |= {"PATH": path, "HOLODECK_TRUST": "all"}
        kinds: dict[str, list[dict[str, object]]] = {
            "a Python function": [{"type": "function", "name": "add", "file": "tools.py", "function": "add"}],
            "an MCP server over stdio": [
                {"type": "mcp", "name": "calc", "description": "d", "command": "npx", "server": "calc"}
            ],
        }
        best: dict[str, tuple[float, float]] = {}
        for _ in range(ROUNDS):
            for kind, tools in kinds.items():
                measured = asyncio.run(_measure_turns(folder, tools))
                best[kind] = min(best.get(kind, measured), measured)
        for kind, (cpu, wall) in best.items():
            rows.append([f"a turn with {kind}", f"{cpu * 1e6:.0f} us", f"{wall * 1e6:.0f} us"])
        started = min(_time_first_answer(folder) for _ in range(ROUNDS))
        rows.append(["holodeck run, rehearsal model, no tools", "-", f"{started * 1000:.0f} ms"])
    print_table(f"The engine's own time (best of {ROUNDS}, {TURNS} turns each)", ["what", "CPU", "wall"], rows)
