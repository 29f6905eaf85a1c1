"""Requests of a server to the client: by default roots are answered, sampling is refused, elicitation is declined."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import ERAS, TRANSPORT_VARIANTS, TransportVariant, open_misbehaving

from holodeck.testing import Era
from holodeck.tools.mcp.protocol.server_requests import Callbacks

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}


async def yes(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


async def four(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "test"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:EDGE-9", "D-20")
@async_test
async def test_by_default_features_that_need_consent_are_neither_declared_nor_granted(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    callbacks = Callbacks(sampling=four)  # the tool does not allow it, so it is as if it were not there
    async with open_misbehaving("normal", over, tmp_path, era=era, callbacks=callbacks) as subject:
        for tool in ("ask_sampling", "ask_elicitation"):
            result = await subject.plugin.call_tool(tool)
            assert result.is_error
            assert "The client has no" in result.text
        declined = await subject.plugin.call_tool("ask_elicitation", anyway=True)
        assert json.loads(declined.text)["action"] == "decline"
        refused = await subject.plugin.call_tool("ask_sampling", anyway=True)
        assert "not allowed" in refused.text
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.proves("000:EDGE-9", "D-11", "D-20")
@async_test
async def test_requests_of_allowed_features_are_answered(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    fields = {"sampling": "allow", "roots": ["."], "config": {"allowed_directories": ["/data"]}}
    callbacks = Callbacks(sampling=four, elicitation=yes)
    async with open_misbehaving("normal", over, tmp_path, era=era, callbacks=callbacks, fields=fields) as subject:
        assert json.loads((await subject.plugin.call_tool("ask_sampling")).text)["content"]["text"] == "4"
        assert json.loads((await subject.plugin.call_tool("ask_elicitation")).text)["content"] == {"name": "Ada"}
        roots = json.loads((await subject.plugin.call_tool("ask_roots")).text)["roots"]
        assert [root["uri"] for root in roots] == [(tmp_path / "shaky").as_uri(), "file:///data"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("over", "era"), [("stdio", "legacy"), ("http", "modern")])
@pytest.mark.proves("000:FR-027", "000:EDGE-8", "001:PRAC-1", "D-20")
@async_test
async def test_each_level_of_a_log_message_has_its_level_here(
    tmp_path: Path, over: TransportVariant, era: Era, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "holodeck.mcp.server.shaky"):
        async with open_misbehaving("normal", over, tmp_path, era=era) as subject:
            assert (await subject.plugin.call_tool("log", level=level, text="hear me")).success
            if era == "legacy":
                (level_request,) = await subject.wait_received("logging/setLevel")
                assert level_request.params["level"] == "debug"
    records = [record for record in caplog.records if "hear me" in record.getMessage()]
    assert [(record.name, record.levelno) for record in records] == [("holodeck.mcp.server.shaky", LEVELS[level])]


@pytest.mark.proves("000:FR-028")
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test
async def test_the_message_handler_receives_notifications_and_failures(tmp_path: Path, over: TransportVariant) -> None:
    messages: list[Mapping[str, Any] | Exception] = []
    callbacks = Callbacks(on_message=messages.append)
    async with open_misbehaving("dies-mid-call", over, tmp_path, on="tools/call:add", callbacks=callbacks) as subject:
        await subject.plugin.call_tool("log", level="error", text="x")
        assert any(isinstance(each, dict) and each["method"] == "notifications/message" for each in messages)
        await subject.plugin.call_tool("add", a=1, b=2)
        await subject.check_works()
        if over in ("stdio", "sse", "websocket"):  # over HTTP no connection was lost, only a call
            assert any(isinstance(each, Exception) and "shaky" in str(each) for each in messages)
