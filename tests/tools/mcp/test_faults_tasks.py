"""Tasks that fail, and servers that lie about them: every call ends in words, within its limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import ERAS, TransportVariant, open_misbehaving, require_failure

from holodeck.lib.errors import MCPProtocolError
from holodeck.testing import Era

TRANSPORTS: tuple[TransportVariant, ...] = ("stdio", "http")


@pytest.mark.parametrize("over", TRANSPORTS)
@async_test
async def test_a_task_that_nobody_asked_for_is_waited_for_like_any_other(
    tmp_path: Path, over: TransportVariant
) -> None:
    async with open_misbehaving("unasked-task", over, tmp_path, era="modern", on="tools/call:add") as subject:
        result = await subject.plugin.call_tool("add", a=1, b=2)
        assert result.success, result.error
        assert result.text == "3"
        assert len(subject.calls("add")) == 1


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_failed_task_is_an_error_with_the_reason_of_the_server(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era=era) as subject:
        result = await subject.plugin.call_tool("task", polls=1, end="failed")
        error = require_failure(result, "the task failed: It is over.: The tool broke.")
        assert isinstance(error, MCPProtocolError)
        assert error.details["code"] == -32050
        assert subject.count("tasks/cancel") == 0


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_tool_that_reports_an_error_as_the_result_of_its_task_has_failed(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era=era) as subject:
        result = await subject.plugin.call_tool("task", error=True, text="The disk is full.")
        require_failure(result, "reports an error: The disk is full.")
        assert result.is_error


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_task_that_its_server_cancels_has_an_unknown_outcome(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era=era) as subject:
        result = await subject.plugin.call_tool("task", polls=1, end="cancelled")
        error = require_failure(result, "the server cancelled the task: It is over.", "not known whether")
        assert error.details["outcome"] == "unknown"


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_an_expired_task_says_that_its_time_is_over(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("task-forgotten", "http", tmp_path, era=era, after=1) as subject:
        result = await subject.plugin.call_tool("task", hold=True, ttl_ms=1)
        require_failure(result, "does not know the task any more", "Its time to live of 0.001 s is over")
        assert subject.count("tasks/cancel") == 0


@pytest.mark.parametrize(
    ("fault", "on", "words"),
    [
        ("task-without-id", None, "answered with a task that has no id"),
        ("task-swapped", None, "answered with the state of another task"),
        ("task-bad-status", None, "gave a task the unknown status '7'"),
        ("protocol-error", "tasks/get", "refused tasks/get for the task: Internal error (error -32603)"),
        ("not-a-result", "tasks/get", "refused tasks/get for the task: the answer has neither"),
    ],
)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORTS)
@async_test
async def test_a_server_that_lies_about_a_task_is_told_in_words(
    tmp_path: Path, over: TransportVariant, era: Era, fault: str, on: str | None, words: str
) -> None:
    async with open_misbehaving(fault, over, tmp_path, era=era, on=on) as subject:
        result = await subject.plugin.call_tool("task", hold=True)
        error = require_failure(result, words, "not known whether the call took effect")
        assert error.details["outcome"] == "unknown"
        assert subject.count("tasks/cancel") == (0 if fault == "task-without-id" else 1)
        await subject.check_works()


@async_test
async def test_a_completed_task_without_a_result_is_told_in_words(tmp_path: Path) -> None:
    async with open_misbehaving("task-without-result", "http", tmp_path, era="modern") as subject:
        require_failure(await subject.plugin.call_tool("task"), "completed, without a result", "not known whether")


@async_test
async def test_a_server_that_refuses_the_result_of_an_ended_task_is_told_in_words(tmp_path: Path) -> None:
    async with open_misbehaving("protocol-error", "http", tmp_path, on="tasks/result") as subject:
        require_failure(await subject.plugin.call_tool("task"), "refused tasks/result", "not known whether")


@pytest.mark.parametrize(("fault", "on"), [("hangs", "tasks/get"), ("hangs", "tasks/result")])
@async_test
async def test_a_server_that_stops_answering_polls_ends_the_call_after_its_timeout(
    tmp_path: Path, fault: str, on: str
) -> None:
    fields = {"request_timeout": 1}
    async with open_misbehaving(fault, "http", tmp_path, on=on, fields=fields) as subject:
        result = await subject.plugin.call_tool("task")
        require_failure(result, "the state of the task 'task-1' is not known", "no answer within 1 s")


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_long_result_of_a_task_is_cut_like_any_other(tmp_path: Path, era: Era) -> None:
    fields = {"max_result_bytes": 1_024}
    async with open_misbehaving("normal", "http", tmp_path, era=era, fields=fields) as subject:
        result = await subject.plugin.call_tool("task", bytes=100_000)
        assert result.success, result.error
        assert result.metadata["full_size"] == 100_000
        assert len(result.text) < 2_000


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_result_of_a_task_over_the_limit_of_a_message_is_refused(tmp_path: Path, era: Era) -> None:
    fields = {"max_result_bytes": 1_024}
    async with open_misbehaving("normal", "http", tmp_path, era=era, fields=fields) as subject:
        result = await subject.plugin.call_tool("task", bytes=20_000_000)
        require_failure(result, "more than 16777216 bytes", "max_result_bytes")
        await subject.check_works()


@async_test
async def test_a_server_that_does_not_offer_tasks_is_not_asked_for_one(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "http", tmp_path, protocol_version="2025-06-18") as subject:
        (tool,) = [each for each in await subject.plugin.list_tools() if each.name == "task"]
        assert tool.task_support == "required"
        assert (await subject.plugin.call_tool("task", text="directly")).text == "directly"
        (call,) = subject.calls("task")
        assert "task" not in call.params
