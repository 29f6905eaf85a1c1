"""Tools of `/v1/messages` that are not plain functions: those that Anthropic's API defines, and MCP servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.messages.message_client import HELLO, create_message, run_tools, texts_of
from gateway.running_gateway import run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

EPHEMERAL = {"type": "ephemeral"}
CLIENT_TOOLS: list[dict[str, Any]] = [
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10_000},
    {"type": "computer_20251124", "name": "computer", "display_width_px": 800, "display_height_px": 600},
    {"type": "memory_20250818", "name": "memory", "cache_control": EPHEMERAL},
]
LOOPBACK = {"allow": True, "allow_private_hosts": ["127.0.0.0/8"], "allow_insecure_hosts": ["127.0.0.1"]}
TOKEN = "tok-4711"


@async_test(30)
async def test_tools_that_anthropic_defines_are_offered_to_its_models_as_they_are(tmp_path: Path) -> None:
    model = ScriptedModel(call("bash", command="ls"), say("Done."))
    async with run_gateway(tmp_path, model, dialect="anthropic") as gateway:
        for tools in (CLIENT_TOOLS, [{**tool, "cache_control": EPHEMERAL} for tool in CLIENT_TOOLS]):
            await create_message(gateway, tools=tools)
            assert gateway.model_requests[-1]["tools"] == tools
        assert gateway.model.received[-1].headers["anthropic-beta"] == "computer-use-2025-11-24"


@async_test(30)
async def test_tools_that_anthropic_defines_are_functions_for_other_models(tmp_path: Path) -> None:
    model = ScriptedModel(call("bash", command="ls"), say("Done."))
    async with run_gateway(tmp_path, model) as gateway:
        message = await create_message(gateway, tools=CLIENT_TOOLS)
        (block,) = message["content"]
        assert (block["type"], block["name"], block["input"]) == ("tool_use", "bash", {"command": "ls"})
        offered = {tool["function"]["name"]: tool["function"] for tool in gateway.model_requests[0]["tools"]}
        assert list(offered) == [tool["name"] for tool in CLIENT_TOOLS]
        assert "command" in offered["bash"]["parameters"]["properties"]
        assert "800 pixels" in offered["computer"]["description"]
        answered = run_tools(message, {"bash": "a.txt"})
        last = await create_message(gateway, [*HELLO, *answered], tools=CLIENT_TOOLS)
        assert texts_of(last) == ["Done."]


@async_test(30)
async def test_a_web_search_or_fetch_is_run_by_the_mcp_tool_that_the_operator_has_mapped(tmp_path: Path) -> None:
    model = ScriptedModel(call("web_search", text="towers"), call("web_fetch", text="page"), say("Two."))
    tools = [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "web_fetch_20260318", "name": "web_fetch"},
    ]
    mapped = {"web_search": "tools.echo", "web_fetch": "tools.echo"}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools=mapped) as gateway,
    ):
        message = await create_message(gateway, tools=tools)
        assert texts_of(message) == ["Two."]
        assert [each.params["arguments"]["text"] for each in server.calls("echo")] == ["towers", "page"]
        offered = {tool["function"]["name"]: tool["function"] for tool in gateway.model_requests[0]["tools"]}
        assert '"max_uses":3' in offered["web_search"]["description"]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
@async_test(30)
async def test_a_server_of_mcp_servers_is_used_and_its_calls_are_shown(tmp_path: Path, is_streamed: bool) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."), say("Yes."))
    toolset = {
        "type": "mcp_toolset",
        "mcp_server_name": "sums",
        "default_config": {"enabled": False},
        "configs": {"add": {"enabled": True}},
    }
    async with (
        FaultyMCPServer("requires-token", token=TOKEN) as server,
        run_gateway(tmp_path, model, request_servers=LOOPBACK) as gateway,
    ):
        declared: dict[str, Any] = {
            "mcp_servers": [{"type": "url", "name": "sums", "url": server.url, "authorization_token": TOKEN}],
            "tools": [toolset],
        }
        message = await create_message(gateway, is_streamed=is_streamed, **declared)
        used, result, text = message["content"]
        call_id = used["id"]
        assert {**used, "id": ""} == {
            "type": "mcp_tool_use",
            "id": "",
            "name": "add",
            "server_name": "sums",
            "input": {"a": 1, "b": 2},
        }
        assert (result["tool_use_id"], result["is_error"], result["content"][0]["text"]) == (call_id, False, "3")
        assert (text["text"], message["stop_reason"]) == ("It is 3.", "end_turn")
        offered = [tool["function"]["name"] for tool in gateway.model_requests[0]["tools"]]
        assert offered == ["add"]
        sent_back = {"role": "assistant", "content": message["content"]}
        await create_message(gateway, [*HELLO, sent_back, {"role": "user", "content": "Sure?"}], **declared)
        roles = [entry["role"] for entry in gateway.model_requests[-1]["messages"]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
        assert TOKEN.encode() not in orjson.dumps(gateway.model_requests)


@async_test(30)
async def test_what_the_operator_does_not_allow_is_refused_in_the_words_of_the_api(tmp_path: Path) -> None:
    document = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [document]}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]}
    server = {"type": "url", "name": "sums", "url": "https://example.com/mcp"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"messages": [{"role": "user", "content": [document]}]}, "'messages[0].content[0].source.url'"),
        (
            {"messages": [*HELLO, called, {"role": "user", "content": [result]}]},
            "'messages[2].content[0].content[0].source.url'",
        ),
        ({"mcp_servers": [server]}, "mcp_servers[0].url"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "sums"}]}, "'tools[0].mcp_server_name'"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'tools[0].type'"),
        ({"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "'tools[0].type'"),
    ]
    async with run_gateway(tmp_path) as gateway:
        for changes, named in cases:
            status, error = await gateway.send("POST", "/v1/messages", {"max_tokens": 9, "messages": HELLO, **changes})
            assert (status, error["error"]["type"]) == (400, "invalid_request_error"), error
            assert named in error["error"]["message"]
            assert "file_data" not in error["error"]["message"]
