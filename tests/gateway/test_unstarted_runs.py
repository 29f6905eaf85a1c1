"""A run that was built and never starts leaves its conversation and its pending calls to the next request."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.conversation_client import (
    GET_TIME,
    MIXED_CALLS,
    answer_get_time,
    create_conversation,
    create_response,
    last_model_messages,
)
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, say


@pytest.fixture
def _no_collections() -> Iterator[None]:
    """The garbage collector frees nothing during the test."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class LostClient:
    """An HTTP request whose client disconnects before the reply has started."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body = orjson.dumps(body)
        self.is_reply_started = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        body, self._body = self._body, b""
        if not body:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": body, "more_body": False}

    async def fail_to_send(self, message: Any) -> None:
        self.is_reply_started.set()
        raise OSError("the client has left")

    async def block(self, message: Any) -> None:
        self.is_reply_started.set()
        await asyncio.Event().wait()


def scope() -> dict[str, Any]:
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    return {
        "type": "http",
        "scheme": "http",
        "method": "POST",
        "path": "/v1/responses",
        "query_string": b"",
        "headers": headers,
    }


async def lose_client(gateway: RunningGateway, body: dict[str, Any], *, is_cancelled: bool) -> BaseException | None:
    """Send a request whose client leaves before the first chunk. Returns the error that its server gets."""
    client = LostClient(body)
    send = client.block if is_cancelled else client.fail_to_send
    serving = asyncio.create_task(gateway.service.app(scope(), client.receive, send))
    await client.is_reply_started.wait()
    if is_cancelled:
        serving.cancel()
    await asyncio.wait({serving})
    return None if serving.cancelled() else serving.exception()


@pytest.mark.proves("D-16", "D-23")
@pytest.mark.usefixtures("_no_collections")
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["the server ends the request", "the client is gone"])
@pytest.mark.parametrize("is_conversation", [True, False], ids=["conversation", "previous response"])
@async_test
async def test_calls_of_a_stream_that_never_started_are_run_by_the_next_request(
    tmp_path: Path, is_conversation: bool, is_cancelled: bool
) -> None:
    model = ScriptedModel(MIXED_CALLS, say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        previous = await create_conversation(gateway) if is_conversation else {}
        first = await create_response(gateway, "Go", **previous)
        previous = previous or {"previous_response_id": first["id"]}
        body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], **previous}
        error = await lose_client(gateway, body | {"stream": True}, is_cancelled=is_cancelled)
        await create_response(gateway, [answer_get_time(first)], **previous)
        assert dict(last_model_messages(gateway)[2:]) == {"add": "3", "get_time": "noon"}
        assert len(server.calls("add")) == 1
        del error


@pytest.mark.proves("D-16", "D-23")
@pytest.mark.usefixtures("_no_collections")
@pytest.mark.parametrize("is_conversation", [True, False], ids=["conversation", "previous response"])
@async_test
async def test_calls_of_a_refused_request_are_run_by_the_next_one(tmp_path: Path, is_conversation: bool) -> None:
    model = ScriptedModel(MIXED_CALLS, say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        previous = await create_conversation(gateway) if is_conversation else {}
        first = await create_response(gateway, "Go", **previous)
        previous = previous or {"previous_response_id": first["id"]}
        body = {"model": MODEL, "input": [answer_get_time(first)], "tools": [GET_TIME], **previous}
        # Refused after the calls are claimed, because only their servers know which tools there are.
        unknown_tool = {"tool_choice": {"type": "function", "name": "nothing"}}
        status, answer = await gateway.send("POST", "/v1/responses", body | unknown_tool)
        assert (status, answer["error"]["param"]) == (400, "tool_choice")
        await create_response(gateway, [answer_get_time(first)], **previous)
        assert dict(last_model_messages(gateway)[2:]) == {"add": "3", "get_time": "noon"}
