"""Replies of a gateway when a server is missing: 503 if the operator requires it, otherwise a header names it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from openai import APIStatusError

from holodeck.testing import FaultyMCPServer, ScriptedModel, say

HEADER = "x-holodeck-missing-servers"
RESPONSES: dict[str, Any] = {"model": MODEL, "input": "Hi"}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


def _entry(name: str, server: FaultyMCPServer, **settings: Any) -> dict[str, Any]:
    return {"name": name, "type": "mcp", "description": "d", "transport": "http", "url": server.url, **settings}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", RESPONSES),
        ("/v1/responses", RESPONSES | {"stream": True}),
        ("/v1/responses", RESPONSES | {"background": True}),
        ("/v1/responses", RESPONSES | {"tools": [{"type": "mcp", "server_label": "files"}]}),
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", CHAT | {"stream": True}),
    ],
)
@async_test(30)
async def test_a_request_that_needs_a_missing_server_gets_503_and_no_model_is_called(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    async with FaultyMCPServer(down=True) as files, FaultyMCPServer() as calc:
        servers = [_entry("calc", calc), _entry("files", files, required=True)]
        async with run_gateway(tmp_path, ScriptedModel(say("Hello.")), mcp_servers=servers) as gateway:
            async with (await gateway.http_client()).post(path, json=body) as answer:
                error = (await answer.json())["error"]
                assert (answer.status, error["code"]) == (503, "server_unavailable")
                assert int(answer.headers["retry-after"]) >= 1
                assert "'files'" in error["message"]
                assert files.url not in error["message"]
            assert not gateway.model_requests
            assert (await gateway.send("GET", "/readyz"))[0] == 200
            tools = [{"type": "mcp", "server_label": "calc"}]
            assert (await gateway.send("POST", "/v1/responses", RESPONSES | {"tools": tools}))[0] == 200, (
                "files is not offered"
            )


@async_test(30)
async def test_a_stock_client_gets_its_answer_once_the_required_server_is_there(tmp_path: Path) -> None:
    async with FaultyMCPServer(down=True) as files:
        servers = [_entry("files", files, required=True)]
        model = ScriptedModel(say("Hello."))
        async with run_gateway(tmp_path, model, mcp_servers=servers, admins=["root"]) as gateway:
            client = await gateway.openai_client("root")
            with pytest.raises(APIStatusError) as refused:
                await client.responses.create(**RESPONSES)
            assert refused.value.code == "server_unavailable"
            await files.come_up()
            await gateway.send("POST", "/v1/mcp/servers/files/refresh", {}, key="root")
            assert (await client.responses.create(**RESPONSES)).output_text == "Hello."


@pytest.mark.parametrize(("path", "body"), [("/v1/responses", RESPONSES), ("/v1/chat/completions", CHAT)])
@pytest.mark.parametrize("stream", [False, True])
@async_test(30)
async def test_an_answer_without_a_server_names_it_in_a_header_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any], stream: bool
) -> None:
    caplog.set_level(logging.INFO, logger="holodeck")
    async with FaultyMCPServer(down=True) as files, FaultyMCPServer() as calc:
        servers = [_entry("files", files), _entry("calc", calc)]
        async with run_gateway(tmp_path, ScriptedModel(say("Hello."), say("Hello.")), mcp_servers=servers) as gateway:
            session = await gateway.http_client()
            async with session.post(path, json=body) as answer:
                assert (answer.status, answer.headers[HEADER]) == (200, "files")
            async with session.post(path, json=body | {"stream": stream}) as answer:
                assert (answer.status, answer.headers[HEADER]) == (200, "files")
                await answer.read()
            assert "missing_servers=files" in caplog.text
            tools = [{"type": "mcp", "server_label": "calc"}]
            async with session.post("/v1/responses", json=RESPONSES | {"tools": tools}) as answer:
                assert HEADER not in answer.headers
