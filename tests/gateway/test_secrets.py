"""Secrets and addresses of the operator reach no caller and no model, whatever a server repeats."""

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


@pytest.mark.parametrize("suffix", ["?key=${TOKEN}", "/${TOKEN}/mcp", "?a=b#${TOKEN}"])
@async_test(30)
async def test_the_cause_and_url_of_an_unreachable_server_are_for_the_operator_and_not_for_callers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str
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
            mcp_servers=[_server(f"{server.url}{suffix}")],
        ) as gateway,
    ):
        body = {"model": MODEL, "input": "Hi", "tools": [DECLARED]}
        _, answer = await gateway.send("POST", "/v1/responses", body, key=CALLER)
        assert answer["output"][0]["error"] == "Server 'sums' (connect): it cannot be reached."
        _, listed = await gateway.send("GET", "/v1/mcp/servers", key=ADMIN)
    assert "cannot be reached: Connection refused" in listed["data"][0]["last_error"]
    assert "http://127.0.0.1:" in listed["data"][0]["last_error"]
    assert "cannot be reached: Connection refused" in caplog.text
    assert TOKEN not in json.dumps([answer, listed]) + caplog.text
    assert "127.0.0.1" not in json.dumps(answer)


@async_test(30)
async def test_the_output_of_a_call_that_fails_in_transit_has_no_address_and_no_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holodeck")
    model = ScriptedModel(call("echo", text="x"), say("It failed."))
    async with (
        FaultyMCPServer("dies-mid-call") as server,
        run_gateway(tmp_path, model, mcp={"sums": server}) as gateway,
    ):
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Hi"})
        output = gateway.model_requests[1]["messages"][-1]["content"]
    assert output == (
        "Error: Server 'sums' (call): it cannot be reached. It is not known whether the call took effect."
    )
    assert "mcp.failed server=sums tool=echo error=" in caplog.text


class RepeatingServer:
    """Repeats all that it receives: in the descriptions of its tool, in results, in structured content, in errors."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        async with serve_site(self._answer) as origin:
            yield f"{origin}/mcp"

    async def _answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        received = (
            f"{request.query.get('key')} {request.headers.get('Authorization')} {request.headers.get('X-Tenant')}"
        )
        # As PHP writes it, and as `ensure_ascii` does.
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"], **self._result(message, received)}).replace(
            "/", "\\/"
        )
        return web.Response(text=text, content_type="application/json")

    def _result(self, message: Mapping[str, Any], received: str) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                about = {"name": "repeating", "version": "1"}
                return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}}
            case "tools/list":
                tool = {"name": "repeat", "description": f"Heard {received}", "inputSchema": {"type": "object"}}
                return {"result": {"tools": [tool]}}
            case "tools/call" if message["params"]["arguments"].get("fail"):
                return {"error": {"code": -32602, "message": f"Bad arguments: {received}"}}
            case "tools/call":
                blocks = [{"type": "text", "text": f"héard {received}"}]
                return {"result": {"content": blocks, "structuredContent": {"deep": [{received: received}]}}}
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
async def test_credentials_that_a_server_repeats_reach_neither_the_model_nor_the_caller(
    tmp_path: Path, credentials: dict[str, Any], arguments: dict[str, Any]
) -> None:
    query = credentials.get("query", "")
    settings = {key: value for key, value in credentials.items() if key != "query"}
    headers = {**settings.pop("headers", {}), "X-Tenant": "${TENANT}"}
    value = quote(TOKEN, safe="") if query else TOKEN
    model = ScriptedModel(call("repeat", **arguments), say("Done."))
    async with (
        RepeatingServer().serve() as url,
        run_gateway(
            tmp_path,
            model,
            environ={"TOKEN": value, "TENANT": "acme-corporation"},
            mcp_servers=[_server(f"{url}{query}", headers=headers, **settings)],
        ) as gateway,
    ):
        _, answer = await gateway.send(
            "POST", "/v1/responses", {"model": MODEL, "input": "Hi", "tools": [DECLARED]}, key=ANY_KEY
        )
    seen = json.dumps([answer, gateway.model_requests])
    assert "***" in gateway.model_requests[1]["messages"][-1]["content"]
    assert arguments or "acme-corporation" in gateway.model_requests[1]["messages"][-1]["content"]
    assert TOKEN not in seen
