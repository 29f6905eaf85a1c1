"""Paths that a gateway does not have."""

from __future__ import annotations

from pathlib import Path

from async_tests import async_test
from gateway.running_gateway import run_gateway


@async_test(30)
async def test_an_unknown_path_is_refused_with_the_apis_that_exist(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        status, reply = await gateway.send("POST", "/v1/audio/speech", {})
        assert (status, reply["error"]["code"]) == (404, "unknown_url")
        named = reply["error"]["message"].partition("There are: ")[2].rstrip(".").split(", ")
        assert {"/v1/responses", "/v1/chat/completions", "/v1/messages", "/v1/models"} <= set(named)
        # Neither what is below them, nor what only an operator may ask.
        assert not [path for path in named if path.startswith(("/v1/responses/", "/v1/messages/", "/v1/mcp"))]
