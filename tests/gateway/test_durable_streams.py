"""The stream of a durable background response: no item is done while its turn can still be repeated."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from durable.crash_cases import list_standing
from durable.crashing_gateway import AT, PROGRAM
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.test_durable_runs import SECONDS, mcp_server_entry, read_stream, read_stream_until, wait_ended
from openai import AsyncOpenAI

from holodeck.storage.jobs import encode_value
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, think, wait
from holodeck.testing.model.script import Turn, cut, error_event


async def check_with_package(served: GatewayProcess, found: dict[str, Any]) -> None:
    """Read the stream as OpenAI's package does: it raises for an item that is announced twice, or never done."""
    client = AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0)
    async with client, client.responses.stream(response_id=found["id"]) as stream:
        final = await stream.get_final_response()
    assert [item.to_dict()["id"] for item in final.output] == [item["id"] for item in found["output"]]


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_an_item_of_a_repeated_turn_is_done_once(tmp_path: Path) -> None:
    never = asyncio.Event()
    first: Turn = [think("Hm."), say("First I "), wait(never)]
    model = ScriptedModel(first, [think("Hm!"), say("I call."), call("echo", text="it")], say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            before = await read_stream_until(served, begun["id"], "response.output_text.delta")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
            events = await read_stream(served, begun["id"])
            await check_with_package(served, found)
    assert "response.output_item.done" not in [event["type"] for event in before]
    assert events[: len(before)] == before
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert list_standing(events) == found["output"]


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_a_model_that_breaks_off_is_asked_again_and_what_it_had_said_is_void(tmp_path: Path) -> None:
    pick = call("pick", color="red")
    breaks: list[Turn] = [
        [think("Hm."), say("I thi"), cut()],
        [say("Now"), pick, cut(clean=True)],
        [error_event("Oh.")],
    ]
    turns = iter([*breaks, [say("I call."), call("echo", text="it")], [say("Do"), cut()], say("Done.")])
    function = {"type": "function", "name": "pick", "parameters": {"type": "object", "properties": {}}, "strict": False}
    async with FaultyMCPServer() as mcp, ScriptedModel(lambda _: next(turns)).serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True, tools=[function])
            found = await wait_ended(served, begun["id"])
            events = await read_stream(served, begun["id"])
            await check_with_package(served, found)
    assert (found["status"], len(mcp.calls("echo")), len(scripted.received)) == ("completed", 1, 6)
    texts = [item["content"][0]["text"] for item in found["output"] if item["type"] == "message"]
    assert texts == ["I call.", "Done."]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert list_standing(events) == found["output"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert {item["status"] for item in done if item not in found["output"]} == {"incomplete"}
    places = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert places == list(range(len(places))), "no index is used again"


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_no_index_is_announced_twice_if_the_gateway_dies_between_a_new_answer_and_its_events(
    tmp_path: Path,
) -> None:
    has_begun = asyncio.Event()
    turns = iter([[think("Hm."), say("I thi"), wait(has_begun), cut()], [say("I call."), call("echo", text="it")]])
    async with FaultyMCPServer() as mcp, ScriptedModel(lambda _: next(turns, say("Done."))).serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        async with run_gateway_process(file, program=PROGRAM, environ={AT: "turn 1 after"}) as served:
            _, begun, _ = await served.create_response(background=True)
            before = await read_stream_until(served, begun["id"], "response.output_text.delta")
            # Another process writes: the new answer is stored as a step, in its own database, and none of its events.
            with closing(sqlite3.connect(tmp_path / "holodeck.db", isolation_level=None)) as database:
                database.execute("BEGIN IMMEDIATE")
                has_begun.set()
                await served.wait_exit()
        async with run_gateway_process(file) as served:
            found = await wait_ended(served, begun["id"])
            events = await read_stream(served, begun["id"])
            await check_with_package(served, found)
    assert (found["status"], len(mcp.calls("echo")), len(scripted.received)) == ("completed", 1, 3)
    assert events[: len(before)] == before
    assert list_standing(events) == found["output"]
    places = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert places == list(range(len(places)))
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert sorted(event["output_index"] for event in done) == places
    assert [event["item"]["status"] for event in done if event["item"] not in found["output"]] == ["incomplete"] * 2


@pytest.mark.proves("D-28", "D-32")
@async_test(SECONDS)
async def test_a_run_that_stopped_on_a_living_gateway_is_noticed_and_goes_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    turns = iter([[say("Hel"), wait(gate), say("lo."), wait(asyncio.Event())], [say("Bye.")]])
    async with ScriptedModel(lambda _: next(turns)).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, background={"durable": True})
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            before = await read_stream_until(served, begun["id"], "response.output_text.delta")
            # As if another gateway had written the stream: this one stops its run, and is the only one that is alive.
            foreign = orjson.dumps(before[-1] | {"sequence_number": len(before), "delta": "p!"})
            with closing(sqlite3.connect(tmp_path / "holodeck.db", isolation_level=None)) as database:
                insert = "INSERT INTO response_events (response_id, first, count, events) VALUES (?, ?, ?, ?)"
                database.execute(insert, (begun["id"], len(before), 1, encode_value(foreign)))
            gate.set()
            found = await wait_ended(served, begun["id"])
            events = await read_stream(served, begun["id"])
            assert any("gateway.run_stopped" in line and begun["id"] in line for line in served.stderr_lines)
    assert (found["status"], found["output"][0]["content"][0]["text"]) == ("completed", "Bye.")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
