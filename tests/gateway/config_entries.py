"""Entries of gateway files, and callers that tests have in common."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.running_gateway import MODEL, RunningGateway

from holodeck.gateway.auth.callers import hash_key

ALICE, BOB = "hd-alice", "hd-bob"
ASK: dict[str, Any] = {"model": MODEL, "input": "hi"}


def keys(*names: str, **more: Any) -> list[dict[str, Any]]:
    """Entries of `keys` for these keys, each with its own text as its name."""
    return [{"name": name, "hash": hash_key(name), **more} for name in names]


def server(name: str, url: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "mcp", "description": name, "transport": "http", "url": url, **more}


async def wait_asked(gateway: RunningGateway, times: int) -> None:
    """Wait until the model has received so many requests."""
    while len(gateway.model_requests) < times:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0)
