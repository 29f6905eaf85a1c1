"""Resources, resource templates and completions of a server, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from async_tests import async_test
from loopback_site import serve_site
from tools.mcp.local_servers import remote_tool

from holodeck.lib.errors import MCPError
from holodeck.models.items import BinaryContent, TextContent
from holodeck.testing import Era, FaultyMCPServer
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

ERAS: list[Era] = ["legacy", "modern"]
PAGES = "test://pages/{topic}/{page}"
TEN_MEGABYTES = 10_000_000


@asynccontextmanager
async def _open_server_with(
    results: Mapping[str, Any], capabilities: Mapping[str, Any], **fields: Any
) -> AsyncIterator[MCPPlugin]:
    """The plugin of a legacy server that has these results, by method; a function gets the parameters."""
    about = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": {"name": "s", "version": "1"}}

    async def answer(request: web.Request) -> web.Response:
        message = await request.json()
        result = {"initialize": about, **results}.get(message["method"])
        if "id" not in message:
            return web.Response(status=202)
        if result is None:
            error = {"code": -32601, "message": "Method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        found = result(message.get("params", {})) if callable(result) else result
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": found})

    async with serve_site(answer) as origin, create_mcp_plugin(remote_tool(f"{origin}/mcp", **fields)) as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_resources_and_templates_are_listed_with_everything_that_the_server_says(era: Era) -> None:
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        await remote.put_resource(
            "test://plan", text="p", name="plan", title="The plan", annotations={"priority": 1}, icons=[{"src": "x"}]
        )
        notes, data, _, plan = await server.list_resources()
        assert (notes.uri, notes.name, notes.mime_type, notes.size) == (
            "test://notes.txt",
            "notes.txt",
            "text/plain",
            5,
        )
        assert (data.uri, data.size) == ("test://data.bin", 6)
        assert (plan.title, plan.annotations) == ("The plan", {"priority": 1})
        assert plan.raw["icons"] == [{"src": "x"}]
        (pages,) = await server.list_resource_templates()
        assert (pages.uri_template, pages.name, pages.raw["mimeType"]) == (PAGES, "pages", "text/plain")
        assert server.capabilities["resources"] == {"listChanged": True, "subscribe": True}


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_change_of_the_resources_is_noticed(era: Era) -> None:
    changed = asyncio.Event()
    callbacks = Callbacks(on_resources_changed=changed.set)
    async with (
        FaultyMCPServer(era=era, ttl_ms=600_000) as remote,
        create_mcp_plugin(remote_tool(remote.url), callbacks=callbacks) as server,
    ):
        before = await server.list_resources()
        assert await server.list_resources() == before
        assert len(await remote.received("resources/list")) == 1
        await remote.listening()
        await remote.put_resource("test://new", text="n")
        await changed.wait()
        assert [info.uri for info in await server.list_resources()] == [*(info.uri for info in before), "test://new"]
        changed.clear()
        await remote.remove_resource("test://new")
        await changed.wait()
        assert await server.list_resources() == before
        assert [one.method for one in remote.requests].count("resources/list") == 3


@async_test
async def test_all_pages_are_fetched_and_bad_entries_are_rejected_by_name(caplog: pytest.LogCaptureFixture) -> None:
    good = [{"uri": f"r://{number}", "name": str(number)} for number in range(3)]
    bad = [{"name": "no uri"}, {"uri": 7, "name": "number"}, "text", {"uri": "r://" + "x" * 9_000, "name": "long"}]
    pages = {
        None: {"resources": [good[0], *bad], "nextCursor": "second"},
        "second": {"resources": [good[1], good[0], good[2]], "nextCursor": "second"},
    }
    listed = {"resources/list": lambda params: pages[params.get("cursor")]}
    async with _open_server_with(listed, {"resources": {}}) as server:
        assert [info.uri for info in await server.list_resources()] == ["r://0", "r://1", "r://2"]
        assert await server.list_resource_templates() == [], "a server need not know this list"
    dropped = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    for name in ("no uri", "number", "long", "r://0"):
        assert any("mcp.dropped" in line and name in line for line in dropped), dropped


@async_test
async def test_a_server_that_declares_no_resources_and_no_completions_is_not_asked() -> None:
    async with _open_server_with({"tools/list": {"tools": []}}, {"tools": {}}) as server:
        assert await server.list_resources() == []
        assert await server.list_resource_templates() == []
        ref = {"type": "ref/prompt", "name": "review"}
        assert await server.complete(ref, {"name": "code", "value": ""}) == {"completion": {"values": []}}


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_invisible_characters_in_the_words_of_a_server_reach_nobody_and_its_uris_still_work(era: Era) -> None:
    uri = "test://secret\u200bplan"
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        await remote.put_resource(
            uri, text="found", name="pl\u202ean", description="a\u200bb", mime_type="text/\u200bx"
        )
        info = (await server.list_resources())[-1]
        assert (info.name, info.description, info.mime_type) == ("pl<U+202E>an", "a<U+200B>b", "text/<U+200B>x")
        assert (info.raw["name"], info.raw["uri"]) == ("pl<U+202E>an", "test://secret<U+200B>plan")
        contents = (await server.request_resource(info.uri))["contents"]
        assert [content["text"] for content in contents] == ["found"]


@async_test
async def test_tools_and_prompts_have_their_entries_with_invisible_characters_escaped() -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}, "description": "a\u200bb", "_meta": {"x": [1]}}
    prompt = {"name": "p", "arguments": [{"name": "a\u200b"}], "icons": [{"src": "i"}]}
    results = {"tools/list": {"tools": [tool]}, "prompts/list": {"prompts": [prompt]}}
    async with _open_server_with(results, {"tools": {}, "prompts": {}}) as server:
        (info,) = await server.list_tools()
        assert info.raw == {**tool, "description": "a<U+200B>b"}
        assert info.raw["inputSchema"] is info.input_schema, "kept in memory once"
        (listed,) = await server.list_prompts()
        assert listed.raw == {**prompt, "arguments": [{"name": "a<U+200B>"}]}


@async_test
async def test_every_control_character_of_a_schema_is_escaped_but_tabs_and_line_breaks() -> None:
    controls = [chr(code) for code in (*range(32), 127)]
    schema = {"type": "object", "properties": {"x": {"enum": controls, "description": "C:\\users\\bar"}}}
    results = {"tools/list": {"tools": [{"name": "t", "inputSchema": schema}]}}
    async with _open_server_with(results, {"tools": {}}) as server:
        (info,) = await server.list_tools()
    shown = [char if char in "\t\n" else f"<U+{ord(char):04X}>" for char in controls]
    assert info.input_schema["properties"]["x"] == {"enum": shown, "description": "C:\\users\\bar"}


@async_test
async def test_a_backspace_alone_is_escaped() -> None:
    tool = {"name": "t", "inputSchema": {"type": "object", "description": "safe\b\b\b\bevil"}}
    async with _open_server_with({"tools/list": {"tools": [tool]}}, {"tools": {}}) as server:
        (info,) = await server.list_tools()
    assert info.input_schema["description"] == "safe" + "<U+0008>" * 4 + "evil"


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_large_resource_is_read_whole_and_one_over_the_limit_is_an_error_that_says_so(era: Era) -> None:
    blob = base64.b64encode(bytes(TEN_MEGABYTES)).decode()
    async with (
        FaultyMCPServer(era=era) as remote,
        create_mcp_plugin(remote_tool(remote.url)) as server,
        create_mcp_plugin(remote_tool(remote.url, max_result_bytes=TEN_MEGABYTES - 1)) as limited,
    ):
        await remote.put_resource("test://big", blob=blob)
        assert (await server.request_resource("test://big"))["contents"][0]["blob"] == blob
        with pytest.raises(MCPError, match=f"has {TEN_MEGABYTES} bytes, and 'max_result_bytes' allows"):
            await limited.request_resource("test://big")
        cut = await limited.read_resource("test://big")
        assert cut.success
        assert cut.metadata["full_size"] == TEN_MEGABYTES


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("modern", -32602)])
@async_test
async def test_a_resource_that_does_not_exist_is_an_error_with_the_code_of_the_server(era: Era, code: int) -> None:
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        with pytest.raises(MCPError, match="Unknown resource: test://nope") as raised:
            await server.request_resource("test://nope")
        assert raised.value.details["code"] == code
        assert not (await server.read_resource("test://nope")).success
        assert (await server.call_tool("echo", text="goes on")).text == "goes on"


@async_test
async def test_the_content_decides_and_not_the_type_that_a_server_gives_it() -> None:
    async with FaultyMCPServer() as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        await remote.put_resource("test://text", text="words", mime_type="image/png")
        await remote.put_resource("test://bytes", blob=base64.b64encode(b"\xff\x00").decode(), mime_type="text/plain")
        await remote.put_resource("test://neither", blob="not base64!")
        (text,) = (await server.read_resource("test://text")).content
        assert text == TextContent(text="words", uri="test://text", mime_type="image/png")
        (data,) = (await server.read_resource("test://bytes")).content
        assert data == BinaryContent(data=b"\xff\x00", uri="test://bytes", mime_type="text/plain")
        neither = await server.read_resource("test://neither")
        assert "is not base64" in str(neither.metadata["warnings"])


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_server_completes_arguments_of_prompts_and_variables_of_templates(era: Era) -> None:
    async with FaultyMCPServer(era=era) as remote, create_mcp_plugin(remote_tool(remote.url)) as server:
        prompt = {"type": "ref/prompt", "name": "review"}
        found = await server.complete(prompt, {"name": "code", "value": "f"})
        assert found["completion"]["values"] == ["f()", "fib()"]
        template = {"type": "ref/resource", "uri": PAGES}
        topics = await server.complete(template, {"name": "topic", "value": "pla"})
        assert topics["completion"] == {"values": ["plans", "plants"], "total": 2, "hasMore": False}
        context = {"arguments": {"topic": "people"}}
        pages = await server.complete(template, {"name": "page", "value": ""}, context)
        assert pages["completion"]["values"] == ["1", "2"]


@async_test
async def test_two_servers_with_the_same_uri_are_read_each_for_itself() -> None:
    async with (
        FaultyMCPServer() as one,
        FaultyMCPServer(era="modern") as two,
        create_mcp_plugin(remote_tool(one.url, name="one")) as first,
        create_mcp_plugin(remote_tool(two.url, name="two")) as second,
    ):
        for remote, text in ((one, "of one"), (two, "of two")):
            await remote.put_resource("test://same", text=text)
        read = [(await server.request_resource("test://same"))["contents"][0]["text"] for server in (first, second)]
        assert read == ["of one", "of two"]
