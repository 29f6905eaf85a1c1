"""The operator's secrets and addresses stay the operator's, whatever a server repeats and however it fails."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from async_tests import async_test
from gateway.running_gateway import ANY_KEY, MODEL, run_gateway
from loopback_site import serve_site

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

TOKEN = "tok/en-With+Signs.0123456789"
CALLER, ADMIN = "hd-caller", "hd-admin"


def _server(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "sums", "type": "mcp", "description": "sums", "transport": "http", "url": url, **more}


DECLARED = {"type": "mcp", "server_label": "sums", "require_approval": "never"}


@pytest.mark.parametrize("place", ["?key=${TOKEN}", "/${TOKEN}/mcp", "?a=b#${TOKEN}"])
@async_test(30)
async def test_a_caller_of_a_server_that_is_down_sees_neither_its_url_nor_why_and_its_operator_sees_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="holodeck")
    model = ScriptedModel(say("Without."))
    async with (
        FaultyMCPServer(down=True) as server,
        run_gateway(
            tmp_path,
            model,
            keys=[CALLER],
            admins=[ADMIN],
            environ={"TOKEN": TOKEN},
            mcp_servers=[_server(f"{server.url}{place}")],
        ) as stand,
    ):
        body = {"model": MODEL, "input": "Hi", "tools": [DECLARED]}
        _, answer = await stand.send("POST", "/v1/responses", body, key=CALLER)
        assert answer["output"][0]["error"] == "Server 'sums' (connect): it cannot be reached."
        _, listed = await stand.send("GET", "/v1/mcp/servers", key=ADMIN)
    assert "cannot be reached: Connection refused" in listed["data"][0]["last_error"]
    assert "http://127.0.0.1:" in listed["data"][0]["last_error"]
    assert "cannot be reached: Connection refused" in caplog.text
    assert TOKEN not in json.dumps([answer, listed]) + caplog.text
    assert "127.0.0.1" not in json.dumps(answer)


@async_test(30)
async def test_a_call_that_fails_on_its_way_tells_the_model_no_address_and_no_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holodeck")
    model = ScriptedModel(call("echo", text="x"), say("It failed."))
    async with FaultyMCPServer("dies-mid-call") as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        await stand.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"})
        said = stand.model_requests[1]["messages"][-1]["content"]
    assert said == ("Error: Server 'sums' (call): it cannot be reached. It is not known whether the call took effect.")
    assert "mcp.failed server=sums tool=echo error=" in caplog.text


class RepeatingServer:
    """Says all that it was sent: in the descriptions of its tool, in results, in structured content, in errors."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        async with serve_site(self._answer) as origin:
            yield f"{origin}/mcp"

    async def _answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        heard = f"{request.query.get('key')} {request.headers.get('Authorization')} {request.headers.get('X-Tenant')}"
        # As PHP writes it, and as `ensure_ascii` does.
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **self._result(message, heard)}).replace("/", "\\/")
        return web.Response(text=text, content_type="application/json")

    def _result(self, message: Mapping[str, Any], heard: str) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                about = {"name": "repeating", "version": "1"}
                return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}}
            case "tools/list":
                tool = {"name": "repeat", "description": f"Heard {heard}", "inputSchema": {"type": "object"}}
                return {"result": {"tools": [tool]}}
            case "tools/call" if message["params"]["arguments"].get("fail"):
                return {"error": {"code": -32602, "message": f"Bad arguments: {heard}"}}
            case "tools/call":
                blocks = [{"type": "text", "text": f"héard {heard}"}]
                return {"result": {"content": blocks, "structuredContent": {"deep": [{heard: heard}]}}}
        return {"error": {"code": -32601, "message": "Method not found"}}


@pytest.mark.parametrize("arguments", [{}, {"fail": True}], ids=["result", "error"])
@pytest.mark.parametrize(
    "credentials",
    [
        {"headers": {"Authorization": "Bearer ${TOKEN}"}},
        {"headers": {"Authorization": "${TOKEN}"}},
        {"auth": {"type": "bearer", "token": "${TOKEN}"}},
        {"query": "?key=${TOKEN}"},
    ],
    ids=["header", "whole header", "auth", "url"],
)
@async_test(30)
async def test_what_a_server_repeats_of_the_operators_credentials_reaches_neither_model_nor_caller(
    tmp_path: Path, credentials: dict[str, Any], arguments: dict[str, Any]
) -> None:
    query = credentials.get("query", "")
    given = {key: value for key, value in credentials.items() if key != "query"}
    headers = {**given.pop("headers", {}), "X-Tenant": "${TENANT}"}
    value = quote(TOKEN, safe="") if query else TOKEN
    model = ScriptedModel(call("repeat", **arguments), say("Done."))
    async with (
        RepeatingServer().serve() as url,
        run_gateway(
            tmp_path,
            model,
            environ={"TOKEN": value, "TENANT": "acme-corporation"},
            mcp_servers=[_server(f"{url}{query}", headers=headers, **given)],
        ) as stand,
    ):
        _, answer = await stand.send(
            "POST", "/v1/responses", {"model": MODEL, "input": "Hi", "tools": [DECLARED]}, key=ANY_KEY
        )
    seen = json.dumps([answer, stand.model_requests])
    assert "***" in stand.model_requests[1]["messages"][-1]["content"]
    assert arguments or "acme-corporation" in stand.model_requests[1]["messages"][-1]["content"]
    assert TOKEN not in seen
