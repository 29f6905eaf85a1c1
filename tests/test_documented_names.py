"""Every public name of the requirement documents exists where they say and is what they say."""

from __future__ import annotations

import asyncio
import importlib
import re
import typing

import pytest
from async_tests import async_test
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.errors import (
    ConfigError,
    HoloDeckError,
    MCPConfigError,
    MCPConnectionError,
    MCPError,
    MCPProtocolError,
    MCPTimeoutError,
    MCPToolNotFoundError,
)
from holodeck.models.tool import CommandType, MCPTool
from holodeck.testing import FaultyMCPServer
from holodeck.tools.executor import ToolCall, ToolExecutor, ToolKind, ToolResult
from holodeck.tools.mcp.content import AudioContent, BinaryContent, ContentBlock, ImageContent, TextContent
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.names import model_names, normalize_tool_name
from holodeck.tools.mcp.plugin import MCPPluginWrapper

NAMES = {
    "holodeck.config.env_loader": ("substitute_env_vars", "load_env_file", "get_env_var"),
    "holodeck.lib.errors": ("HoloDeckError", "ConfigError", "ExecutionError"),
    "holodeck.models.tool": ("MCPTool", "TransportType", "CommandType"),
    "holodeck.tools.mcp.errors": (
        "MCPConfigError",
        "MCPError",
        "MCPConnectionError",
        "MCPTimeoutError",
        "MCPProtocolError",
        "MCPToolNotFoundError",
    ),
    "holodeck.tools.mcp.factory": ("create_mcp_plugin",),
    "holodeck.tools.mcp.names": ("normalize_tool_name",),
    "holodeck.tools.mcp.content": (
        "TextContent",
        "ImageContent",
        "AudioContent",
        "BinaryContent",
        "ContentBlock",
        "MCPToolResult",
    ),
    "holodeck.tools.mcp.plugin": (
        "MCPPluginWrapper",
        "MCPStdioPlugin",
        "MCPSsePlugin",
        "MCPWebsocketPlugin",
        "MCPStreamableHttpPlugin",
    ),
    "holodeck.tools.executor": ("ToolExecutor", "ToolKind", "ToolCall", "ToolResult"),
    "holodeck.tools.mcp.executor": ("MCPExecutor",),
    "holodeck.tools.mcp.client": ("MCPClient",),
    "holodeck.tools.mcp.auth.provider": ("MCPAuthProvider",),
}


@pytest.mark.proves("D-4", "D-2")
@pytest.mark.parametrize("module", NAMES)
def test_a_documented_name_is_where_the_documents_say(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(loaded, name)] == []


@pytest.mark.proves("001:DEC-7", "002:ERR-4")
def test_mcp_errors_are_part_of_the_one_tree() -> None:
    assert issubclass(MCPConfigError, ConfigError)
    assert issubclass(MCPError, HoloDeckError)
    assert not issubclass(MCPError, ConfigError)
    for kind in (MCPConnectionError, MCPProtocolError, MCPToolNotFoundError):
        assert issubclass(kind, MCPError)
    assert issubclass(MCPTimeoutError, MCPConnectionError)


@pytest.mark.proves("002:ENT-6", "002:ENT-7", "002:ENT-8", "002:ENT-9", "002:ENT-10")
def test_content_blocks_have_the_fields_of_the_data_model() -> None:
    assert (TextContent(text="a").type, TextContent(text="a").text) == ("text", "a")
    image = ImageContent(data="aGk=", mime_type="image/png")
    assert (image.type, image.data, image.mime_type) == ("image", "aGk=", "image/png")
    audio = AudioContent(data="aGk=", mime_type="audio/wav")
    assert (audio.type, audio.data, audio.mime_type) == ("audio", "aGk=", "audio/wav")
    binary = BinaryContent(data=b"hi")
    assert (binary.type, binary.data, binary.mime_type, binary.uri) == ("binary", b"hi", None, None)
    assert set(typing.get_args(ContentBlock)) == {TextContent, ImageContent, AudioContent, BinaryContent}


@pytest.mark.proves("001:DEC-5", "000:FR-015", "000:US4-3")
@pytest.mark.parametrize(
    ("name", "expected"),
    [("read.file", "read-file"), ("a b/c", "a-b-c"), ("ünï", "-n-"), ("under_score9", "under_score9"), ("a-b", "a-b")],
)
def test_everything_but_letters_digits_and_underscore_becomes_a_dash(name: str, expected: str) -> None:
    assert normalize_tool_name(name) == expected


@pytest.mark.proves("D-18")
@given(st.lists(st.text(min_size=1, max_size=90), unique=True, max_size=30))
def test_names_for_models_are_valid_short_unique_and_lead_back(names: list[str]) -> None:
    passed_names = model_names(names)
    assert list(passed_names) == names
    assert len(set(passed_names.values())) == len(names)
    assert all(0 < len(name) <= 64 and re.fullmatch(r"[a-zA-Z0-9_-]+", name) for name in passed_names.values())
    assert model_names(names) == passed_names


@pytest.mark.proves("001:DEC-10")
def test_the_time_limit_of_a_call_is_sixty_seconds_unless_the_tool_says_otherwise() -> None:
    assert MCPTool(name="t", command=CommandType.NPX, server="x").request_timeout == 60
    assert MCPTool(name="t", command=CommandType.NPX, server="x", request_timeout=5).request_timeout == 5


@pytest.mark.proves("002:ENT-4")
@async_test
async def test_a_plugin_connects_calls_lists_prompts_and_disconnects() -> None:
    async with FaultyMCPServer() as server:
        tool = MCPTool.model_validate({"name": "t", "transport": "http", "url": server.url})
        plugin: MCPPluginWrapper = create_mcp_plugin(tool)
        await plugin.connect()
        assert "add" in {info.name for info in await plugin.list_tools()}
        assert "review" in {info.name for info in await plugin.list_prompts()}
        assert (await plugin.call_tool("add", a=1, b=2)).text == "3"
        assert (await plugin.get_prompt("review", code="x")).messages
        await plugin.disconnect()


class Echo(ToolExecutor):
    """An executor outside the package, which the loop does not know."""

    kind = ToolKind.BUILTIN

    async def specs(self) -> list[typing.Any]:
        return []

    def can_execute(self, name: str) -> bool:
        return name == "echo"

    async def execute(self, call: ToolCall) -> ToolResult:
        return ToolResult.failure(call.call_id, "as a result")


@pytest.mark.proves("D-21", "004:SC-005")
def test_four_methods_make_an_executor() -> None:
    executor: ToolExecutor = Echo()
    result = asyncio.run(_executed(executor))
    assert (executor.kind, result.is_error) == (ToolKind.BUILTIN, True)


async def _executed(executor: ToolExecutor) -> ToolResult:
    return await executor.execute(ToolCall(call_id="c", name="echo", arguments={}))
