"""Kills MCP servers behind a gateway while MCP clients of both eras call them through `/mcp`.

`python -m bench.chaos_mcp_endpoint [--kills N] [--at-once N] [--seed N]`. The exit code is 1 if a promise was broken,
each of which is told in words: a call that hangs, an answer of another call, a failure that is not of the server that
was killed, a session that is lost, a message that is lost or doubled for a client that comes back, a call that a
gateway leaves without an answer when it is terminated, a process that stays.

A gateway starts a server that dies again and again no more than `STARTS` times a minute, so the kills are made in
rounds: each has a gateway of its own, and ends with SIGTERM while calls are running.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from bench.chaos_mcp_clients import Client, Outcome, RawClient, ReturningClient, connect_sdk
from bench.gateway_process import GatewayProcess
from bench.processes import wait_ended
from bench.table import print_table
from holodeck.testing import FaultyMCPServer, Journal, stand_in

KILLS = 200
AT_ONCE = 64
MORTAL = 8  # servers of a gateway that are killed, ...
LIVING = 2  # ... and those that are not
STARTS = 5  # of one server in a minute
SDK_CLIENTS = 4
RETURNING_CLIENTS = 4
STEPS = 6  # messages of a call that a client comes back to
LONGEST_CALL = 0.6
DRAINED_CALL = 5.0  # seconds of the calls that run when the gateway is terminated
JOURNAL = "journal"  # file of a living server, with the calls that it has received
HUNG_AFTER = 60.0  # seconds for one call: a server may have to start first, on a busy machine
ROUND_WITHIN = 300.0
SHOWN_PROBLEMS = 20


@dataclass
class Tally:
    """What happened to the calls."""

    calls: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    disconnections: int = 0
    resumed: int = 0
    drained: int = 0
    pids: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    """The processes of servers that still run at the end."""
    broken: list[str] = field(default_factory=list)


class Round:
    """One gateway with its servers, clients and kills."""

    def __init__(self, folder: Path, tally: Tally, chance: random.Random, *, kills: int, at_once: int) -> None:
        self._folder = folder
        self._tally = tally
        self._chance = chance
        self._kills = kills
        self._at_once = at_once
        self._texts = count(1)
        self._mortal = [f"mortal{number}" for number in range(min(MORTAL, kills))]
        self._living = [f"living{number}" for number in range(LIVING)]
        self._kills_by_server: Counter[str] = Counter()
        self._answers_by_server: Counter[str] = Counter()
        self._running_by_server: Counter[str] = Counter()
        self._tools: dict[str, str] = {}
        """The offered name of `slow`, by server."""
        self._is_over = False

    async def run(self) -> None:
        gateway = GatewayProcess(self._write_file())
        try:
            await gateway.start()
            await gateway.wait_ready()
            async with AsyncExitStack() as stack, asyncio.timeout(ROUND_WITHIN):
                await self._run_clients(stack, gateway)
        except TimeoutError:
            self._tally.broken.append(f"a round did not end in {ROUND_WITHIN:.0f} s")
        finally:
            await gateway.kill()
            for name in (*self._mortal, *self._living):
                self._tally.pids.update(self._pids_of(name))
            if self._tally.broken:
                lines = [line.rstrip() for line in gateway.log_lines]
                print("  last words of the gateway:", *lines[-SHOWN_PROBLEMS:], sep="\n    ")

    async def _run_clients(self, stack: AsyncExitStack, gateway: GatewayProcess) -> None:
        url = f"{gateway.url}/mcp"
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        await self._find_tools(http, url)
        clients = await self._connect(stack, http, url)
        callers = [asyncio.create_task(self._call_repeatedly(clients[n % len(clients)])) for n in range(self._at_once)]
        returning = [
            asyncio.create_task(self._lose_connections(ReturningClient(http, url, self._chance)))
            for _ in range(RETURNING_CLIENTS)
        ]
        await self._kill_servers()
        self._is_over = True
        await asyncio.gather(*callers, *returning)
        await self._terminate(gateway, clients)

    async def _connect(self, stack: AsyncExitStack, http: aiohttp.ClientSession, url: str) -> list[Client]:
        raw = [RawClient(http, url, is_modern=bool(number % 2)) for number in range(max(2, self._at_once // 4))]
        for client in raw:
            await client.connect()
        official = [
            await stack.enter_async_context(connect_sdk(url, "auto" if number % 2 else "legacy"))
            for number in range(SDK_CLIENTS)
        ]
        return [*raw, *official]

    async def _find_tools(self, http: aiohttp.ClientSession, url: str) -> None:
        """Wait until all servers are listed. The tools of the first one have their short names."""
        client = RawClient(http, url, is_modern=True)
        first, *others = (*self._mortal, *self._living)
        self._tools = {first: "slow", **{name: f"{name}__slow" for name in others}}
        offered: set[str] = set()
        while not offered.issuperset(self._tools.values()):
            await asyncio.sleep(0.1)
            offered = {*await client.list_tools()}

    async def _call_repeatedly(self, client: Client) -> None:
        while not self._is_over:
            # One that has died too often is not started for a while: its calls would all fail at once.
            mortal = [name for name in self._mortal if self._kills_by_server[name] < STARTS]
            server = self._chance.choice((*mortal, *self._living))
            outcome, text = await self._call(client, server, self._chance.uniform(0, LONGEST_CALL))
            self._judge(server, outcome, text)

    async def _call(self, client: Client, server: str, seconds: float) -> tuple[Outcome | None, str]:
        """Call `slow` with a text of its own. No outcome: it hangs."""
        text = f"{server}/{next(self._texts)}"
        arguments = {"seconds": seconds, "steps": 2, "text": text}
        self._running_by_server[server] += 1
        try:
            async with asyncio.timeout(HUNG_AFTER):
                has_progress = self._chance.random() < 0.5
                return await client.call(self._tools[server], arguments, has_progress=has_progress), text
        except TimeoutError:
            return None, text
        finally:
            self._running_by_server[server] -= 1

    def _judge(self, server: str, outcome: Outcome | None, text: str) -> None:
        broken = self._tally.broken
        if outcome is None:
            self._tally.calls["hung"] += 1
            broken.append(f"the call {text} had no answer after {HUNG_AFTER:.0f} s")
            return
        self._tally.calls[outcome.kind] += 1
        if outcome.kind == "answered":
            self._answers_by_server[server] += 1
            if outcome.text != text:
                self._tally.calls["crossed"] += 1
                broken.append(f"the call {text} got the answer '{outcome.text}'")
        elif outcome.kind != "failed":
            broken.append(f"the call {text} was not answered: {outcome.text}")
        elif server in self._living:
            broken.append(f"the call {text} of a living server failed: {outcome.text}")
        elif f"'{server}'" not in outcome.text:
            broken.append(f"the failure of the call {text} does not name its server: {outcome.text}")

    async def _kill_servers(self) -> None:
        """Kill servers at random moments, each when it has answered since the last time and works on a call."""
        seen = dict.fromkeys(self._mortal, 0)
        while self._kills_by_server.total() < self._kills:
            await asyncio.sleep(self._chance.uniform(0, 0.05))
            ready = [
                name
                for name in self._mortal
                if self._answers_by_server[name] > seen[name]
                and self._running_by_server[name]
                and self._kills_by_server[name] < STARTS
            ]
            if not ready:
                continue
            name = self._chance.choice(ready)
            seen[name] = self._answers_by_server[name] + self._running_by_server[name]
            self._kills_by_server[name] += 1
            self._tally.kills += 1
            os.kill(self._pids_of(name)[-1], signal.SIGKILL)

    async def _lose_connections(self, client: ReturningClient) -> None:
        """Call living servers, and check that each message comes once and in order, whatever happens to connections."""
        await client.connect()
        while not self._is_over:
            server = self._chance.choice(self._living)
            text = f"{server}/{next(self._texts)}"
            arguments = {"seconds": self._chance.uniform(0, 2), "steps": STEPS, "text": text}
            try:
                async with asyncio.timeout(HUNG_AFTER):
                    messages = await client.follow_call(self._tools[server], arguments)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                self._tally.broken.append(f"a client that came back to {text} got no rest: {error!r}")
                continue
            self._tally.resumed += 1
            found = [each.get("params", {}).get("progress") for each in messages[:-1]]
            answer = messages[-1].get("result", {}).get("content", [{}])[0].get("text")
            if found != [*range(1, STEPS + 1)] or answer != text:
                self._tally.broken.append(f"a client that came back to {text} got {found} and '{answer}'")
        self._tally.disconnections += client.disconnections

    async def _terminate(self, gateway: GatewayProcess, clients: list[Client]) -> None:
        """Send SIGTERM while calls are running: they are answered, and the gateway ends by itself."""
        chosen = [(client, self._chance.choice(self._living)) for client in clients]
        expected = self._count_living_calls() + len(chosen)
        calls = [asyncio.create_task(self._call(client, server, DRAINED_CALL)) for client, server in chosen]
        # A call that comes later is refused, as it should be; on a busy machine it may take seconds to arrive.
        while self._count_living_calls() < expected and not all(call.done() for call in calls):  # noqa: ASYNC110 - processes
            await asyncio.sleep(0.05)
        code = await gateway.kill(signal.SIGTERM)
        if code != 0:
            self._tally.broken.append(f"a terminated gateway ended with {code}")
        for (_, server), call in zip(chosen, calls, strict=True):
            outcome, text = await call
            if outcome is not None and outcome.kind == "refused":
                self._tally.broken.append(f"the call {text} was refused, although it ran before the end")
            self._judge(server, outcome, text)
            self._tally.drained += outcome is not None and outcome.kind == "answered"

    def _count_living_calls(self) -> int:
        """Return the number of calls that the living servers have received so far."""
        journals = [Journal(self._folder / name / JOURNAL) for name in self._living]
        return sum(each.method == "tools/call" for journal in journals for each in journal.requests)

    def _pids_of(self, server: str) -> list[int]:
        file = self._folder / server / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def _write_file(self) -> Path:
        file = self._folder / "gateway.yaml"
        model = {"provider": "openai_compatible", "name": "none", "endpoint": "http://127.0.0.1:9"}
        config = {
            "listen": {"port": 0},
            "allow_stdio": True,
            "models": [{"name": "demo", "model": model}],
            "mcp_servers": [self._server_entry(name) for name in (*self._mortal, *self._living)],
            # Each loss is a warning: as it should be, but not here.
            "log": {"level": "error"},
            "storage": {"url": f"sqlite:///{self._folder}/gateway.db"},
        }
        file.write_text(json.dumps(config))
        return file

    def _server_entry(self, name: str) -> dict[str, Any]:
        folder = self._folder / name
        folder.mkdir()
        journal = folder / JOURNAL if name in self._living else None
        path = stand_in(folder, FaultyMCPServer.command("normal", pid_file=folder / "pids", journal=journal))
        command = {"command": "npx", "args": ["-y", name], "env": path, "allow_unsafe_args": True}
        return {"name": name, "type": "mcp", "description": f"The server {name}.", **command}


async def run_chaos(options: argparse.Namespace) -> Tally:
    tally, chance, left = Tally(), random.Random(options.seed), options.kills
    with tempfile.TemporaryDirectory(prefix="holodeck-chaos-") as folder:
        for number in count():
            kills = min(left, MORTAL * STARTS)
            if not kills or tally.broken:
                break
            place = Path(folder) / str(number)
            place.mkdir()
            await Round(place, tally, chance, kills=kills, at_once=options.at_once).run()
            left -= kills
            print(f"  {tally.kills} kills, {tally.calls.total()} calls", flush=True)
    tally.left = await wait_ended(tally.pids)
    tally.broken += [f"the process {pid} of a server is left" for pid in tally.left]
    return tally


def show(tally: Tally, options: argparse.Namespace, seconds: float) -> None:
    calls = tally.calls
    rows = [
        ["servers killed", f"{tally.kills} of {options.kills}"],
        ["calls", str(calls.total())],
        ["answered", str(calls["answered"])],
        ["failed in words, at servers that were killed", str(calls["failed"])],
        ["hung", str(calls["hung"])],
        ["answers of another call", str(calls["crossed"])],
        ["without an answer", str(calls["broken"] + calls["refused"])],
        ["calls that a client came back to", f"{tally.resumed}, {tally.disconnections} times"],
        ["calls that a terminated gateway answered", str(tally.drained)],
        ["processes", f"{len(tally.pids)}, {len(tally.left)} left"],
        ["promises broken", str(len(tally.broken))],
        ["seconds", f"{seconds:.0f}"],
    ]
    title = f"SIGKILL of servers under {options.at_once} calls of MCP clients at once (seed {options.seed})"
    print_table(title, ["what", "measured"], rows)
    for problem in tally.broken[:SHOWN_PROBLEMS]:
        print(f"  BROKEN: {problem}")
    if len(tally.broken) > SHOWN_PROBLEMS:
        print(f"  ... and {len(tally.broken) - SHOWN_PROBLEMS} more")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos_mcp_endpoint", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    options = parser.parse_args()
    # The official client warns that it could not end its session: the gateway has ended before.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    tally = asyncio.run(run_chaos(options))
    show(tally, options, time.monotonic() - began)
    return 1 if tally.broken or tally.kills < options.kills else 0


if __name__ == "__main__":
    sys.exit(main())
