"""Tools of `/v1/messages` that are not plain functions: those that Anthropic's API defines, and MCP servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.messages.message_client import GET_TIME, HELLO, create_message, run_tools, texts_of
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


@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
@async_test(30)
async def test_a_web_search_or_fetch_is_run_by_the_mapped_mcp_tool_and_shown_as_the_api_has_it(
    tmp_path: Path, is_streamed: bool
) -> None:
    found = '{"results": [{"title": "Towers", "url": "https://a.example/t"}, {"url": "https://b.example/t"}]}'
    model = ScriptedModel(
        [say("I look."), call("web_search", text=found)],
        call("web_fetch", text="See https://a.example/t."),
        call("web_search", text="Only https://c.example/x, they say."),
        call("web_search", text="nothing"),
        say("Two."),
        say("Yes."),
    )
    body: dict[str, Any] = {
        "tools": [
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
            {"type": "web_fetch_20260318", "name": "web_fetch"},
        ]
    }
    mapped = {"web_search": "tools.echo", "web_fetch": "tools.echo"}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools=mapped) as gateway,
    ):
        message = await create_message(gateway, is_streamed=is_streamed, **body)
        _, used, searched, fetch, page, *others, _ = message["content"]
        assert (texts_of(message), message["stop_reason"]) == (["I look.", "Two."], "end_turn")
        assert used == {"type": "server_tool_use", "id": used["id"], "name": "web_search", "input": {"text": found}}
        assert (searched["type"], searched["tool_use_id"]) == ("web_search_tool_result", used["id"])
        shown = [(each["type"], each["title"], each["url"], each["page_age"]) for each in searched["content"]]
        assert shown == [
            ("web_search_result", "Towers", "https://a.example/t", None),
            ("web_search_result", "https://b.example/t", "https://b.example/t", None),
        ]
        assert (fetch["name"], page["type"], page["tool_use_id"]) == ("web_fetch", "web_fetch_tool_result", fetch["id"])
        assert (page["content"]["type"], page["content"]["url"]) == ("web_fetch_result", "See https://a.example/t.")
        assert page["content"]["content"]["source"]["data"] == "See https://a.example/t."
        results = [[each["url"] for each in block["content"]] for block in others if "content" in block]
        assert results == [["https://c.example/x"], [""]]
        assert message["usage"]["server_tool_use"] == {"web_search_requests": 3, "web_fetch_requests": 1}
        offered = {tool["function"]["name"]: tool["function"] for tool in gateway.model_requests[0]["tools"]}
        assert '"max_uses":3' in offered["web_search"]["description"]
        before = gateway.model_requests[-1]["messages"]
        sent_back = {"role": "assistant", "content": message["content"]}
        await create_message(gateway, [*HELLO, sent_back, {"role": "user", "content": "Sure?"}], **body)
        # The model reads the same conversation again, so that its provider has it in its cache.
        assert gateway.model_requests[-1]["messages"][: len(before)] == before


@async_test(30)
async def test_calls_that_the_client_is_not_shown_are_remembered_beside_those_that_it_sends_back(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), call("web_search", text="x"), call("get_time"), say("Noon."))
    tools = [{"type": "web_search_20250305", "name": "web_search"}, GET_TIME]
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools={"web_search": "tools.echo"}) as gateway,
    ):
        message = await create_message(gateway, tools=tools)
        await create_message(gateway, [*HELLO, *run_tools(message, {"get_time": "12:00"})], tools=tools)
        outputs = [each["content"] for each in gateway.model_requests[-1]["messages"] if each["role"] == "tool"]
        assert sorted(outputs) == ["12:00", "3", "x"]


@async_test(30)
async def test_a_failed_web_tool_and_results_of_anthropics_servers_are_known(tmp_path: Path) -> None:
    body: dict[str, Any] = {
        "tools": [
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "web_fetch_20260318", "name": "web_fetch"},
        ]
    }
    mapped = {"web_search": "tools.fail", "web_fetch": "tools.fail"}
    model = ScriptedModel([call("web_search", text="x"), call("web_fetch", text="x")], say("Neither."), say("Yes."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools=mapped) as gateway,
    ):
        message = await create_message(gateway, **body)
        errors = [block["content"] for block in message["content"] if block["type"].endswith("_result")]
        assert errors == [
            {"type": "web_search_tool_result_error", "error_code": "unavailable"},
            {"type": "web_fetch_tool_result_error", "error_code": "unavailable"},
        ]
        assert "server_tool_use" not in message["usage"]
        foreign = {
            "type": "web_search_result",
            "url": "https://a.example",
            "title": "A",
            "encrypted_content": "EqgfC==",
        }
        there = [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [foreign]},
        ]
        history = [*HELLO, {"role": "assistant", "content": [*message["content"], *there]}]
        await create_message(gateway, [*history, {"role": "user", "content": "Sure?"}], **body)
        outputs = [each["content"] for each in gateway.model_requests[-1]["messages"] if each["role"] == "tool"]
        assert outputs == ["Error: unavailable", "Error: unavailable", "A\nhttps://a.example"]


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
