"""MCP servers that a request declares by `server_url`: only if allowed, at public addresses, never shared."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

LOOPBACK = {"allow": True, "allow_private_hosts": ["127.0.0.0/8"], "allow_insecure_hosts": ["127.0.0.1"]}
SECRET = "tok-of-alice-4711"
ALICE, BOB = "hd-alice", "hd-bob"


def _declare(server: FaultyMCPServer, **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "mine", "server_url": server.url, "require_approval": "never", **more}


async def _create_response(
    gateway: RunningGateway, *tools: dict[str, Any], key: str = "hd-anybody", **body: Any
) -> tuple[int, Any]:
    return await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": tools, **body}, key=key)


def _read_files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def _sums() -> ScriptedModel:
    return ScriptedModel(
        lambda got: say("Done.") if got.json["messages"][-1]["role"] == "tool" else call("add", a=1, b=2)
    )


@pytest.mark.proves("D-27", "D-26")
@async_test(30)
async def test_a_server_that_a_request_declares_is_used_with_the_credentials_of_the_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        FaultyMCPServer("requires-token", token=SECRET) as server,
        run_gateway(tmp_path, _sums(), request_servers=LOOPBACK) as gateway,
    ):
        tool = _declare(server, authorization=SECRET, headers={"X-Tenant": "tenant-0815"})
        status, answer = await _create_response(gateway, tool, store=True)
        assert status == 200
        assert [item["type"] for item in answer["output"]] == ["mcp_list_tools", "mcp_call", "message"]
        assert answer["output"][1]["output"] == "3"
        assert answer["tools"][0]["server_url"] == f"http://127.0.0.1:{server.port}/<redacted>"
        assert not {"authorization", "headers"} & set(answer["tools"][0])
        assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {SECRET}"}
        assert {one.headers["x-tenant"] for one in server.requests} == {"tenant-0815"}
        _, stored = await gateway.send("GET", f"/v1/responses/{answer['id']}")
        _, metrics = await gateway.send("GET", "/metrics")
        stored_bytes = _read_files(tmp_path)
        assert answer["id"].encode() in stored_bytes
        for secret in (SECRET, "tenant-0815"):
            assert secret not in caplog.text
            assert secret not in repr((answer, stored, gateway.model_requests))
            assert secret.encode() not in stored_bytes
        assert b"mine" not in metrics
        again = {"model": MODEL, "input": "Go", "stream": True, "tools": [tool], "previous_response_id": answer["id"]}
        events = await gateway.stream("/v1/responses", again)
        assert [item["type"] for item in events[-1]["response"]["output"]] == ["mcp_call", "message"]
        assert SECRET not in repr(events)


@pytest.mark.proves("D-27")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"])
@async_test(30)
async def test_no_connection_is_opened_to_a_private_address_in_any_spelling(tmp_path: Path, host: str) -> None:
    rules = {"allow": True, "allow_insecure_hosts": [host.strip("[]")]}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(say("Without it.")), request_servers=rules) as gateway,
    ):
        tool = _declare(server, server_url=f"http://{host}:{server.port}/mcp?key=in-the-query")
        status, answer = await _create_response(gateway, tool)
        assert (status, answer["output"][-1]["content"][0]["text"]) == (200, "Without it.")
        listed = answer["output"][0]
        assert (listed["type"], listed["tools"]) == ("mcp_list_tools", [])
        assert "mine" in listed["error"]
        assert "in-the-query" not in listed["error"]
        assert not server.requests


@pytest.mark.proves("D-27")
@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "[::1].public.example"])
@async_test(30)
async def test_an_ambiguous_host_is_refused(tmp_path: Path, host: str) -> None:
    rules = {"allow": True, "allow_insecure_hosts": [host]}
    async with FaultyMCPServer() as server, run_gateway(tmp_path, request_servers=rules) as gateway:
        status, answer = await _create_response(
            gateway, _declare(server, server_url=f"http://{host}:{server.port}/mcp")
        )
        assert (status, answer["error"]["code"]) == (400, "invalid_url")
        assert not server.requests


@pytest.mark.proves("D-27")
@async_test(30)
async def test_a_private_host_that_the_operator_allows_is_used(tmp_path: Path) -> None:
    rules = {"allow": True, "allow_private_hosts": ["LocalHost"], "allow_insecure_hosts": ["localhost"]}
    async with FaultyMCPServer() as server, run_gateway(tmp_path, _sums(), request_servers=rules) as gateway:
        tool = _declare(server, server_url=f"http://localhost:{server.port}/mcp")
        _, answer = await _create_response(
            gateway, tool, tool_choice={"type": "mcp", "server_label": "mine", "name": "add"}
        )
        assert [item["type"] for item in answer["output"]] == ["mcp_list_tools", "mcp_call", "message"]


@pytest.mark.proves("D-27")
@async_test(30)
async def test_a_background_response_uses_a_declared_server_after_its_request_is_answered(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer("requires-token", token=SECRET) as server,
        run_gateway(tmp_path, _sums(), request_servers=LOOPBACK) as gateway,
    ):
        tool = _declare(server, server_url=f"{server.url}?key=in-the-query", authorization=SECRET)
        _, queued = await _create_response(gateway, tool, background=True)
        events = await gateway.stream(f"/v1/responses/{queued['id']}?stream=true")
        assert [item["type"] for item in events[-1]["response"]["output"]] == ["mcp_list_tools", "mcp_call", "message"]
        assert queued["id"].encode() in _read_files(tmp_path)
        assert not [secret for secret in (SECRET, "in-the-query") if secret.encode() in _read_files(tmp_path)]


@pytest.mark.proves("D-27")
@async_test(30)
async def test_a_redirect_to_another_server_is_not_followed(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer("redirect-elsewhere") as server,
        run_gateway(tmp_path, ScriptedModel(say("Without it.")), request_servers=LOOPBACK) as gateway,
    ):
        status, answer = await _create_response(gateway, _declare(server, authorization=SECRET))
        assert (status, answer["output"][0]["tools"]) == (200, [])
        assert "redirect" in answer["output"][0]["error"]
        assert not [one for one in server.requests if one.method == "(elsewhere)"]


@pytest.mark.proves("D-27", "D-25")
@async_test(30)
async def test_a_forbidden_declaration_is_refused_with_the_field_and_the_reason(tmp_path: Path) -> None:
    rules = {**LOOPBACK, "hosts": ["127.0.0.1", "*.example.com"], "max_per_request": 1}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, _sums(), mcp={"sums": server}, request_servers=rules) as gateway,
    ):
        mine = _declare(server)
        for tools, param, text in (
            ([{**mine, "server_url": "http://api.example.com/mcp"}], "tools[0].server_url", "https"),
            ([{**mine, "server_url": "https://evil.test/mcp"}], "tools[0].server_url", "host"),
            ([{**mine, "server_url": "https://me:pw@api.example.com/"}], "tools[0].server_url", "credentials"),
            ([{**mine, "server_url": "ftp://api.example.com/"}], "tools[0].server_url", "https"),
            ([{**mine, "server_label": "sums"}], "tools[0].server_label", "sums"),
            ([{**mine, "server_label": "my server"}], "tools[0].server_label", "letter"),
            ([mine, {**mine, "server_label": "other"}], "tools[1]", "At most 1 servers"),
            ([{**mine, "headers": {"Host": "internal"}}], "tools[0].headers.Host", "gateway"),
            ([{**mine, "headers": {"Mcp-Session-Id": "x"}}], "tools[0].headers.Mcp-Session-Id", "gateway"),
            ([{**mine, "headers": {"X Y": "x"}}], "tools[0].headers", "name"),
            ([{**mine, "headers": {"X": "a\r\nY: b"}}], "tools[0].headers.X", "one line"),
            ([{**mine, "authorization": "a\nb"}], "tools[0].authorization", "token"),
            ([{"type": "mcp", "server_label": "sums", "authorization": "x"}], "tools[0].authorization", "operator"),
            ([{"type": "mcp", "server_label": "sums", "headers": {"X": "x"}}], "tools[0].headers", "operator"),
            ([{"type": "mcp", "server_label": "mail", "connector_id": "c"}], "tools[0].connector_id", "server_label"),
        ):
            status, error = await _create_response(gateway, *tools)
            assert (status, error["error"]["param"]) == (400, param)
            assert text in error["error"]["message"]
        assert not server.requests
        assert not gateway.model_requests


@pytest.mark.proves("D-27", "D-29")
@async_test(30)
async def test_two_callers_never_share_a_connection_and_each_reuses_its_own(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, _sums(), keys=[ALICE, BOB], request_servers=LOOPBACK) as gateway,
    ):
        for key, more in (
            (ALICE, {}),
            (BOB, {}),
            (ALICE, {}),
            (ALICE, {"authorization": "another"}),
            (ALICE, {"headers": {"X-Tenant": "1"}}),
        ):
            assert (await _create_response(gateway, _declare(server, **more), key=key))[0] == 200
        used = [one.headers["mcp-session-id"] for one in server.calls("add")]
        assert used[0] == used[2]
        assert len(set(used)) == 4
        assert len(gateway.service.configurations.current.pool) == 4
    assert not server.sessions


@pytest.mark.proves("D-27")
@async_test(30)
async def test_tools_of_a_declared_sse_server_and_of_the_gateway_are_offered_together(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("mine__add", a=3, b=4)], say("3 and 7."))
    async with (
        FaultyMCPServer() as sums,
        FaultyMCPServer(transport="sse") as other,
        run_gateway(tmp_path, model, mcp={"sums": sums}, request_servers=LOOPBACK) as gateway,
    ):
        configured = {"type": "mcp", "server_label": "sums", "require_approval": "never"}
        status, answer = await _create_response(gateway, configured, _declare(other))
        assert status == 200
        calls = [item for item in answer["output"] if item["type"] == "mcp_call"]
        assert [(one["server_label"], one["name"], one["output"]) for one in calls] == [
            ("sums", "add", "3"),
            ("mine", "add", "7"),
        ]
        assert (len(sums.calls()), len(other.calls())) == (1, 1)


@pytest.mark.proves("D-27", "D-26")
@async_test(30)
async def test_a_call_of_a_declared_server_waits_for_approval_and_then_runs_once(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, run_gateway(tmp_path, _sums(), request_servers=LOOPBACK) as gateway:
        tool = _declare(server, require_approval="always")
        _, first = await _create_response(gateway, tool)
        approval = first["output"][-1]
        assert (approval["type"], approval["server_label"]) == ("mcp_approval_request", "mine")
        yes = {"type": "mcp_approval_response", "approval_request_id": approval["id"], "approve": True}
        _, second = await _create_response(gateway, tool, input=[yes], previous_response_id=first["id"])
        assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-27", "004:SC-004")
@async_test(30)
async def test_a_declared_server_that_is_down_degrades_the_request_and_is_used_when_it_is_back(tmp_path: Path) -> None:
    model = ScriptedModel(say("Without it."), call("add", a=1, b=2), say("3."))
    async with (
        FaultyMCPServer(down=True) as server,
        run_gateway(tmp_path, model, request_servers=LOOPBACK) as gateway,
    ):
        status, answer = await _create_response(gateway, _declare(server))
        assert (status, answer["status"]) == (200, "completed")
        assert "mine" in answer["output"][0]["error"]
        await server.come_up()
        _, answer = await _create_response(gateway, _declare(server))
        assert [item["type"] for item in answer["output"]] == ["mcp_list_tools", "mcp_call", "message"]
