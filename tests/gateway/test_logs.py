"""The log: a line for every request, run and tool call, with the ids that join them, and no content."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from dbos._error import DBOSAwaitedWorkflowCancelledError
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from sqlalchemy.exc import OperationalError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from holodeck.durable.dbos_engine import redirect_dbos_log
from holodeck.gateway.auth.callers import hash_key
from holodeck.lib.log_handler import MAX_LOG_LINES_WAITING, LogLineWriter
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, spend

SECONDS = 90.0
CONTENT = ("grapefruit", "pomegranate", "tamarind", "made_up_name")


async def _ended(served: GatewayProcess) -> None:
    served.stop()
    assert await served.wait_exit() == 0


def _lines(lines: Sequence[str], event: str) -> list[dict[str, Any]]:
    """The lines of an event. Every line of the log must be an object with a time, a level and an event."""
    entries = [orjson.loads(line) for line in lines]
    assert all({"time", "level", "event"} <= set(entry) for entry in entries)
    return [entry for entry in entries if entry["event"] == event]


def _servers(mcp: FaultyMCPServer) -> dict[str, Any]:
    server = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": mcp.url}
    return {"mcp_servers": [server]}


@pytest.mark.parametrize("stream", [False, True])
@async_test(SECONDS)
async def test_json_lines_join_request_response_caller_and_tool_calls(tmp_path: Path, stream: bool) -> None:
    turns = ([call("echo", text="pomegranate"), call("made_up_name", text="x")], [say("tamarind"), spend(9, 4)])
    key = {"name": "team", "hash": hash_key("hd-team")}
    async with FaultyMCPServer() as mcp, ScriptedModel(*turns).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, keys=[key], **_servers(mcp))
        async with run_gateway_process(file, "--log-format", "json") as served:
            body = {"model": "demo", "input": "grapefruit", "stream": stream}
            headers = {"authorization": "Bearer hd-team", "x-request-id": "edge-17"}
            status, _, answered = await served.send("POST", "/v1/responses", body, headers)
            assert (status, answered["x-request-id"]) == (200, "edge-17")
            await _ended(served)
    (request,) = _lines(served.stderr_lines, "gateway.request")
    assert not _lines(served.stderr_lines, "gateway.run")
    calls = {entry["tool"]: entry for entry in _lines(served.stderr_lines, "gateway.tool_call")}
    response = request["response"]
    assert response.startswith("resp_")
    known = {"request": "edge-17", "response": response, "caller": "key:team"}
    for entry in (request, *calls.values()):
        assert entry.items() >= known.items()
        assert entry["seconds"] >= 0
    assert request.items() >= {"method": "POST", "path": "/v1/responses", "status": 200}.items()
    assert request.items() >= {"model": "demo", "run": "completed", "turns": 2, "tool_calls": 2}.items()
    assert (request["input_tokens"], request["output_tokens"]) == (9, 4)
    assert {tool: (entry["server"], entry["outcome"]) for tool, entry in calls.items()} == {
        "echo": ("tools", "ok"),
        "unknown": (None, "error"),
    }
    assert not [text for text in CONTENT if text in "".join(served.stderr_lines)]


@async_test(SECONDS)
async def test_text_lines_contain_the_same_fields(tmp_path: Path) -> None:
    async with (
        ScriptedModel(say("tamarind")).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url)) as served,
    ):
        _, response, headers = await served.create_response("grapefruit")
        await _ended(served)
    (line,) = [line for line in served.stderr_lines if " gateway.request " in line]
    for part in ("INFO", "method=POST", "status=200", "caller=local"):
        assert part in line
    assert f"request={headers['x-request-id']}" in line
    assert f"response={response['id']}" in line
    assert not [text for text in CONTENT if text in "".join(served.stderr_lines)]


@async_test(SECONDS)
async def test_an_invalid_request_id_is_replaced_and_cannot_inject_log_lines(tmp_path: Path) -> None:
    async with run_gateway_process(
        write_gateway_file(tmp_path, "http://127.0.0.1:9/v1"), "--log-format=json"
    ) as served:
        for request_id in ("a b", 'x" level="error', "y" * 200):
            _, _, headers = await served.send("GET", "/v1/models", headers={"x-request-id": request_id})
            assert headers["x-request-id"].startswith("req_")
        await _ended(served)
    assert len(_lines(served.stderr_lines, "gateway.request")) == 3


@async_test(SECONDS)
async def test_the_file_and_the_environment_choose_format_and_level(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, "http://127.0.0.1:9/v1", log={"format": "json", "level": "info"})
    async with run_gateway_process(file, environ={"HOLODECK_LOG__LEVEL": "info"}) as served:
        await served.send("GET", "/v1/models")
        await _ended(served)
    assert len(_lines(served.stderr_lines, "gateway.request")) == 1
    file = write_gateway_file(tmp_path, "http://127.0.0.1:9/v1")
    async with run_gateway_process(file, environ={"HOLODECK_LOG__LEVEL": "warning"}) as served:
        await served.send("GET", "/v1/models")
        await _ended(served)
    assert not [line for line in served.stderr_lines if "gateway.request" in line]


@async_test(SECONDS)
async def test_successful_probes_are_logged_at_debug_level_only(tmp_path: Path) -> None:
    shown = ["/v1/models", "/readyz"]
    for level, expected in (("info", shown), ("debug", ["/healthz", "/readyz", *shown])):
        file = write_gateway_file(tmp_path, "http://127.0.0.1:9/v1", log={"format": "json", "level": level})
        async with run_gateway_process(file) as served:
            for path in ("/healthz", "/readyz", "/v1/models"):
                assert (await served.send("GET", path))[0] == 200
            assert (await served.send("PUT", "/readyz"))[0] == 405, "an unsuccessful probe"
            await _ended(served)
        assert [entry["path"] for entry in _lines(served.stderr_lines, "gateway.request")] == expected


@async_test(SECONDS)
async def test_a_background_run_logs_the_ids_of_its_finished_request(tmp_path: Path) -> None:
    turns = ([call("echo", text="pomegranate")], say("tamarind"))
    async with FaultyMCPServer() as mcp, ScriptedModel(*turns).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, **_servers(mcp))
        async with run_gateway_process(file, "--log-format=json") as served:
            _, begun, headers = await served.create_response(background=True)
            await served.send("GET", f"/v1/responses/{begun['id']}?stream=true")
            await _ended(served)
    (run,), (tool,) = _lines(served.stderr_lines, "gateway.run"), _lines(served.stderr_lines, "gateway.tool_call")
    posted = next(entry for entry in _lines(served.stderr_lines, "gateway.request") if entry["method"] == "POST")
    assert {entry["response"] for entry in (run, tool, posted)} == {begun["id"]}
    assert {entry["request"] for entry in (run, tool, posted)} == {headers["x-request-id"]}
    assert run.items() >= {"model": "demo", "status": "completed", "turns": 2, "tool_calls": 1}.items()


def test_an_unread_log_does_not_block_writers_and_reports_lost_lines() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as stream:
        lines = LogLineWriter(stream)
        for number in range(4 * MAX_LOG_LINES_WAITING):
            lines.handle(logging.LogRecord("x", logging.INFO, "", 0, f"line {number}", None, None))
        read_lines = [reader.readline()]
        while "log.lost" not in read_lines[-1]:
            read_lines.append(reader.readline())
    assert read_lines[0] == "line 0\n"
    assert len(read_lines) < 4 * MAX_LOG_LINES_WAITING


def test_log_lines_of_the_durable_engine_contain_no_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    redirect_dbos_log()
    error = OperationalError("INSERT INTO work VALUES (?)", ("pomegranate",), Exception("database is locked"))
    logging.getLogger("dbos").warning(f"Database connection failed: {error}. Retrying in 1.00s")
    assert "database is locked" in caplog.text
    assert "pomegranate" not in caplog.text
    caplog.clear()
    deleted = DBOSAwaitedWorkflowCancelledError("resp_1")
    logging.getLogger("dbos").error("Exception encountered in asynchronous workflow:", exc_info=deleted)
    logging.getLogger("dbos").warning(
        "Workflow resp_1 outcome was not recorded: it is no longer owned by this execution."
    )
    assert "resp_1" not in caplog.text, "a deleted response is not an error"


@async_test(SECONDS)
async def test_a_refused_socket_is_logged_with_its_status_and_id(tmp_path: Path) -> None:
    async with run_gateway_process(
        write_gateway_file(tmp_path, "http://127.0.0.1:9/v1"), "--log-format", "json"
    ) as served:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(served.url.replace("http", "ws", 1) + "/v1/nothing"):
                pass
        assert refused.value.response.status_code == 404
        request = refused.value.response.headers["x-request-id"]
        served.stop()
        await served.wait_exit()
    lines = [orjson.loads(line) for line in served.stderr_lines]
    line = next(line for line in lines if line["event"] == "gateway.socket")
    assert (line["status"], line["path"], line["request"]) == (404, "/v1/nothing", request)
    assert not [line for line in lines if line["level"] == "error"]
