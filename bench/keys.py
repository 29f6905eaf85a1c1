"""How soon a revoked key is refused at every gateway under load, and what thousands of keys cost."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from bench.gateway_process import GatewayProcess
from bench.postgres import running_postgres
from bench.table import print_table
from holodeck.config.edit.caller_keys import build_entry
from holodeck.gateway.auth.callers import hash_key
from holodeck.storage.factory import open_store

OPS = "hd-ops"
PROMISE = 1.0
"""Seconds after the reply to a revocation, after which no request is accepted."""
# Revocations at once, and clients of each key at each gateway.
AT_ONCE, CLIENTS = 5, 2
# Seconds between two requests of a client, for which clients go on after a revocation, and before it at most.
PAUSE, AFTER, BEFORE = 0.02, 2.0, 1.0
MCP_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


async def _revoke(session: aiohttp.ClientSession, urls: Sequence[str], name: str) -> tuple[list[float], list[float]]:
    """Make a key, use it at all gateways over HTTP, `/mcp` and a WebSocket, and revoke it at one of them.

    Returns when each accepted request was sent, and until when each WebSocket was open, in seconds after the reply to
    the revocation.
    """
    ops = {"authorization": f"Bearer {OPS}"}
    async with session.post(f"{random.choice(urls)}/v1/keys", json={"name": name}, headers=ops) as made:
        key = (await made.json())["key"]
    accepted: list[float] = []
    closed: list[float] = []
    end = float("inf")

    own = {"authorization": f"Bearer {key}"}

    async def use(method: str, url: str, **body: Any) -> None:
        while time.monotonic() < end:
            sent = time.monotonic()
            async with session.request(method, url, headers=own, **body) as answer:
                if answer.status == 200:
                    accepted.append(sent)
            await asyncio.sleep(PAUSE)

    async def hold(url: str) -> None:
        while True:
            try:
                socket = await session.ws_connect(f"{url}/v1/responses", headers=own)
            except aiohttp.WSServerHandshakeError:
                # Not known here yet, or not any more.
                if time.monotonic() > end:
                    return
                await asyncio.sleep(PAUSE)
                continue
            with suppress(TimeoutError):
                async with socket, asyncio.timeout(BEFORE + 2 * AFTER):
                    async for _ in socket:
                        pass
            closed.append(time.monotonic())

    async with asyncio.TaskGroup() as group:
        for url in urls:
            for _ in range(CLIENTS):
                group.create_task(use("GET", f"{url}/v1/models"))
                group.create_task(use("POST", f"{url}/mcp", json=MCP_LIST))
            group.create_task(hold(url))
        await asyncio.sleep(random.uniform(BEFORE / 2, BEFORE))
        async with session.delete(f"{random.choice(urls)}/v1/keys/{name}", headers=ops) as revoked:
            assert revoked.status == 200, await revoked.text()
        replied = time.monotonic()
        end = replied + AFTER
    return [sent - replied for sent in accepted], [ended - replied for ended in closed]


async def _measure_revocations(urls: Sequence[str], count: int) -> list[str]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        times: list[tuple[list[float], list[float]]] = []
        for start in range(0, count, AT_ONCE):
            names = [f"key-{number}" for number in range(start, min(start + AT_ONCE, count))]
            times += await asyncio.gather(*(_revoke(session, urls, name) for name in names))
    latest = [max(accepted) for accepted, _ in times]
    return [
        str(count),
        str(sum(len(accepted) for accepted, _ in times)),
        f"{statistics.median(latest):.3f}",
        f"{max(latest):.3f}",
        f"{max(max(closed, default=0.0) for _, closed in times):.3f}",
        str(sum(after > PROMISE for accepted, _ in times for after in accepted)),
    ]


async def _measure_lists(urls: Sequence[str], key: str) -> list[str]:
    """Return the milliseconds of a plain request, and of pages of keys: the first one, the last one, and a search."""
    ops, own = ({"authorization": f"Bearer {each}"} for each in (OPS, key))
    row = []
    async with aiohttp.ClientSession(urls[0]) as session:
        for path, headers in (
            ("/v1/models", own),
            ("/v1/keys?limit=50", ops),
            ("/v1/keys?limit=50&text=filled-0", ops),
        ):
            taken = []
            for _ in range(30):
                begun = time.perf_counter()
                async with session.get(path, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()
                taken.append(time.perf_counter() - begun)
            row.append(f"{min(taken) * 1000:.1f}")
    return row


async def _wait_accepted(urls: Sequence[str], key: str) -> None:
    async with aiohttp.ClientSession() as session:
        for url in urls:
            while True:
                async with session.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}) as answer:
                    if answer.status == 200:
                        break
                await asyncio.sleep(PAUSE)


async def measure(folder: Path, database: str, gateways: int, revocations: int, keys: int) -> None:
    """Start gateways on one PostgreSQL, and print both tables."""
    running = []
    try:
        for number in range(gateways):
            file = folder / f"gateway-{number}.yaml"
            models = [{"name": "demo", "model": {"provider": "rehearsal"}}]
            ops = [{"name": "ops", "hash": hash_key(OPS), "role": "operator"}]
            settings = {"listen": {"port": 0}, "models": models, "keys": ops, "storage": {"url": "${DATABASE_URL}"}}
            file.write_bytes(orjson.dumps(settings))
            gateway = GatewayProcess(file, {"DATABASE_URL": database})
            running.append(gateway)
            await gateway.start()
            await gateway.wait_ready()
        urls = [str(gateway.url) for gateway in running]
        header = [
            "revocations",
            "accepted",
            "last accepted s, median",
            "worst",
            "last socket closed s",
            f"later than {PROMISE:g} s",
        ]
        row = await _measure_revocations(urls, revocations)
        print_table(f"Revoked keys at {gateways} gateways, seconds after the reply", header, [row])
        rows = []
        for first, end in ((0, 1), (1, keys)):
            key = await _fill(database, first, end)
            await _wait_accepted(urls, key)
            rows.append([str(end), *await _measure_lists(urls, key)])
        print_table("Milliseconds, the best of 30", ["keys", "a request", "a page of 50", "with a search"], rows)
    finally:
        for gateway in running:
            await gateway.kill()


async def _fill(database: str, first: int, end: int) -> str:
    """Store the keys with these numbers, and return the last one."""
    store = open_store(database, folder=Path())
    try:
        for number in range(first, end):
            name = f"filled-{number:05}"
            entry = build_entry(name, hash_key(f"hd-{name}"))
            assert await store.caller_keys.add_key(name, orjson.dumps(entry), "key:ops")
    finally:
        await store.close()
    return f"hd-filled-{end - 1:05}"


def main(*options: str) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench keys", description=__doc__)
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--revocations", type=int, default=100)
    parser.add_argument("--keys", type=int, default=5_000)
    given = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as folder, running_postgres() as server:
        database = server.new_database()
        asyncio.run(measure(Path(folder), database, given.gateways, given.revocations, given.keys))
