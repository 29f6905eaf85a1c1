"""A question of an MCP server is answered at any gateway, and ends with the gateway that waits for the answer."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from durable.crash_cases import UNKNOWN, mcp_server_entry, tool_answers, wait_ended
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from storage.postgres_server import PostgresServer

from holodeck.testing import Era, FaultyMCPServer, ScriptedModel, call, say

SECONDS = 150.0  # two processes start, possibly on a busy machine
POLL = 0.05
ERAS: tuple[Era, ...] = ("legacy", "modern")
SECRET = "pomegranate"


@pytest.fixture
def database_url(postgres: PostgresServer) -> str:
    """A new database, which several gateways share."""
    return postgres.new_database()


def asking_model() -> ScriptedModel:
    return ScriptedModel(call("ask_elicitation"), say("Thank you."))


async def list_questions(served: GatewayProcess, response_id: str) -> list[dict[str, Any]]:
    status, listed, _ = await served.send("GET", f"/v1/responses/{response_id}/elicitations")
    assert status == 200, listed
    return list(listed["data"])


async def wait_question(served: GatewayProcess, response_id: str) -> dict[str, Any]:
    while not (found := await list_questions(served, response_id)):  # noqa: ASYNC110 - another process
        await asyncio.sleep(POLL)
    return found[0]


async def answer(served: GatewayProcess, question: dict[str, Any]) -> int:
    path = f"/v1/responses/{question['response_id']}/elicitations/{question['id']}"
    status, _, _ = await served.send("POST", path, {"action": "accept", "content": {"name": SECRET}})
    return status


@pytest.mark.proves("D-20", "D-28")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("is_durable", [True, False])
@async_test(SECONDS)
async def test_a_question_at_one_gateway_is_answered_at_another(
    tmp_path: Path, database_url: str, era: Era, is_durable: bool
) -> None:
    config = {"storage": {"url": "${DATABASE_URL}"}, "background": {"durable": is_durable}}
    async with FaultyMCPServer(era=era) as mcp, asking_model().serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], **config)
        async with run_gateway_process(file, environ={"DATABASE_URL": database_url}) as asking:
            # A queued response may run at any gateway, so there is one only when it begins.
            status, made, _ = await asking.create_response(background=True, elicitation="ask")
            assert status == 200, made
            await wait_question(asking, made["id"])
            async with run_gateway_process(file, environ={"DATABASE_URL": database_url}) as answering:
                question = await wait_question(answering, made["id"])
                assert await answer(answering, question) == 200
                assert (await wait_ended(answering, made["id"]))["status"] == "completed"
                assert await answer(answering, question) == 404
                assert await list_questions(asking, made["id"]) == []
        assert json.loads(tool_answers(scripted.received[-1].json["messages"])[-1]) == {
            "action": "accept",
            "content": {"name": SECRET},
        }


@pytest.mark.proves("D-20", "D-16")
@pytest.mark.parametrize("era", ERAS)
@async_test(SECONDS)
async def test_a_question_ends_with_the_gateway_that_waits_and_the_outcome_of_its_call_is_unknown(
    tmp_path: Path, era: Era
) -> None:
    async with FaultyMCPServer(era=era) as mcp, asking_model().serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, made, _ = await served.create_response(background=True, elicitation="ask")
            question = await wait_question(served, made["id"])
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            assert await list_questions(served, made["id"]) == []
            assert await answer(served, question) == 404
            assert (await wait_ended(served, made["id"]))["status"] == "completed"
            assert await list_questions(served, made["id"]) == []
        assert UNKNOWN in tool_answers(scripted.received[-1].json["messages"])[-1]


@pytest.mark.proves("D-20")
@async_test(SECONDS)
async def test_a_run_that_is_taken_over_asks_its_next_question(tmp_path: Path) -> None:
    model = ScriptedModel(call("ask_elicitation"), call("ask_elicitation"), say("Thank you."))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, made, _ = await served.create_response(background=True, elicitation="ask")
            first = await wait_question(served, made["id"])
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            second = await wait_question(served, made["id"])
            assert second["id"] != first["id"]
            assert await answer(served, second) == 200
            assert (await wait_ended(served, made["id"]))["status"] == "completed"


@pytest.mark.proves("D-20")
@async_test(SECONDS)
async def test_the_log_has_the_server_and_the_action_and_no_word_of_the_answer(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp, asking_model().serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)])
        async with run_gateway_process(file, "--log-format", "json", "--log-level", "debug") as served:
            _, made, _ = await served.create_response(background=True, elicitation="ask")
            assert await answer(served, await wait_question(served, made["id"])) == 200
            await wait_ended(served, made["id"])
            served.stop()
            assert await served.wait_exit() == 0
    (line,) = [line for line in map(orjson.loads, served.stderr_lines) if line["event"] == "mcp.elicitation"]
    assert (line["server"], line["action"], line["response"]) == ("tools", "accept", made["id"])
    assert SECRET not in "".join(served.stderr_lines)
