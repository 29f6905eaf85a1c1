"""In its normal mode the server is a good one: the official SDK's client finds nothing wrong with it."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp.client.context import ClientRequestContext
from patience import patience
from testing.sdk_client import TRANSPORT_VARIANTS, TransportVariant, open_sdk_client

from holodeck.testing import Era

pytestmark = pytest.mark.parametrize(("door", "era"), TRANSPORT_VARIANTS, ids=str)


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def test_it_speaks_the_version_of_its_era(door: TransportVariant, era: Era) -> None:
    async def main() -> None:
        async with open_sdk_client(door, era) as client:
            assert client.protocol_version == ("2026-07-28" if era == "modern" else "2025-11-25")
            assert client.server_info is not None
            assert client.server_info.name == "faulty"
            assert client.instructions == "A server for tests. It may misbehave."

    asyncio.run(main())


def test_its_tools_are_listed_and_called(door: TransportVariant, era: Era) -> None:
    async def main() -> None:
        async with open_sdk_client(door, era) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"add", "echo", "weird.name/x y"} <= names
            assert ("regional" in names) is (era == "modern")
            assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
            assert text_of(await client.call_tool("weird.name/x y", {"text": "grüße"})) == "grüße"
            if era == "modern":
                assert text_of(await client.call_tool("regional", {"region": "Köln", "text": "x"})) == "Köln: x"

    asyncio.run(main())


def test_it_has_one_tool_for_every_kind_of_content(door: TransportVariant, era: Era) -> None:
    async def main() -> None:
        async with open_sdk_client(door, era) as client:
            await client.list_tools()
            blocks = (await client.call_tool("many_blocks", {})).content
            assert [block.type for block in blocks] == [
                "text",
                "image",
                "audio",
                "resource",
                "resource",
                "resource_link",
                "text",
            ]
            structured = await client.call_tool("structured", {"text": False})
            assert (structured.structured_content, structured.content) == ({"total": 3}, [])
            assert (await client.call_tool("fail", {})).is_error
            assert len(text_of(await client.call_tool("big", {"bytes": 100_000}))) == 100_000

    asyncio.run(main())


def test_its_prompts_are_listed_and_fetched(door: TransportVariant, era: Era) -> None:
    async def main() -> None:
        async with open_sdk_client(door, era) as client:
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["review", "greet"]
            prompt = await client.get_prompt("review", {"code": "x = 1"})
            content = prompt.messages[0].content
            assert isinstance(content, types.TextContent)
            assert content.text == "Review this code:\nx = 1"

    asyncio.run(main())


def test_a_slow_call_reports_progress_and_ends_when_it_is_released(door: TransportVariant, era: Era) -> None:
    async def main() -> None:
        started = asyncio.Event()
        steps: list[float] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)
            started.set()

        async with open_sdk_client(door, era) as client:
            slow = asyncio.create_task(
                client.call_tool("slow", {"seconds": 500, "steps": 2}, progress_callback=progress)
            )
            await asyncio.wait_for(started.wait(), 20)
            while not slow.done():
                await client.call_tool("release", {})
            assert text_of(await slow) == "done"
            assert steps == [1.0, 2.0]

    asyncio.run(main())


def test_it_asks_the_client_for_roots_a_model_and_a_person(door: TransportVariant, era: Era) -> None:
    async def roots(context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///data", name="data")])

    async def sampling(context: ClientRequestContext, params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="4"), model="m")

    async def elicitation(context: ClientRequestContext, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def main() -> None:
        async with open_sdk_client(
            door,
            era,
            list_roots_callback=roots,
            sampling_callback=sampling,
            elicitation_callback=elicitation,
        ) as client:
            assert "file:///data" in text_of(await client.call_tool("ask_roots", {}))
            assert '"4"' in text_of(await client.call_tool("ask_sampling", {}))
            assert '"Ada"' in text_of(await client.call_tool("ask_elicitation", {}))

    asyncio.run(main())


def test_a_tool_that_is_added_is_announced_to_listeners(door: TransportVariant, era: Era) -> None:
    async def main() -> None:
        announced = asyncio.Event()

        async def on_message(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                announced.set()

        async with open_sdk_client(door, era, message_handler=on_message) as client:
            if era == "modern":
                async with client.listen(tools_list_changed=True):
                    await client.call_tool("grow", {})
                    await asyncio.wait_for(announced.wait(), 20)
            else:
                async with asyncio.timeout(patience(20)):
                    # A legacy client opens its stream in the background, so the first notice may come too early.
                    while not announced.is_set():
                        await client.call_tool("grow", {})
            listed = await client.list_tools(cache_mode="refresh")
            assert "grown_1" in {tool.name for tool in listed.tools}

    asyncio.run(main())
