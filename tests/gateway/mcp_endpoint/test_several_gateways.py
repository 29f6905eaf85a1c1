"""Sessions of MCP clients behind several gateways with one database: any of them answers any request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import GatewayProcess, run_gateway_process
from gateway.mcp_endpoint.raw_client import RawClient, build_request
from gateway.running_gateway import gateway_config

from holodeck.testing import FaultyMCPServer

SECONDS = 120.0
KEYS = ("hd-ada", "hd-eve")
SCOPES = {"hd-narrow": {"tools": ["all.add"]}}


@dataclass
class Group:
    """Gateways with one database, and the MCP server behind them."""

    gateways: list[GatewayProcess]
    server: FaultyMCPServer
    stack: AsyncExitStack

    async def client(self, place: int, key: str = KEYS[0], like: RawClient | None = None) -> RawClient:
        """A client at one of them, with the session of another client."""
        http = aiohttp.ClientSession(
            self.gateways[place].url,
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        client = RawClient(await self.stack.enter_async_context(http), "/mcp", "2025-11-25")
        client.session_id = None if like is None else like.session_id
        return client


@asynccontextmanager
async def run_group(folder: Path, storage: Mapping[str, Any], count: int = 2, **config: Any) -> AsyncIterator[Group]:
    """`storage`: as the fixture has it."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FaultyMCPServer())
        file = folder / "gateway.yaml"
        written = gateway_config("http://127.0.0.1:9/v1", {"all": server}, KEYS, scopes=SCOPES)
        file.write_bytes(orjson.dumps({**written, "storage": storage["storage"], **config}))
        environ = storage.get("environ", {})
        gateways = [await stack.enter_async_context(run_gateway_process(file, environ=environ)) for _ in range(count)]
        yield Group(gateways=gateways, server=server, stack=stack)


@pytest.mark.proves("D-38")
@async_test(SECONDS)
async def test_a_session_of_one_gateway_is_served_by_another(tmp_path: Path, storage: dict[str, Any]) -> None:
    async with run_group(tmp_path, storage, 3) as group:
        first = await group.client(0)
        await first.initialize()
        for place in (1, 2, 0, 1):
            client = await group.client(place, like=first)
            assert (await client.request("tools/call", {"name": "add", "arguments": {"a": place, "b": 1}}))["content"][
                0
            ]["text"] == str(place + 1)
        assert await (await group.client(2, like=first)).end() == 204
        for place in range(3):
            assert (await (await group.client(place, like=first)).send(build_request("ping")))[0] == 404
