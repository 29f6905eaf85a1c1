"""Tools that run as tasks: created, polled, asked for input, cancelled, and polled again after a lost connection."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from patience import patience
from tools.mcp.misbehaving_server import (
    ERAS,
    TRANSPORT_VARIANTS,
    PluginUnderTest,
    TransportVariant,
    open_misbehaving,
    require_failure,
)
from tools.mcp.virtual_time import in_virtual_time

from holodeck.lib.errors import MCPTimeoutError
from holodeck.models.items import TextContent
from holodeck.testing import Era
from holodeck.tools.executor import ToolCall
from holodeck.tools.mcp.executor import MCPExecutor
from holodeck.tools.mcp.protocol.pending_requests import MAX_EXTENDED_CALL
from holodeck.tools.mcp.protocol.server_requests import Callbacks

RELATED_TASK = "io.modelcontextprotocol/related-task"
DAY_MS = 86_400_000


class StoredPoint:
    """The resume point of a call, in memory."""

    def __init__(self, stored: Mapping[str, Any] | None = None, *, is_handed_over: bool = False) -> None:
        self.stored = stored
        self.is_handed_over = is_handed_over
        self.written: list[Mapping[str, Any]] = []

    async def store(self, value: Mapping[str, Any]) -> None:
        self.written.append(value)


class ClientInFront:
    """A client for which calls are made; it answers questions with its name."""

    log_level = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.meta: Mapping[str, Any] = {}

    @property
    def client(self) -> object:
        return self

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        return method == "elicitation/create"

    async def ask(self, method: str, params: Mapping[str, Any], key: str = "") -> Mapping[str, Any]:
        return {"action": "accept", "content": {"name": self.name}}

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        return


async def give_name(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


async def read_text(subject: PluginUnderTest, tool: str, **arguments: Any) -> str:
    result = await subject.plugin.call(tool, arguments)
    assert result.success, result.error
    return result.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test
async def test_a_tool_that_needs_a_task_is_polled_until_its_result_is_there(
    tmp_path: Path, over: TransportVariant, era: Era
) -> None:
    reports: list[tuple[float | None, float | None, str | None]] = []
    async with open_misbehaving("normal", over, tmp_path, era=era) as subject:
        result = await subject.plugin.call(
            "task", {"polls": 2, "text": "found it"}, on_progress=lambda *report: reports.append(report)
        )
        assert result.success, result.error
        assert result.text == "found it"
        assert subject.count("tasks/get") == 3
        assert subject.count("tasks/result") == (1 if era == "legacy" else 0)
        assert subject.count("tasks/cancel") == 0
        assert len(subject.calls("task")) == 1
    assert reports == [(None, None, f"working: step {number}") for number in range(3)]


@async_test
async def test_the_name_of_the_task_is_in_the_headers_of_a_modern_poll(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era="modern") as subject:
        await read_text(subject, "task")
        (poll,) = await subject.wait_received("tasks/get")
    assert (poll.headers["mcp-method"], poll.headers["mcp-name"]) == ("tasks/get", poll.params["taskId"])


@async_test
async def test_a_tool_that_may_run_as_a_task_is_called_directly(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "http", tmp_path) as subject:
        assert await read_text(subject, "optional_task", text="at once") == "at once"
        (call,) = subject.calls("optional_task")
        assert "task" not in call.params
        assert subject.count("tasks/get") == 0


@async_test
async def test_a_durable_call_runs_as_a_task_where_it_may_and_its_id_is_stored_before_the_first_poll(
    tmp_path: Path,
) -> None:
    point = StoredPoint()
    async with open_misbehaving("normal", "http", tmp_path) as subject:
        result = await subject.plugin.call("optional_task", {"text": "kept"}, resume=point)
        (call,) = subject.calls("optional_task")
    assert result.text == "kept"
    assert call.params["task"] == {"ttl": DAY_MS}
    assert point.written == [{"server": "shaky", "task": "task-1"}]


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_stored_task_is_polled_and_not_created_again(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era=era) as subject:
        calling = asyncio.create_task(
            subject.plugin.call("task", {"hold": True, "text": "once"}, resume=StoredPoint(is_handed_over=True))
        )
        await subject.wait_received("tasks/get")
        calling.cancel()
        await asyncio.wait([calling])
        assert subject.count("tasks/cancel") == 0, "another process goes on with it"
        assert subject.server is not None
        await subject.server.end_tasks()
        point = StoredPoint({"server": "shaky", "task": "task-1"})
        result = await subject.plugin.call("task", {"hold": True}, resume=point)
        assert result.text == "once"
        assert len(subject.calls("task")) == 1


@async_test
async def test_a_stored_task_of_a_server_with_another_name_has_an_unknown_outcome(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "http", tmp_path) as subject:
        point = StoredPoint({"server": "renamed", "task": "task-1"})
        require_failure(await subject.plugin.call("task", {}, resume=point), "'renamed'", "not known whether")
        assert subject.calls("task") == []


@async_test
async def test_the_task_that_follows_a_stored_one_which_its_server_has_forgotten_is_stored(tmp_path: Path) -> None:
    point = StoredPoint({"server": "shaky", "task": "gone"})
    async with open_misbehaving("normal", "http", tmp_path, fields={"idempotent_tools": ["task"]}) as subject:
        assert (await subject.plugin.call("task", {"text": "again"}, resume=point)).text == "again"
    assert point.written == [{"server": "shaky", "task": "task-1"}]


@pytest.mark.parametrize("over", ["stdio", "http", "sse", "websocket"])
@async_test
async def test_a_status_notification_ends_the_pause_between_two_polls(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("normal", over, tmp_path) as subject:
        # The server asks for a pause of an hour, which is cut to a minute: longer than this test may take.
        call = subject.plugin.call("task", {"hold": True, "poll_ms": 3_600_000, "text": "woken"})
        calling = asyncio.create_task(call)
        await subject.wait_received("tasks/get")
        if subject.server is not None:
            await subject.server.listening()
        await read_text(subject, "release")
        async with asyncio.timeout(patience(20)):
            assert (await calling).text == "woken"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test
async def test_a_question_of_a_task_is_answered_once(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    asked: list[Mapping[str, Any]] = []

    async def answer(params: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(params)
        return await give_name(params)

    async with open_misbehaving("normal", over, tmp_path, era=era, callbacks=Callbacks(elicitation=answer)) as subject:
        told = json.loads(await read_text(subject, "task", ask=True, polls=3))
        answers = [each.message for each in subject.requests if "result" in each.message]
    assert (told["action"], told["content"]) == ("accept", {"name": "Ada"})
    assert [params["message"] for params in asked] == ["What is your name?"]
    if era == "legacy":
        assert answers[-1]["result"]["_meta"] == {RELATED_TASK: {"taskId": "task-1"}}


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_the_question_of_a_task_goes_to_the_client_that_it_is_run_for(tmp_path: Path, era: Era) -> None:
    callbacks = Callbacks(has_peers=True)
    async with open_misbehaving("normal", "http", tmp_path, era=era, callbacks=callbacks) as subject:
        clients = [ClientInFront("Ada"), ClientInFront("Grace"), ClientInFront("Joan")]
        calls = (subject.plugin.call("task", {"ask": True}, peer=client) for client in clients)
        results = await asyncio.gather(*calls)
    assert [json.loads(result.text)["content"]["name"] for result in results] == ["Ada", "Grace", "Joan"]


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_without_a_person_the_question_of_a_task_is_declined(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era=era) as subject:
        assert json.loads(await read_text(subject, "task", ask=True))["action"] == "decline"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test
async def test_cancelling_the_caller_cancels_the_task(tmp_path: Path, over: TransportVariant, era: Era) -> None:
    async with open_misbehaving("normal", over, tmp_path, era=era) as subject:
        calling = asyncio.create_task(subject.plugin.call("task", {"hold": True}))
        await subject.wait_received("tasks/get")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        (cancelled,) = await subject.wait_received("tasks/cancel")
        assert cancelled.params["taskId"] == "task-1"
        await subject.check_works()


@pytest.mark.parametrize("era", ERAS)
@in_virtual_time
async def test_a_task_that_never_ends_is_cancelled_when_its_time_is_over(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "websocket", tmp_path, era=era) as subject:
        await subject.plugin.connect()
        began = asyncio.get_running_loop().time()
        result = await subject.plugin.call("task", {"hold": True, "poll_ms": 30_000})
        error = require_failure(result, "did not end within 1800 s, and was cancelled", "'request_timeout'")
        assert asyncio.get_running_loop().time() - began >= MAX_EXTENDED_CALL
        assert isinstance(error, MCPTimeoutError)
        assert error.details["outcome"] == "unknown"
        assert subject.count("tasks/cancel") == 1


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_killed_server_that_stores_its_tasks_is_polled_again(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "stdio", tmp_path, era=era, tasks=tmp_path / "tasks.json") as subject:
        calling = asyncio.create_task(subject.plugin.call("task", {"polls": 5, "text": "it lived on"}))
        await subject.wait_received("tasks/get")
        os.kill(subject.journal.pids[-1], signal.SIGKILL)
        result = await calling
        assert result.success, result.error
        assert result.text == "it lived on"
        assert len(subject.calls("task")) == 1
        assert len(subject.journal.pids) == 2


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_killed_server_that_has_forgotten_the_task_leaves_an_unknown_outcome(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "stdio", tmp_path, era=era) as subject:
        calling = asyncio.create_task(subject.plugin.call("task", {"hold": True}))
        await subject.wait_received("tasks/get")
        os.kill(subject.journal.pids[-1], signal.SIGKILL)
        error = require_failure(await calling, "does not know the task any more", "Task not found", "not known whether")
        assert error.details["outcome"] == "unknown"
        assert len(subject.calls("task")) == 1
        assert subject.count("tasks/cancel") == 0


@async_test
async def test_a_forgotten_task_of_an_idempotent_tool_is_created_once_more(tmp_path: Path) -> None:
    fields = {"idempotent_tools": ["task"]}
    async with open_misbehaving("task-forgotten", "http", tmp_path, fields=fields, times=1) as subject:
        assert await read_text(subject, "task", text="again") == "again"
        assert len(subject.calls("task")) == 2


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_server_that_is_away_for_a_moment_is_polled_when_it_is_back(tmp_path: Path, era: Era) -> None:
    async with open_misbehaving("normal", "http", tmp_path, era=era) as subject:
        assert subject.server is not None
        calling = asyncio.create_task(subject.plugin.call("task", {"hold": True, "text": "still here"}))
        await subject.wait_received("tasks/get")
        await subject.server.go_down()
        await subject.server.come_up()
        await subject.server.end_tasks()
        result = await calling
        assert result.success, result.error
        assert (result.text, len(subject.calls("task"))) == ("still here", 1)


@pytest.mark.parametrize("era", ERAS)
@in_virtual_time
async def test_the_pause_between_two_polls_is_no_silence_of_the_server(tmp_path: Path, era: Era) -> None:
    plan: dict[str, Any] = {"on": "tasks/get", "after": 1, "times": 1, "fields": {"request_timeout": 10}}
    async with open_misbehaving("dies-mid-call", "websocket", tmp_path, era=era, **plan) as subject:
        await subject.plugin.connect()
        # The connection is cut 30 s after the last answer, and the task is asked for again.
        assert await read_text(subject, "task", polls=2, poll_ms=30_000, text="patience") == "patience"
        assert len(subject.calls("task")) == 1


@async_test
async def test_a_server_that_stays_away_ends_the_wait_after_its_timeout(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "http", tmp_path, fields={"request_timeout": 1}) as subject:
        assert subject.server is not None
        calling = asyncio.create_task(subject.plugin.call("task", {"hold": True}))
        await subject.wait_received("tasks/get")
        await subject.server.go_down()
        error = require_failure(await calling, "the state of the task 'task-1' is not known", "cannot be reached")
        assert error.details["outcome"] == "unknown"
        await subject.server.come_up()


@async_test
async def test_closing_the_client_ends_the_wait_for_a_task_at_once(tmp_path: Path) -> None:
    async with open_misbehaving("normal", "http", tmp_path) as subject:
        calling = asyncio.create_task(subject.plugin.call("task", {"hold": True}))
        await subject.wait_received("tasks/get")
        await subject.plugin.close()
        async with asyncio.timeout(patience(20)):
            require_failure(await calling, "not known whether")


@async_test
async def test_the_state_of_a_task_is_progress_of_the_call_of_a_model(tmp_path: Path) -> None:
    lines: list[str] = []
    async with open_misbehaving("normal", "http", tmp_path) as subject:
        executor = MCPExecutor([subject.plugin])
        await executor.specs()
        call = ToolCall(call_id="call_1", name="task", arguments={"polls": 1}, on_progress=lines.append)
        result = await executor.execute(call)
    assert [block.text for block in result.content if isinstance(block, TextContent)] == ["done"]
    assert lines == ["working: step 0", "working: step 1"]


@pytest.mark.parametrize("over", ["stdio", "http"])
@async_test
async def test_tools_say_whether_they_run_as_tasks(tmp_path: Path, over: TransportVariant) -> None:
    async with open_misbehaving("normal", over, tmp_path) as subject:
        support = {tool.name: tool.task_support for tool in await subject.plugin.list_tools()}
    assert (support["task"], support["optional_task"], support["add"]) == ("required", "optional", "forbidden")
