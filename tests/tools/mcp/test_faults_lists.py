"""A list that is wrong in part, or has no end, still gives every tool that can be used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import ERAS, TransportVariant, open_misbehaving, require_failure

from holodeck.lib.errors import MCPToolNotFoundError
from holodeck.testing import Era
from holodeck.tools.mcp.discovery import MAX_LIST_PAGES
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.server_lists import LIST_CHANGE_PAUSE

BOTH: tuple[TransportVariant, ...] = ("stdio", "http")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", BOTH)
@pytest.mark.proves("000:SC-008", "000:FR-013", "002:ERR-8")
@async_test
async def test_a_bad_tool_is_dropped_by_name_and_the_rest_is_listed(
    tmp_path: Path, over: TransportVariant, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_misbehaving("invalid-tool", over, tmp_path, era=era) as subject:
        with caplog.at_level(logging.WARNING, "holodeck"):
            names = {info.name for info in await subject.plugin.list_tools()}
        assert {"add", "echo", "weird.name/x y"} <= names
        assert not {"no_schema", "schema_not_object", "schema_is_a_list", "", "7"} & names
        for bad in ("no_schema", "schema_not_object", "schema_is_a_list"):
            assert any(bad in record.getMessage() for record in caplog.records), caplog.text
        await subject.check_works()
        error = require_failure(await subject.plugin.call_tool("no_schema"), "no_schema", "inputSchema")
        assert isinstance(error, MCPToolNotFoundError)


@pytest.mark.parametrize("over", BOTH)
@async_test
async def test_of_two_tools_of_one_name_the_first_is_listed(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("duplicate-tools", over, tmp_path) as subject:
        (add,) = [info for info in await subject.plugin.list_tools() if info.name == "add"]
        assert set(add.input_schema["properties"]) == {"a", "b"}
        assert (await subject.plugin.call_tool("add", a=1, b=2)).text == "3"


@async_test
async def test_a_tool_with_a_bad_header_annotation_is_dropped(tmp_path: Path) -> None:
    async with open_misbehaving("bad-header-annotation", "http", tmp_path, era="modern") as subject:
        names = {info.name for info in await subject.plugin.list_tools()}
        assert "regional" in names
        assert not any(name.startswith("header_") for name in names)
        assert (await subject.plugin.call_tool("regional", region="Zürich", text="x")).text == "Zürich: x"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", BOTH)
@pytest.mark.proves("000:SC-008")
@async_test
async def test_a_cursor_that_comes_again_is_the_end(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    async with open_misbehaving("looping-cursor", over, tmp_path, era=era) as subject:
        assert "echo" in {info.name for info in await subject.plugin.list_tools()}
        assert subject.count("tools/list") <= 3
        await subject.check_works()


@pytest.mark.parametrize("over", BOTH)
@pytest.mark.proves("000:SC-008")
@async_test
async def test_a_thousand_pages_are_read(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("thousand-pages", over, tmp_path) as subject:
        names = [info.name for info in await subject.plugin.list_tools()]
        assert len(names) == len(set(names)) >= 1_000
        assert subject.count("tools/list") == len(names)
        await subject.check_works()


@async_test
async def test_pages_without_end_have_an_end(tmp_path: Path) -> None:
    async with open_misbehaving("endless-pages", "http", tmp_path) as subject:
        assert "echo" in {info.name for info in await subject.plugin.list_tools()}
        assert subject.count("tools/list") == MAX_LIST_PAGES
        await subject.check_works()


@pytest.mark.parametrize(("mode", "number"), [("thousand-tools", 1_000), ("ten-thousand-tools", 10_000)])
@pytest.mark.parametrize("over", BOTH)
@pytest.mark.proves("000:SC-008")
@async_test
async def test_a_long_list_is_complete_and_every_tool_has_its_own_name(
    tmp_path: Path, mode: str, number: int, over: TransportVariant
) -> None:
    async with open_misbehaving(mode, over, tmp_path) as subject:
        tools = await subject.plugin.list_tools()
        assert len(tools) >= number
        assert len({info.model_name for info in tools}) == len(tools)


@pytest.mark.proves("D-20")
@async_test
async def test_a_list_is_fetched_again_only_when_it_has_expired(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era="modern", ttl_ms=60_000) as subject:
        for _ in range(5):
            await subject.plugin.list_tools()
            await subject.check_works()
        assert subject.count("tools/list") == 1
    async with open_misbehaving("normal", "http", tmp_path, era="modern", ttl_ms=1, name="hasty") as subject:
        for _ in range(3):
            await subject.plugin.list_tools()
            assert (await subject.echo()).success  # takes longer than a millisecond
        assert subject.count("tools/list") >= 2


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", ["stdio", "http", "http-sse", "sse", "websocket"])
@pytest.mark.proves("000:FR-016", "002:STATE-4", "D-20")
@async_test
async def test_a_flood_of_change_notices_is_a_few_fetches(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    refreshed: list[bool] = []
    callbacks = Callbacks(on_tools_changed=lambda: refreshed.append(True))
    async with open_misbehaving("flood", over, tmp_path, era=era, times=1, callbacks=callbacks) as subject:
        await subject.plugin.connect()
        if subject.server is not None:
            await subject.server.listening()
        else:
            await subject.wait_received("subscriptions/listen" if era == "modern" else "logging/setLevel")
        assert subject.count("tools/list") == 1
        loop_began = subject.count("tools/list")
        await subject.check_works()
        fetches = await subject.wait_received("tools/list", loop_began + 1)
        assert fetches
        await subject.check_works()
        # 10,000 notifications arrived within a second or two; each pause of a tenth gathers those of its time.
        assert subject.count("tools/list") <= 2 + 3 / LIST_CHANGE_PAUSE
        assert subject.plugin.state == "connected"
