"""Every wrong answer of HTTP: the error has status, text and what to do; a fault of one call affects no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import ERAS, HTTP, TransportVariant, open_misbehaving, require_failure

from holodeck.lib.errors import MCPConnectionError, MCPProtocolError
from holodeck.lib.secret import Secret
from holodeck.testing import Era

SLOW = {"seconds": 60, "steps": 1}
STATUSES: dict[str, tuple[int, str, str]] = {
    "http-400": (400, "call", "Bad request"),
    "http-401": (401, "authorize", "it wants credentials"),
    "http-403": (403, "authorize", "may not do that"),
    "http-404": (404, "call", "Not Found"),
    "http-405": (405, "call", "Check 'url' and 'transport'"),
    "http-429": (429, "call", "It asks to wait 7 s"),
    "http-500": (500, "call", "out of luck"),
    "http-502": (502, "call", "Bad Gateway"),
    "http-503": (503, "call", "Service Unavailable"),
}
BODIES = {
    "html": "text/html, not JSON",
    "bad-json": "{oops}",
    "empty-body": "not JSON",
    "accepted": "HTTP 202",
    "wrong-content-type": "application/octet-stream, not JSON",
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", HTTP)
@pytest.mark.parametrize("mode", STATUSES)
@pytest.mark.proves("000:FR-022", "000:US5-3", "D-15", "000:SC-003")
@async_test
async def test_a_refused_call_reports_its_status_and_affects_no_other(
    tmp_path: Path, mode: str, over: TransportVariant, era: Era
) -> None:
    status, phase, says = STATUSES[mode]
    async with open_misbehaving(mode, over, tmp_path, era=era, on="tools/call:add") as subject:
        assert subject.server is not None
        other = asyncio.create_task(subject.plugin.call("slow", SLOW))
        await subject.wait_received("tools/call")
        error = require_failure(await subject.plugin.call_tool("add", a=1, b=2), f"HTTP {status}", says)
        assert isinstance(error, MCPConnectionError)
        assert error.phase == phase
        assert error.details["status"] == status
        if mode in ("http-429", "http-503"):
            assert error.details["retry_after"] == "7"
        if phase == "authorize":
            assert error.details["www_authenticate"].startswith("Bearer ")
        await subject.check_works()
        subject.server.release()
        assert (await other).text == "done"
        # Where there are sessions, 400 and 404 may mean that ours is forgotten: then a new one is tried, once.
        may_be_stale = era == "legacy" and status in (400, 404)
        assert len(subject.calls("add")) == (2 if may_be_stale else 1)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", STATUSES)
@pytest.mark.proves("000:FR-021", "000:EDGE-6", "002:STATE-3")
@async_test
async def test_a_refused_connection_reports_its_status_and_the_next_try_works(
    tmp_path: Path, mode: str, era: Era
) -> None:
    status, _, says = STATUSES[mode]
    async with open_misbehaving(mode, "http", tmp_path, era=era, on="*") as subject:
        assert subject.server is not None
        error = require_failure(await subject.echo(), f"HTTP {status}", says)
        assert error.details["status"] == status
        assert subject.plugin.state == "error"
        assert not subject.calls("echo")
        subject.server.mode = "normal"
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", BODIES)
@pytest.mark.proves("004:EDGE-3", "000:FR-022", "D-15")
@async_test
async def test_a_body_that_is_no_answer_is_shown_and_affects_no_other_call(tmp_path: Path, mode: str, era: Era) -> None:
    async with open_misbehaving(mode, "http", tmp_path, era=era, on="tools/call:add") as subject:
        assert subject.server is not None
        other = asyncio.create_task(subject.plugin.call("slow", SLOW))
        await subject.wait_received("tools/call")
        error = require_failure(await subject.plugin.call_tool("add", a=1, b=2), BODIES[mode])
        assert isinstance(error, MCPProtocolError)
        assert error.phase == "call"
        await subject.check_works()
        subject.server.release()
        assert (await other).text == "done"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", BODIES)
@async_test
async def test_a_server_that_is_no_mcp_server_is_recognised_by_its_first_answer(
    tmp_path: Path, mode: str, era: Era
) -> None:
    async with open_misbehaving(mode, "http", tmp_path, era=era) as subject:
        require_failure(await subject.echo(), BODIES[mode])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("on", ["*", "tools/call"])
@async_test
async def test_a_redirect_elsewhere_is_named_and_never_followed(tmp_path: Path, era: Era, on: str) -> None:
    headers = {"Authorization": Secret("Bearer only-for-one")}
    async with open_misbehaving(
        "redirect-elsewhere", "http", tmp_path, era=era, on=on, fields={"headers": headers}
    ) as subject:
        require_failure(await subject.echo(), "redirected to http://localhost:", "not followed")
        assert subject.count("(elsewhere)") == 0


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", HTTP)
@async_test
async def test_a_redirect_within_the_origin_is_followed(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    async with open_misbehaving("redirect-here", over, tmp_path, era=era) as subject:
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", [*HTTP, "sse", "websocket"])
@pytest.mark.proves("000:US6-2", "004:US3-1", "004:FR-012", "004:SC-003")
@async_test
async def test_the_headers_of_the_file_are_sent_to_the_server(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    headers = {"Authorization": Secret("Bearer open-sesame")}
    async with open_misbehaving("requires-token", over, tmp_path, era=era, fields={"headers": headers}) as subject:
        await subject.check_works()
        assert subject.count("(unauthorized)") == 0


@pytest.mark.parametrize("over", [*HTTP, "sse", "websocket"])
@pytest.mark.proves("004:US3-2")
@async_test
async def test_an_error_about_wrong_credentials_does_not_repeat_them(tmp_path: Path, over: TransportVariant) -> None:
    headers = {"Authorization": Secret("Bearer wrong-sesame")}
    async with open_misbehaving("requires-token", over, tmp_path, fields={"headers": headers}) as subject:
        error = require_failure(await subject.echo(), "401")
        assert error.phase == "authorize"
        assert error.details["status"] == 401
        assert "wrong-sesame" not in f"{error} {error.details}"


@pytest.mark.proves("D-16")
@async_test
async def test_a_header_mismatch_is_answered_by_reading_the_list_again(tmp_path: Path) -> None:
    async with open_misbehaving("header-mismatch", "http", tmp_path, era="modern") as subject:
        result = await subject.plugin.call_tool("regional", region="eu", text="x")
        assert result.text == "eu: x"
        assert subject.count("tools/list") == 2
        assert len(subject.calls("regional")) == 2
        assert subject.calls("regional")[-1].headers["mcp-param-region"] == "eu"
