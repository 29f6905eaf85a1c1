"""`/v1/runs/{id}/trace`: the steps of a run with their times, and what the model was sent in each turn."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import server as server_entry
from gateway.described_server import DescribedServer
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import ANY_KEY, MODEL, RunningGateway, run_gateway
from gateway.test_durable_runs import SECONDS, mcp_server_entry, read_stream_until, wait_ended, wait_model_requests

from holodeck.gateway.runs.trace_resource import build_spans
from holodeck.gateway.runs.trace_steps import TOKEN_NAMES, Step
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, say, spend, wait
from holodeck.testing.mcp.tools import tool_entry
from holodeck.testing.model.script import status

PRICE = {"input": 1.0, "output": 2.0}


async def read_trace(gateway: RunningGateway, run_id: str, *, key: str = ANY_KEY) -> dict[str, Any]:
    code, trace = await gateway.send("GET", f"/v1/runs/{run_id}/trace", key=key)
    assert code == 200, trace
    return dict(trace)


async def give_instructions(gateway: RunningGateway, text: str | None) -> None:
    """Have the operator change the instructions of the model's entry."""
    [entry] = orjson.loads(gateway.file.read_bytes())["models"]
    assert await gateway.reload(models=[entry | {"instructions": text}])


def tools_by_turn(trace: dict[str, Any]) -> list[list[str] | None]:
    return [span["tools"] for span in trace["spans"] if span["kind"] == "model"]


def offered_in(model_request: dict[str, Any]) -> list[str]:
    """The names of the tools that the model has received."""
    return [tool["function"]["name"] for tool in model_request.get("tools", [])]


def texts_of(trace: dict[str, Any], indexes: list[int]) -> list[str]:
    """What items say: the text of a message or an output, the name of a call."""
    items = [trace["items"][index] for index in indexes]
    return [item["name"] if item["type"] == "function_call" else item["content"][0]["text"] for item in items]


@pytest.mark.parametrize("is_streamed", [False, True])
@async_test(60)
async def test_a_request_that_is_repeated_is_a_span_inside_of_the_model_s(tmp_path: Path, is_streamed: bool) -> None:
    model = ScriptedModel(status(503), status(429, retry_after="0"), say("Hi."))
    async with run_gateway(tmp_path, model) as gateway:
        body = {"model": MODEL, "input": "Go", "stream": is_streamed}
        if is_streamed:
            response_id = (await gateway.stream("/v1/responses", body))[-1]["response"]["id"]
        else:
            response_id = (await gateway.send("POST", "/v1/responses", body))[1]["id"]
        trace = await read_trace(gateway, response_id)
    retries = [span for span in trace["spans"] if span["kind"] == "retry"]
    assert [(span["parent"], span["status"]) for span in retries] == [("model_1", "error")] * 2
    assert "not available" in retries[0]["error"]
    assert "limits how often" in retries[1]["error"]
    assert retries[0]["start"] + retries[0]["seconds"] <= retries[1]["start"] + 1e-5


@async_test(60)
async def test_a_trace_has_turns_model_requests_and_calls_with_what_went_in_and_out(tmp_path: Path) -> None:
    model = ScriptedModel(
        [call("add", a=1, b=2), call("echo", text="hi"), spend(100, 10)],
        [call_raw("nothing", "{}"), spend(200, 20)],
        [say("Done."), spend(300, 30)],
    )
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, price=PRICE) as gateway,
    ):
        body = {"model": MODEL, "input": "Go", "instructions": "Be brief."}
        _, response = await gateway.send("POST", "/v1/responses", body)
        trace = await read_trace(gateway, response["id"])
    spans = trace["spans"]
    assert [span["id"] for span in spans] == [
        *("run", "turn_1", "model_1", "tool_1", "tool_2"),
        *("turn_2", "model_2", "tool_3", "turn_3", "model_3"),
    ]
    by_id = {span["id"]: span for span in spans}
    assert [by_id[each]["parent"] for each in ("run", "turn_2", "model_2", "tool_3")] == [
        None,
        "run",
        "turn_2",
        "turn_2",
    ]
    assert [by_id[f"tool_{n}"]["status"] for n in (1, 2, 3)] == ["ok", "ok", "refused"]
    assert (by_id["tool_1"]["server"], by_id["tool_1"]["tool"]) == ("tools", "add")
    assert (by_id["tool_1"]["arguments"], by_id["tool_1"]["output"]) == ({"a": 1, "b": 2}, "3")
    assert "There is no tool 'nothing'" in by_id["tool_3"]["output"]
    assert [by_id[f"model_{n}"]["usage"]["total_tokens"] for n in (1, 2, 3)] == [110, 220, 330]
    assert by_id["model_3"]["cost"] == pytest.approx(360 / 1_000_000)
    assert by_id["run"]["cost"] == pytest.approx(720 / 1_000_000)
    assert trace["instructions"] == "Be brief."
    for turn, sent in enumerate(gateway.model_requests, start=1):
        inputs = texts_of(trace, by_id[f"model_{turn}"]["input_items"])
        # Calls of one turn are one message of this dialect, without a text; an error says that it is one.
        texts = [m["content"].removeprefix("Error: ") for m in sent["messages"] if m["role"] in ("user", "tool")]
        assert texts == [text for text in inputs if text not in ("add", "echo", "nothing")]
    assert texts_of(trace, by_id["model_1"]["output_items"]) == ["add", "echo"]
    assert texts_of(trace, by_id["model_3"]["output_items"]) == ["Done."]
    for span in spans:
        assert span["seconds"] >= 0
        if span["parent"] is not None:
            around = by_id[span["parent"]]
            assert around["start"] <= span["start"]
            assert span["start"] + span["seconds"] <= around["start"] + around["seconds"] + 1e-5


@async_test(60)
async def test_an_operator_sees_its_instructions_and_the_offered_tools_and_a_caller_neither(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("Hi."))
    scopes = {"limited": {"models": [MODEL]}}
    async with (
        FaultyMCPServer() as server,
        run_gateway(
            tmp_path, model, mcp={"tools": server}, keys=["ben"], admins=["root", "limited"], scopes=scopes
        ) as gateway,
    ):
        await give_instructions(gateway, "Be kind.")
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key="ben")
        seen = await read_trace(gateway, response["id"], key="root")
        own = await read_trace(gateway, response["id"], key="ben")
        _, second = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key="limited")
        scoped = await read_trace(gateway, second["id"], key="limited")
    assert [request["messages"][0]["content"] for request in gateway.model_requests[:2]] == ["Be kind."] * 2
    assert (seen["agent_instructions"], seen["agent_instructions_changed"]) == ("Be kind.", False)
    assert tools_by_turn(seen) == [offered_in(request) for request in gateway.model_requests[:2]]
    assert "add" in (tools_by_turn(seen)[0] or ())
    assert all(span["tools"] is None for span in seen["spans"] if span["kind"] != "model")
    for trace in (own, scoped):
        assert (trace["agent_instructions"], trace["agent_instructions_changed"]) == (None, False)
        assert all(span["tools"] is None for span in trace["spans"])
    assert (own["items"], own["instructions"]) == (seen["items"], None)


@async_test(60)
async def test_instructions_of_an_agent_that_have_changed_since_are_not_shown_as_those_of_the_run(
    tmp_path: Path,
) -> None:
    async with ScriptedModel(lambda _: say("Hi.")).serve() as model:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": model.url}

        def write_agent(instructions: str) -> None:
            agent = {"name": "helper", "model": llm, "instructions": {"inline": instructions}}
            (tmp_path / "agent.yaml").write_bytes(orjson.dumps(agent))

        write_agent("Be kind.")
        async with run_gateway(tmp_path, agents=[{"file": "agent.yaml"}]) as gateway:
            _, response = await gateway.send("POST", "/v1/responses", {"model": "helper", "input": "Go"})
            kind = await read_trace(gateway, response["id"])
            write_agent("Be brief.")
            assert await gateway.reload()
            changed = await read_trace(gateway, response["id"])
            _, later = await gateway.send("POST", "/v1/responses", {"model": "helper", "input": "Go"})
            brief = await read_trace(gateway, later["id"])
            assert await gateway.reload(agents=[])
            removed = await read_trace(gateway, later["id"])
    shown = [
        (each["agent_instructions"], each["agent_instructions_changed"]) for each in (kind, changed, brief, removed)
    ]
    assert shown == [("Be kind.", False), (None, True), ("Be brief.", False), (None, True)]


@async_test(60)
async def test_instructions_of_a_request_are_shown_in_place_of_the_operator_s(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        await give_instructions(gateway, "Be kind.")
        body = {"model": MODEL, "input": "Go", "instructions": "Be brief."}
        _, response = await gateway.send("POST", "/v1/responses", body)
        trace = await read_trace(gateway, response["id"])
    assert [message["content"] for message in gateway.model_requests[0]["messages"]] == ["Be brief.", "Go"]
    assert (trace["instructions"], trace["agent_instructions"]) == ("Be brief.", None)
    assert trace["agent_instructions_changed"] is False
    assert tools_by_turn(trace) == [[]]


@async_test(60)
async def test_tools_that_change_during_a_run_are_recorded_by_turn(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = ScriptedModel(call("grow"), call("echo", text="hi"), [wait(never)])
    async with (
        FaultyMCPServer(era="modern") as server,
        run_gateway(tmp_path, model, mcp={"tools": server}) as gateway,
    ):
        body = {"model": MODEL, "input": "Go", "background": True}
        _, response = await gateway.send("POST", "/v1/responses", body)
        await wait_model_requests(gateway.model, 3)
        live = await read_trace(gateway, response["id"])
        await gateway.send("POST", f"/v1/responses/{response['id']}/cancel", {})
        stored = await read_trace(gateway, response["id"])
    sent = [offered_in(request) for request in gateway.model_requests]
    assert ["grown_1" in names for names in sent] == [False, True, True]
    assert tools_by_turn(live) == sent
    assert tools_by_turn(stored) == sent


@async_test(60)
async def test_the_tools_that_a_request_allows_are_those_that_were_offered(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, ScriptedModel(say("Hi.")), mcp={"tools": server}) as gateway,
    ):
        allowed = {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "mcp", "server_label": "tools", "name": n} for n in ("add", "echo")],
        }
        tools = [{"type": "mcp", "server_label": "tools", "require_approval": "never"}]
        body = {"model": MODEL, "input": "Go", "tools": tools, "tool_choice": allowed}
        code, response = await gateway.send("POST", "/v1/responses", body)
        assert code == 200, response
        trace = await read_trace(gateway, response["id"])
    assert tools_by_turn(trace) == [["add", "echo"]] == [offered_in(gateway.model_requests[0])]


@async_test(60)
async def test_the_names_of_very_many_tools_are_left_out(tmp_path: Path) -> None:
    many = [tool_entry(f"tool_{'x' * 40}_{n}", "One of many.") for n in range(1_000)]
    async with (
        DescribedServer(*many).serve() as server,
        run_gateway(tmp_path, ScriptedModel(say("Hi.")), mcp_servers=[server_entry("many", server.url)]) as gateway,
    ):
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        trace = await read_trace(gateway, response["id"])
    assert len(offered_in(gateway.model_requests[0])) == 1_000
    assert tools_by_turn(trace) == [None]


@async_test(60)
async def test_a_continued_response_names_its_context(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("One."), say("Two."))) as gateway:
        _, first = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "First"})
        body = {"model": MODEL, "input": "Second", "previous_response_id": first["id"]}
        _, second = await gateway.send("POST", "/v1/responses", body)
        trace = await read_trace(gateway, second["id"])
    assert trace["context"] == {"previous_response_id": first["id"], "conversation": None, "items": 2}
    assert texts_of(trace, [0, 1]) == ["Second", "Two."]


@async_test(60)
async def test_a_failed_run_has_the_step_that_failed(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), status(404))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"tools": server}) as gateway:
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        _, page = await gateway.send("GET", "/v1/runs?status=failed")
        trace = await read_trace(gateway, page["data"][0]["id"])
    by_id = {span["id"]: span for span in trace["spans"]}
    assert [by_id[each]["status"] for each in ("run", "model_1", "tool_1", "model_2")] == ["error", "ok", "ok", "error"]
    assert by_id["run"]["error"] == by_id["model_2"]["error"] == page["data"][0]["error"]["message"]


@async_test(60)
async def test_a_call_of_a_client_function_is_a_wait(tmp_path: Path) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    async with run_gateway(tmp_path, ScriptedModel(call("look"))) as gateway:
        body = {"model": MODEL, "input": "Go", "tools": [tool]}
        _, response = await gateway.send("POST", "/v1/responses", body)
        trace = await read_trace(gateway, response["id"])
    [waiting] = [span for span in trace["spans"] if span["kind"] == "wait"]
    assert (waiting["name"], waiting["status"], waiting["seconds"]) == ("look", "running", None)


@async_test(60)
async def test_steps_are_stored_by_name_and_those_of_another_version_are_none(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
        store, path = gateway.service.store, f"/v1/runs/{response['id']}/trace"
        stored = await store.get(response["id"], "local")
        assert stored is not None
        assert stored.trace is not None
        trace = orjson.loads(stored.trace)
        assert [(step["kind"], step.get("items")) for step in trace["steps"]] == [
            ("turn", 0),
            ("token", None),
            ("answer", 1),
            ("ended", 1),
        ]
        older = replace(stored, trace=orjson.dumps({**trace, "version": trace["version"] - 1}), run=None)
        await store.save(older)
        assert (await gateway.send("GET", path))[0] == 404


def test_a_turn_whose_model_had_answered_is_not_begun_anew_by_another_process() -> None:
    tokens = dict.fromkeys(TOKEN_NAMES, 1)
    steps: list[Step] = [
        {"kind": "turn", "at": 10, "number": 1, "items": 0, "is_replayed": False, "tool_list": None},
        {"kind": "answer", "at": 20, "items": 1, "tokens": tokens, "cost": None},
        {"kind": "resumed", "at": 50, "recorded": 30},
        {"kind": "turn", "at": 60, "number": 1, "items": 0, "is_replayed": True, "tool_list": None},
        {"kind": "turn", "at": 70, "number": 2, "items": 1, "is_replayed": False, "tool_list": None},
    ]
    spans = [(span["id"], span["start"]) for span in build_spans(steps)]
    assert spans == [
        *(("run", 0.0), ("turn_1", 1e-05), ("model_1", 1e-05), ("recovery_1", 3e-05)),
        *(("turn_2", 7e-05), ("model_2", 7e-05)),
    ]


@pytest.mark.parametrize("is_changed", [False, True])
@async_test(SECONDS)
async def test_a_run_that_another_process_continues_has_its_first_steps_and_a_recovery(
    tmp_path: Path, is_changed: bool
) -> None:
    never = asyncio.Event()
    model = ScriptedModel(call("echo", text="one"), [wait(never)], say("done"))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[mcp_server_entry(mcp.url)], background={"durable": True}
        )
        write_instructions(file, "Be kind.")
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response("Go", background=True)
            await wait_model_requests(scripted, 2)
            path = f"/v1/runs/{begun['id']}/trace"
            # An event is sent once it is stored, and the trace with it.
            await read_stream_until(served, begun["id"], "response.output_item.done")
            _, before, _ = await served.send("GET", path)
            stored = {span["id"]: span for span in before["spans"]}
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        if is_changed:
            write_instructions(file, "Be brief.")
            await mcp.grow()
        async with run_gateway_process(file) as served:
            await wait_ended(served, begun["id"])
            _, trace, _ = await served.send("GET", path)
            _, run, _ = await served.send("GET", f"/v1/runs/{begun['id']}")
    by_id = {span["id"]: span for span in trace["spans"]}
    assert {span["kind"] for span in trace["spans"]} == {"run", "wait", "turn", "model", "tool", "recovery"}
    assert by_id["model_1"]["start"] == stored["model_1"]["start"]
    assert by_id["recovery_1"]["start"] >= by_id["model_1"]["start"]
    assert by_id["model_2"]["start"] >= by_id["recovery_1"]["start"] + by_id["recovery_1"]["seconds"] - 1e-5
    assert (run["status"], run["answer"], run["turns"]) == ("completed", "done", 2)
    assert texts_of(trace, by_id["model_2"]["output_items"]) == ["done"]
    sent = [received.json for received in scripted.received]
    # The second request was that of the process that died.
    assert tools_by_turn(trace) == [offered_in(sent[0]), offered_in(sent[2])]
    assert "echo" in offered_in(sent[0])
    assert ("grown_1" in offered_in(sent[2])) is is_changed
    assert before["agent_instructions"] == "Be kind."
    # The turns of a run that went on with other instructions have different ones.
    assert (trace["agent_instructions"], trace["agent_instructions_changed"]) == (
        (None, True) if is_changed else ("Be kind.", False)
    )


def write_instructions(file: Path, text: str) -> None:
    """Change the instructions of the model's entry in a gateway file."""
    written = orjson.loads(file.read_bytes())
    written["models"][0]["instructions"] = text
    file.write_bytes(orjson.dumps(written))
