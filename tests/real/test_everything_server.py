"""The reference server that has everything, written by others: over stdio, SSE and streamable HTTP."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from async_tests import async_test
from real.everything_server import (
    EVERYTHING_TRANSPORTS,
    NETWORK,
    STDIO,
    EverythingServer,
    EverythingTransport,
    serve_everything,
)
from real.project import LEGACY, START_SECONDS, RealProject

from holodeck.lib.errors import MCPError
from holodeck.tools.mcp.content import BinaryContent, ImageContent, TextContent
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.protocol.versions import ProtocolEra, mapping

PNG = b"\x89PNG\r\n"
LEVELS = {
    "Debug": logging.DEBUG,
    "Info": logging.INFO,
    "Notice": logging.INFO,
    "Warning": logging.WARNING,
    "Error": logging.ERROR,
    "Critical": logging.CRITICAL,
    "Alert": logging.CRITICAL,
    "Emergency": logging.CRITICAL,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[EverythingTransport, EverythingServer]]:
    """The same server, already running behind the two network transports."""
    folder = tmp_path_factory.mktemp
    with serve_everything("sse", folder("sse")) as sse, serve_everything("http", folder("http")) as http:
        yield {"sse": sse, "http": http}


class Everything:
    """The server behind one transport."""

    def __init__(
        self, project: RealProject, door: EverythingTransport, running: Mapping[EverythingTransport, EverythingServer]
    ) -> None:
        self.project = project
        self._text = STDIO if door == "stdio" else NETWORK.format(door=door, url=running[door].url)

    def server(self, **callbacks: Any) -> MCPPlugin:
        return self.project.open_server(self._text, callbacks=Callbacks(**callbacks))


@pytest.fixture(params=EVERYTHING_TRANSPORTS)
def everything(
    request: pytest.FixtureRequest, project: RealProject, running: dict[EverythingTransport, EverythingServer]
) -> Everything:
    return Everything(project, request.param, running)


@pytest.mark.proves("000:US1-1", "000:US6-1", "000:US8-1", "000:FR-002", "000:FR-013", "000:FR-014", "000:SC-007")
@pytest.mark.proves("000:US4-1", "000:US4-2", "000:US5-3", "000:FR-022", "D-3", "004:FR-001", "004:FR-002")
@async_test(START_SECONDS)
async def test_its_tools_and_prompts_are_found_and_used(everything: Everything) -> None:
    async with everything.server() as server:
        names = {info.name for info in await server.list_tools()}
        assert {"echo", "get-sum", "get-tiny-image", "get-structured-content"} <= names
        assert (server.era, server.protocol_version) == (ProtocolEra.LEGACY, LEGACY)
        assert server.server_info["name"] == "mcp-servers/everything"
        assert (await server.call_tool("echo", message="grüß dich, 世界")).text == "Echo: grüß dich, 世界"
        assert "5" in (await server.call_tool("get-sum", a=2, b=3)).text
        wrong = await server.call_tool("get-sum", a="two", b=3)
        assert not wrong.success
        assert wrong.is_error
        assert "number" in wrong.text
        assert {info.name for info in await server.list_prompts()} >= {"simple-prompt", "args-prompt"}
        assert "Lisbon" in (await server.get_prompt("args-prompt", city="Lisbon")).text


@pytest.mark.proves("000:US1-3", "000:US3-1", "000:US3-2", "000:US3-4", "000:US3-5", "000:FR-003", "000:FR-017")
@pytest.mark.proves("000:FR-018", "000:FR-020", "001:DEC-6", "D-19", "004:FR-004")
@async_test(START_SECONDS)
async def test_every_kind_of_content_arrives_as_what_it_is(everything: Everything) -> None:
    async with everything.server() as server:
        _, image, _ = (await server.call_tool("get-tiny-image")).content
        assert isinstance(image, ImageContent)
        assert (image.type, image.mime_type) == ("image", "image/png")
        assert base64.b64decode(image.data).startswith(PNG)

        annotated = await server.call_tool("get-annotated-message", messageType="error", includeImage=True)
        assert [block.type for block in annotated.content] == ["text", "image"]
        assert annotated.content[0] == TextContent(text="Error: Operation failed")

        weather = await server.call_tool("get-structured-content", location="Chicago")
        assert weather.structured == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
        assert json.loads(weather.text) == weather.structured

        before, text, after = (await server.call_tool("get-resource-reference", resourceType="Text")).content
        assert isinstance(text, TextContent)
        assert isinstance(before, TextContent)
        assert isinstance(after, TextContent)
        assert text.uri is not None
        assert text.uri in after.text
        blob = (await server.call_tool("get-resource-reference", resourceType="Blob")).content[1]
        assert isinstance(blob, BinaryContent)
        assert b"blob" in blob.data
        assert not blob.is_link

        links = (await server.call_tool("get-resource-links", count=2)).content[1:]
        assert [isinstance(link, BinaryContent) and link.is_link and not link.data for link in links] == [True, True]

        data = "data:text/plain;base64," + base64.b64encode(b"hello").decode()
        (packed,) = (await server.call_tool("gzip-file-as-resource", data=data, outputType="resource")).content
        assert isinstance(packed, BinaryContent)
        assert gzip.decompress(packed.data) == b"hello"


@async_test(START_SECONDS)
async def test_its_resources_are_listed_read_and_completed(everything: Everything) -> None:
    async with everything.server() as server:
        resources = {info.name: info for info in await server.list_resources()}
        assert resources["features.md"].mime_type == "text/markdown"
        (content,) = (await server.request_resource(resources["features.md"].uri))["contents"]
        assert content["text"].startswith("# Everything Server")
        templates = [info.uri_template for info in await server.list_resource_templates()]
        assert "demo://resource/dynamic/text/{resourceId}" in templates
        (made,) = (await server.request_resource("demo://resource/dynamic/text/3"))["contents"]
        assert made["text"].startswith("Resource 3:")
        with pytest.raises(MCPError, match="not found"):
            await server.request_resource("demo://nothing")
        team = {"type": "ref/prompt", "name": "completable-prompt"}
        first = await server.complete(team, {"name": "department", "value": "S"})
        assert first["completion"]["values"] == ["Sales", "Support"]
        context = {"arguments": {"department": "Sales"}}
        second = await server.complete(team, {"name": "name", "value": "E"}, context)
        assert second["completion"]["values"] == ["Eve"]


@async_test(START_SECONDS)
async def test_it_announces_updates_of_a_resource_to_its_listeners(everything: Everything) -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()
    uri = "demo://resource/dynamic/text/1"
    async with everything.server() as server:
        async with await server.subscribe(uri, updates.put_nowait):
            assert (await server.call_tool("toggle-subscriber-updates")).success
            assert await updates.get() == uri
        assert (await server.call_tool("echo", message="still here")).success


@async_test(START_SECONDS)
async def test_a_long_operation_tells_how_far_it_is(everything: Everything) -> None:
    seen: list[tuple[float | None, float | None]] = []
    async with everything.server() as server:
        await server.connect()
        result = await server.call(
            "trigger-long-running-operation",
            {"duration": 0.4, "steps": 4},
            on_progress=lambda done, total, _: seen.append((done, total)),
        )
        assert result.success, result.error
        assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@async_test(START_SECONDS)
async def test_its_research_runs_as_a_task_that_asks_a_question(everything: Everything) -> None:
    states: list[str] = []

    async def choose(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"action": "accept", "content": {"interpretation": "snake"}}

    async with everything.server(elicitation=choose) as server:
        (tool,) = [each for each in await server.list_tools() if each.name == "simulate-research-query"]
        assert tool.task_support == "required"
        result = await server.call(
            tool.name, {"topic": "python", "ambiguous": True}, on_progress=lambda *report: states.append(str(report[2]))
        )
    assert result.success, result.error
    assert result.text.startswith("# Research Report: python (snake)")
    assert "working: Gathering sources..." in states
    assert any(state.startswith("input required: Found multiple interpretations") for state in states)


@pytest.mark.proves("000:EDGE-9", "D-20", "D-11", "000:US4-4", "000:FR-016")
@async_test(START_SECONDS)
async def test_it_may_ask_our_model_the_person_and_for_the_folders(everything: Everything) -> None:
    questions: list[str] = []

    async def sampling(params: Mapping[str, Any]) -> Mapping[str, Any]:
        questions.append(params["messages"][0]["content"]["text"])
        return {"role": "assistant", "model": "test", "content": {"type": "text", "text": "Four, of course."}}

    async def elicitation(params: Mapping[str, Any]) -> Mapping[str, Any]:
        questions.append(params["message"])
        if params.get("mode") == "url":
            return {"action": "decline"}
        return {"action": "accept", "content": {"name": "Ada", "check": True}}

    changed = asyncio.Event()
    answering = {"sampling": sampling, "elicitation": elicitation}
    async with everything.server(**answering, on_tools_changed=changed.set) as server:
        # It adds these only when it has seen what its client can do.
        asking = {"trigger-sampling-request", "trigger-elicitation-request", "get-roots-list"}
        while not asking <= {info.name for info in await server.list_tools()}:
            await changed.wait()
            changed.clear()
        sampled = await server.call_tool("trigger-sampling-request", prompt="2 + 2?")
        assert "Four, of course." in sampled.text
        assert "Ada" in (await server.call_tool("trigger-elicitation-request")).text
        opened = await server.call_tool(
            "trigger-url-elicitation", url="https://example.com/", message="Please open", elicitationId="7"
        )
        assert "declined" in opened.text
        assert (everything.project.path / "data").as_uri() in (await server.call_tool("get-roots-list")).text
    assert "2 + 2?" in questions[0]
    assert questions[1:] == ["Please provide inputs for the following fields:", "Please open"]


@pytest.mark.proves("000:EDGE-9", "D-20")
@async_test(START_SECONDS)
async def test_it_cannot_send_questions_without_our_capability(everything: Everything) -> None:
    async with everything.server() as server:
        names = {info.name for info in await server.list_tools()}
        assert not names & {"trigger-sampling-request", "trigger-elicitation-request"}


@pytest.mark.proves("000:EDGE-8", "000:FR-028", "001:PRAC-1")
@async_test(START_SECONDS)
async def test_what_it_logs_arrives_at_its_level(everything: Everything, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="holodeck.mcp.server.everything")
    logged = asyncio.Event()

    def heard(message: Mapping[str, Any] | Exception) -> None:
        # It also logs when it has learned the roots.
        if isinstance(message, Mapping) and "-level message" in str(mapping(message.get("params")).get("data")):
            logged.set()

    async with everything.server(on_message=heard) as server:
        assert "Started" in (await server.call_tool("toggle-simulated-logging")).text
        await logged.wait()
    records = [record for record in caplog.records if record.name == "holodeck.mcp.server.everything"]
    records = [record for record in records if "-level message" in record.getMessage()]
    said = records[-1].getMessage()
    assert records[-1].levelno == next(level for word, level in LEVELS.items() if word in said)
