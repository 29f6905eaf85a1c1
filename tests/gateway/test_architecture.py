"""The modules that `docs/architecture.md` shows for a call are those that wait for it while it is at its server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from types import CoroutineType
from typing import Any

import pytest
from async_tests import async_test
from gateway.mcp_endpoint.raw_client import raw_client
from gateway.running_gateway import MODEL, run_gateway

import holodeck
from holodeck.testing import FaultyMCPServer, ScriptedModel, call

SOURCE = Path(holodeck.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs/architecture.md").read_text()
SECONDS = 600
SLOW = {"name": "slow", "arguments": {"seconds": SECONDS}}


def read_stack(title: str) -> list[str]:
    """The modules of the block under a title of the page that has one per line."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    block = section.partition("```text\n")[2].partition("```")[0]
    return re.findall(r"^(?:  or )?(\S+\.py)", block, re.MULTILINE)


def find_waiting_modules(before: set[asyncio.Task[Any]], *folders: str) -> list[str]:
    """The modules of the new tasks that are in one of these folders. The network, below all of them, is left out."""
    found: dict[str, None] = {}
    for task in sorted(asyncio.all_tasks() - before, key=lambda task: task.get_name()):
        files = (Path(file) for file in _list_files(task.get_coro()))
        modules = [str(file.relative_to(SOURCE)) for file in files if file.is_relative_to(SOURCE)]
        if any(module.startswith(folders) for module in modules):
            found |= dict.fromkeys(module for module in modules if not module.startswith("lib/"))
    return list(found)


def _list_files(waiting: Any) -> Iterator[str]:
    while isinstance(waiting, CoroutineType):
        yield waiting.cr_code.co_filename
        waiting = waiting.cr_await


async def _find_waiting_in(asking: Coroutine[Any, Any, Any], server: FaultyMCPServer, *folders: str) -> list[str]:
    before = asyncio.all_tasks()
    task = asyncio.create_task(asking)
    await server.received("tools/call")
    found = find_waiting_modules(before, *folders)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return found


@async_test(60)
async def test_a_call_of_a_model_passes_through_the_modules_on_the_page_in_their_order(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=SECONDS))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        asking = gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Wait!"})
        found = await _find_waiting_in(asking, server, "gateway/app.py")
    assert found == read_stack("One request")


@pytest.mark.parametrize(("version", "other"), [("2025-11-25", "modern_requests"), ("2026-07-28", "legacy_session")])
@async_test(60)
async def test_a_call_of_an_mcp_client_passes_through_the_modules_on_the_page(
    tmp_path: Path, version: str, other: str
) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"sums": server}) as gateway,
        raw_client(gateway, version=version) as client,
    ):
        is_modern = other == "legacy_session"
        if not is_modern:
            await client.initialize()
        asking = client.request_modern("tools/call", SLOW) if is_modern else client.request("tools/call", SLOW)
        found = await _find_waiting_in(asking, server, "gateway/app.py", "gateway/mcp_endpoint/", "mcp_server/")
    above = read_stack("One request")
    own = [module for module in read_stack("One request of an MCP client") if other not in module]
    assert sorted(found) == sorted([*own, *above[above.index(own[-1]) + 1 :]])
