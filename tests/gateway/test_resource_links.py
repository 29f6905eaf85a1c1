"""Resources that results of tools link to: the model can read them, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from loopback_site import serve_site

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

LINK = "test://far.pdf"


async def _ask(gateway: RunningGateway, **body: Any) -> list[dict[str, Any]]:
    status, answer = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", **body})
    assert (status, answer["status"]) == (200, "completed"), answer
    output: list[dict[str, Any]] = answer["output"]
    return output


def _offered(gateway: RunningGateway) -> list[set[str]]:
    return [{tool["function"]["name"] for tool in request.get("tools", [])} for request in gateway.model_requests]


def _latest_result(gateway: RunningGateway, turn: int) -> str:
    return str(gateway.model_requests[turn]["messages"][-1]["content"])


def _declared(**more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "files", **more}


@pytest.mark.proves("D-19")
@async_test(60)
async def test_a_real_server_s_linked_resources_are_read_when_the_model_asks(tmp_path: Path) -> None:
    text, blob = "demo://resource/dynamic/text/2", "demo://resource/dynamic/blob/1"
    model = ScriptedModel(
        call("get-resource-links", count=2),
        [call("read_resource", uri=text), call("read_resource", uri=blob)],
        call("read_resource", uri="demo://resource/dynamic/text/4"),
        say("Done."),
    )
    server = {
        "type": "mcp",
        "name": "everything",
        "description": "d",
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-everything"],
    }
    async with run_gateway(tmp_path, model, mcp_servers=[server], allow_stdio=True, mcp_output="portable") as gateway:
        items = await _ask(gateway)
        assert [{"read_resource"} <= names for names in _offered(gateway)] == [False, True, True, True]
        read, binary = (message["content"] for message in gateway.model_requests[2]["messages"][-2:])
        assert read.startswith("Resource 2: This is a plaintext resource")
        assert blob in binary
        assert "No tool result has linked to this URI" in _latest_result(gateway, 3)
        kinds = [item["type"] for item in items]
        assert kinds.count("function_call") == kinds.count("function_call_output") == 4
        assert [item["name"] for item in items if item["type"] == "function_call"][1:] == ["read_resource"] * 3


@async_test(30)
async def test_a_long_resource_is_cut_and_read_on_like_any_result(tmp_path: Path) -> None:
    rest = call("read_result", id="call_2", start_line=10_000, lines=1)
    model = ScriptedModel(call("resource_link"), call("read_resource", uri=LINK), rest, say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"files": server}) as gateway:
        await _ask(gateway)
        assert [one.params["uri"] for one in server.requests if one.method == "resources/read"] == [LINK]
        cut = _latest_result(gateway, 2)
        assert len(cut) < 30_000
        assert "of 90000 characters" in cut
        assert _latest_result(gateway, 3).startswith("far away\n[lines 10000 to 10000")


@async_test(30)
async def test_a_resource_over_the_limit_of_its_server_is_cut(tmp_path: Path) -> None:
    model = ScriptedModel(call("resource_link"), call("read_resource", uri=LINK), say("Done."))
    async with FaultyMCPServer() as server:
        entry = {"type": "mcp", "name": "files", "description": "d", "transport": "http", "url": server.url}
        async with run_gateway(tmp_path, model, mcp_servers=[entry | {"max_result_bytes": 1_024}]) as gateway:
            await _ask(gateway)
            assert "[cut: 90000 bytes in all]" in _latest_result(gateway, 2)
            assert len(_latest_result(gateway, 2)) < 2_048


@async_test(30)
async def test_a_server_s_failure_to_read_is_an_error_for_the_model(tmp_path: Path) -> None:
    reading = call("read_resource", uri=LINK)
    model = ScriptedModel(call("resource_link"), reading, reading, say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"files": server}) as gateway:
        server.misbehave("http-500", on="resources/read", times=1)
        await _ask(gateway)
        assert "'files'" in _latest_result(gateway, 2)
        assert "far away" in _latest_result(gateway, 3)


@async_test(30)
async def test_a_uri_that_two_servers_named_is_read_from_the_one_that_the_model_names(tmp_path: Path) -> None:
    model = ScriptedModel(
        [call("resource_link"), call("more__resource_link")],
        call("read_resource", uri=LINK),
        call("read_resource", uri=LINK, server="more"),
        say("Done."),
    )
    async with (
        FaultyMCPServer() as files,
        FaultyMCPServer() as more,
        run_gateway(tmp_path, model, mcp={"files": files, "more": more}) as gateway,
    ):
        await _ask(gateway)
        assert "files, more" in _latest_result(gateway, 2)
        assert "far away" in _latest_result(gateway, 3)
        assert [[one.method for one in each.requests].count("resources/read") for each in (files, more)] == [0, 1]


@async_test(30)
async def test_a_tool_of_the_client_keeps_its_name_beside_the_reading_of_resources(tmp_path: Path) -> None:
    own = {"type": "function", "name": "read_resource", "description": "d", "parameters": {"type": "object"}}
    model = ScriptedModel(
        call("resource_link"), call("holodeck_read_resource", uri=LINK), call("read_resource"), say("Done.")
    )
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"files": server}) as gateway:
        items = await _ask(gateway, tools=[own | {"strict": False}])
        assert "far away" in _latest_result(gateway, 2)
        assert (items[-1]["type"], items[-1]["name"]) == ("function_call", "read_resource")


@pytest.mark.parametrize(
    "settings",
    [
        {"approval": {"always": ["*"], "never": ["resource_link"]}},
        {"approval": {"always": ["read_resource"]}},
        {"denied_tools": ["read_resource"]},
    ],
)
@async_test(30)
async def test_reading_that_the_operator_denies_or_wants_approved_is_not_offered(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    model = ScriptedModel(call("resource_link"), call("read_resource", uri=LINK), say("Done."))
    async with FaultyMCPServer() as server:
        entry = {"type": "mcp", "name": "files", "description": "d", "transport": "http", "url": server.url}
        async with run_gateway(tmp_path, model, mcp_servers=[entry | settings]) as gateway:
            await _ask(gateway)
            assert "There is no tool 'read_resource'" in _latest_result(gateway, 2)
            assert not any("read_resource" in names for names in _offered(gateway))
        assert not [one for one in server.requests if one.method == "resources/read"]


@pytest.mark.parametrize(
    ("rule", "is_offered"),
    [
        ("never", True),
        ({"never": {"tool_names": ["resource_link", "read_resource"]}}, True),
        ({"never": {"tool_names": ["resource_link"]}}, False),
    ],
)
@async_test(30)
async def test_reading_from_a_declared_server_follows_the_client_s_approvals(
    tmp_path: Path, rule: Any, is_offered: bool
) -> None:
    model = ScriptedModel(call("resource_link"), say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"files": server}) as gateway:
        await _ask(gateway, tools=[_declared(require_approval=rule, allowed_tools=["resource_link"])])
        assert ["read_resource" in names for names in _offered(gateway)] == [False, is_offered]


@async_test(30)
async def test_a_modern_server_that_a_request_declares_by_its_address_is_read_from(tmp_path: Path) -> None:
    model = ScriptedModel(call("resource_link"), call("read_resource", uri=LINK), say("Done."))
    rules = {"allow": True, "allow_private_hosts": ["127.0.0.0/8"], "allow_insecure_hosts": ["127.0.0.1"]}
    async with FaultyMCPServer(era="modern") as server, run_gateway(tmp_path, model, request_servers=rules) as gateway:
        await _ask(gateway, tools=[_declared(server_url=server.url, require_approval="never")])
        assert "far away" in _latest_result(gateway, 2)


@async_test(30)
async def test_a_server_that_declares_no_resources_is_not_read_from(tmp_path: Path) -> None:
    about = {"name": "links", "version": "1"}
    results: dict[str, dict[str, Any]] = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about},
        "tools/list": {"tools": [{"name": "find", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "resource_link", "uri": LINK, "name": "far.pdf"}]},
    }

    async def answer(request: web.Request) -> web.Response:
        message = await request.json()
        if message["method"] not in results:
            return web.Response(status=202 if "id" not in message else 404)
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})

    model = ScriptedModel(call("find"), say("Done."))
    async with serve_site(answer) as origin:
        entry = {"type": "mcp", "name": "links", "description": "d", "transport": "http", "url": f"{origin}/mcp"}
        async with run_gateway(tmp_path, model, mcp_servers=[entry]) as gateway:
            await _ask(gateway)
            assert LINK in _latest_result(gateway, 1)
            assert _offered(gateway) == [{"find"}] * 2
