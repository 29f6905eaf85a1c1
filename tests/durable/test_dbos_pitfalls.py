"""What is known to go wrong with engines for durable work, and does not: on one SQLite file, in real processes."""

from __future__ import annotations

import ast
import asyncio
import pkgutil
import re
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import dbos
import orjson
import pytest
from async_tests import async_test
from durable.crash_cases import latest_response_id, mcp_server_entry, read_stream, read_stream_until, wait_ended
from durable.crashing_gateway import AT, PROGRAM
from gateway.gateway_process import run_gateway_process, write_gateway_file

import holodeck.durable
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import Turn

SECONDS = 90.0
RUNS = 4
DECISION = Path(__file__).parents[2] / "docs/decisions/0004-dbos.md"
SOURCE = Path(holodeck.durable.__file__ or "").parent
PLAIN = {"workflow_input": ["inputs"], "workflow_output": ["output", "error"], "operation_outputs": ["output", "error"]}


def list_private_names() -> set[str]:
    """The names of DBOS with an underscore that the source uses: what it imports, and attributes of other objects."""
    names: set[str] = set()
    for node in (node for file in SOURCE.glob("dbos_*.py") for node in ast.walk(ast.parse(file.read_text()))):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("dbos"):
                imported = {f"{module}.{each.name}" for each in node.names}
                names |= {name for name in imported if "._" in name}
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=attribute) if attribute.startswith("_") and not attribute.startswith("__"):
                names.add(attribute)
            case _:
                pass
    return names


def test_the_decision_names_all_that_is_private_in_dbos_and_all_of_it_is_there() -> None:
    rows = [line for line in DECISION.read_text().splitlines() if line.startswith("| `dbos.")]
    source = "".join(file.read_text() for file in Path(dbos.__file__).parent.rglob("*.py"))
    told: set[str] = set()
    for row in rows:
        owner, _, name = row.split("`")[1].rpartition(".")
        assert hasattr(pkgutil.resolve_name(owner), name), f"DBOS has no {owner}.{name}"
        told |= {each.rpartition(".")[2] for each in re.findall(r"`([^`]+)`", row)}
    assert {name for name in told if not re.search(rf"\b{name}\b", source)} == set(), "these are not in DBOS any more"
    assert {name.rpartition(".")[2] for name in list_private_names()} <= told


def rows(folder: Path, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows that the engine has stored."""
    with closing(sqlite3.connect(next(folder.glob("*.work")))) as database:
        return database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()


def mark_as_other_version(folder: Path) -> None:
    """Mark all stored runs as begun by a HoloDeck version with other steps."""
    with closing(sqlite3.connect(next(folder.glob("*.work")))) as database, database:
        database.execute("UPDATE workflow_status SET application_version = 'holodeck-0'")


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_two_processes_on_one_file_run_their_own_work_and_can_cancel_each_others_responses(
    tmp_path: Path,
) -> None:
    never = asyncio.Event()

    def script(received: Any) -> Turn:
        match received.json["messages"]:
            case [{"content": "think"}]:
                return [say("Hel"), wait(never)]
            case [{"content": "act"}]:
                return call("slow", seconds=60)
            case _:
                return say("done")

    async with FaultyMCPServer() as mcp, ScriptedModel(script).serve() as model:
        file = write_gateway_file(
            tmp_path, model.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as first, run_gateway_process(file) as second:
            thinking = (await first.create_response("think", background=True))[1]["id"]
            acting = (await first.create_response("act", background=True))[1]["id"]
            await read_stream_until(second, thinking, "response.output_text.delta")
            await mcp.received("tools/call")
            async with run_gateway_process(file) as third:
                quick = (await third.create_response("quick", background=True))[1]["id"]
                assert (await wait_ended(third, quick))["status"] == "completed"
                metrics = (await third.send("GET", "/metrics"))[1]
                assert "holodeck_background_recovered_total 0" in metrics
                assert "holodeck_background_taken_over_total 0" in metrics
            assert len(model.received) == 3, "nothing was begun again"
            for response_id in (thinking, acting):
                _, cancelled, _ = await second.send("POST", f"/v1/responses/{response_id}/cancel")
                assert cancelled["status"] == "cancelled"
                events = await read_stream(second, response_id)
                assert events[-1]["response"] == cancelled
            await model.left.wait()
            await mcp.received("notifications/cancelled")
    output = "".join([*first.stderr_lines, *second.stderr_lines, *third.stderr_lines]).lower()
    assert "dbos" not in output
    assert "conductor" not in output
    assert len(mcp.calls()) == 1


@pytest.mark.proves("D-32")
@async_test(SECONDS)
async def test_stored_rows_are_json(tmp_path: Path) -> None:
    def script(received: Any) -> Turn:
        return call("echo", text="kept") if received.json["messages"][-1]["role"] == "user" else say("done")

    async with FaultyMCPServer() as mcp, ScriptedModel(script).serve() as model:
        file = write_gateway_file(
            tmp_path, model.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            await served.create_response()
            for _ in range(RUNS):
                _, events, _ = await served.create_response(background=True, stream=True)
                assert "response.completed" in events
    for table, columns in PLAIN.items():
        values = [value for row in rows(tmp_path, table, columns) for value in row if value is not None]
        assert len(values) >= RUNS - 1, "the last may not have been noted as ended"
        for value in values:
            orjson.loads(value)
    assert {row[0] for row in rows(tmp_path, "operation_outputs", ["serialization"])} == {"holodeck_json"}
    with closing(sqlite3.connect(next(tmp_path.glob("*.work")))) as database:  # noqa: ASYNC240
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.proves("D-32", "D-28")
@async_test(SECONDS)
async def test_a_run_that_no_gateway_can_resume_fails_with_the_reason(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel(lambda _: [say("Hel"), wait(never)])
    async with model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background={"durable": True, "at_once": 1})
        async with run_gateway_process(file, program=PROGRAM, environ={AT: "submit 1 before"}) as served:
            with pytest.raises(aiohttp.ClientError):
                await served.create_response(background=True)
        unsubmitted = latest_response_id(tmp_path)
        async with run_gateway_process(file) as served:
            assert (await wait_ended(served, unsubmitted))["status"] == "failed"
            assert (await read_stream(served, unsubmitted))[-1]["type"] == "response.failed"
            made = [(await served.create_response(background=True))[1]["id"] for _ in range(3)]
            seen_events = await read_stream_until(served, made[0], "response.output_text.delta")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        mark_as_other_version(tmp_path)
        async with run_gateway_process(file) as served:
            for response_id in made:
                found = await wait_ended(served, response_id)
                assert found["status"] == "failed"
                assert "another one began" in found["error"]["message"]
                events = await read_stream(served, response_id)
                assert [event["sequence_number"] for event in events] == list(range(len(events)))
                assert events[-1]["type"] == "response.failed"
                assert events[-1]["response"] == found
            assert (await read_stream(served, made[0]))[: len(seen_events)] == seen_events


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_the_engine_deletes_old_runs_too(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("done")).serve() as model:
        file = write_gateway_file(tmp_path, model.url, background={"durable": True})
        async with run_gateway_process(file) as served:
            _, made, _ = await served.create_response(background=True)
            assert (await wait_ended(served, made["id"]))["status"] == "completed"
            # The engine notes the end of its work after the response is stored, and only what has ended is forgotten.
            while "SUCCESS" not in str(rows(tmp_path, "workflow_status", ["status"])):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            served.stop()
            await served.wait_exit()
        assert len(rows(tmp_path, "workflow_status", ["workflow_uuid"])) == 1
        storage = {"retention_days": 1e-6}
        file = write_gateway_file(tmp_path, model.url, background={"durable": True}, storage=storage)
        async with run_gateway_process(file) as served:
            while rows(tmp_path, "workflow_status", ["workflow_uuid"]):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
            assert (await served.send("GET", f"/v1/responses/{made['id']}"))[0] == 404
    assert not rows(tmp_path, "operation_outputs", ["output"])
