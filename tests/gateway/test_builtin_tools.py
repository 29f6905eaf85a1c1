"""Hosted tools, each mapped to an MCP tool: the client sees the items of OpenAI's API, the gateway runs the tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, gateway_config, run_gateway
from openai.types.responses import (
    ResponseCodeInterpreterToolCall,
    ResponseFileSearchToolCall,
    ResponseFunctionWebSearch,
)
from openai.types.responses.response_output_item import ImageGenerationCall

from holodeck.lib.errors import ConfigError
from holodeck.runtime import read_gateway
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

ALL_MAPPED = {
    "web_search": "tools.echo",
    "file_search": "tools.echo",
    "code_interpreter": "tools.echo",
    "image_generation": "tools.image",
}
FOUND = "Towers: https://example.com/a, and https://example.com/b."


def event_types(events: list[dict[str, Any]], kind: str) -> list[str]:
    """The types of the events that belong to calls of a hosted tool."""
    return [event["type"] for event in events if event["type"].startswith(f"response.{kind}_call")]


async def ask(gateway: RunningGateway, **more: Any) -> dict[str, Any]:
    status, answer = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", **more})
    assert status == 200, answer
    return dict(answer)


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("kind", ["web_search", "web_search_2025_08_26", "web_search_preview"])
@async_test(30)
async def test_a_web_search_is_run_by_the_mapped_tool_and_parsed_by_the_stock_client(tmp_path: Path, kind: str) -> None:
    model = ScriptedModel(call("web_search", text=FOUND), say("Two towers."), say("Yes."))
    mapped = {"web_search": "tools.echo"}
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools=mapped) as gateway,
    ):
        client = await gateway.openai_client()
        tool: Any = {"type": kind, "search_context_size": "low"}
        choice: Any = {"type": kind}
        answer = await client.responses.create(
            model=MODEL,
            input="Towers?",
            tools=[tool],
            tool_choice=choice,
            include=["web_search_call.action.sources"],
        )
        search, _ = answer.output
        assert isinstance(search, ResponseFunctionWebSearch)
        assert search.action.type == "search"
        assert (search.status, search.action.query) == ("completed", FOUND)
        urls = [source.url for source in search.action.sources or ()]
        assert urls == ["https://example.com/a", "https://example.com/b"]
        assert [made.params["name"] for made in server.calls()] == ["echo"]
        offered = {each["function"]["name"]: each["function"] for each in gateway.model_requests[0]["tools"]}
        assert "echo" not in offered
        assert offered["web_search"]["parameters"]["required"] == ["text"]
        assert '"search_context_size":"low"' in offered["web_search"]["description"]
        forced = {"type": "function", "function": {"name": "web_search"}}
        assert gateway.model_requests[0]["tool_choice"] == forced
        assert gateway.model_requests[1]["messages"][-1]["content"] == FOUND
        await client.responses.create(model=MODEL, input="Sure?", previous_response_id=answer.id)
        assert gateway.model_requests[2]["messages"][2]["content"] == FOUND


@pytest.mark.proves("D-25")
@async_test(30)
async def test_each_hosted_tool_has_its_own_item_with_the_results_that_include_asks_for(tmp_path: Path) -> None:
    results = '{"results": [{"filename": "a.md", "text": "30 days", "score": 0.5}]}'
    model = ScriptedModel(
        [call("file_search", text=results), call("code_interpreter", text="print(1)"), call("image_generation")],
        say("Done."),
    )
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools=ALL_MAPPED) as gateway,
    ):
        client = await gateway.openai_client()
        tools: Any = [
            {"type": "file_search", "vector_store_ids": ["vs_1"]},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "image_generation"},
        ]
        answer = await client.responses.create(
            model=MODEL, input="Go", tools=tools, include=["file_search_call.results", "code_interpreter_call.outputs"]
        )
        files, code, image, _ = answer.output
        assert isinstance(files, ResponseFileSearchToolCall)
        assert isinstance(code, ResponseCodeInterpreterToolCall)
        assert isinstance(image, ImageGenerationCall)
        assert files.queries == [results]
        assert [(each.filename, each.text, each.score) for each in files.results or ()] == [("a.md", "30 days", 0.5)]
        assert (code.code, code.container_id) == ("print(1)", "tools")
        assert [output.model_dump() for output in code.outputs or ()] == [{"type": "logs", "logs": "print(1)"}]
        assert image.result is not None
        assert image.result.startswith("iVBOR")
        assert {files.status, code.status, image.status} == {"completed"}


@pytest.mark.proves("D-25", "D-28")
@async_test(30)
async def test_hosted_calls_are_streamed_with_openais_events_and_replayed_alike(tmp_path: Path) -> None:
    model = ScriptedModel(
        [call("web_search", text="x"), call("code_interpreter", text="1"), call("image_generation")], say("Done.")
    )
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools=ALL_MAPPED) as gateway,
    ):
        tools = [{"type": kind} for kind in ALL_MAPPED]
        body = {"model": MODEL, "input": "Go", "tools": tools, "stream": True, "parallel_tool_calls": False}
        events = await gateway.stream("/v1/responses", body)
        end = [f"response.web_search_call.{step}" for step in ("in_progress", "searching", "completed")]
        assert event_types(events, "web_search") == end
        assert event_types(events, "code_interpreter") == [
            "response.code_interpreter_call.in_progress",
            "response.code_interpreter_call_code.delta",
            "response.code_interpreter_call_code.done",
            "response.code_interpreter_call.interpreting",
            "response.code_interpreter_call.completed",
        ]
        steps = ("in_progress", "generating", "completed")
        assert event_types(events, "image_generation") == [f"response.image_generation_call.{step}" for step in steps]
        response = events[-1]["response"]
        assert (response["output"][1]["outputs"], response["tools"]) == (None, tools)
        replayed = await gateway.stream(f"/v1/responses/{response['id']}?stream=true")
        assert [event["type"] for event in replayed] == [event["type"] for event in events]
        added = [[each["item"] for each in run if each["type"].endswith("item.added")] for run in (events, replayed)]
        assert added[0][:-1] == added[1][:-1]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_hosted_call_that_fails_or_needs_approval_is_a_failed_item_and_words_for_the_model(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(call("web_search", message="no"), call("file_search", text="x"), say("Sorry."))
    mapped = {"web_search": "tools.fail", "file_search": "strict.echo"}
    async with FaultyMCPServer() as server:
        config = gateway_config("", {"tools": server, "strict": server})["mcp_servers"]
        config[1]["approval"] = "always"
        async with run_gateway(tmp_path, model, mcp_servers=config, builtin_tools=mapped) as gateway:
            answer = await ask(gateway, tools=[{"type": "web_search"}, {"type": "file_search"}])
            assert [(item["type"], item["status"]) for item in answer["output"]] == [
                ("web_search_call", "failed"),
                ("file_search_call", "failed"),
                ("message", "completed"),
            ]
            assert "needs a person's approval" in gateway.model_requests[2]["messages"][-1]["content"]
            assert [made.params["name"] for made in server.calls()] == ["fail"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_hosted_tool_works_beside_declarations_and_shows_no_other_tool_of_its_server(tmp_path: Path) -> None:
    model = ScriptedModel([call("web_search", text="x"), call("add", a=1, b=2)], say("Done."))
    async with (
        FaultyMCPServer() as server,
        FaultyMCPServer() as other,
        run_gateway(
            tmp_path, model, mcp={"tools": server, "sums": other}, builtin_tools={"web_search": "tools.echo"}
        ) as gateway,
    ):
        declared = {"type": "mcp", "server_label": "sums", "allowed_tools": ["add"], "require_approval": "never"}
        answer = await ask(gateway, tools=[{"type": "web_search"}, declared])
        kinds = sorted(item["type"] for item in answer["output"])
        assert kinds == ["mcp_call", "mcp_list_tools", "message", "web_search_call"]
        names = [each["function"]["name"] for each in gateway.model_requests[0]["tools"]]
        assert len(names) == 2
        assert "web_search" in names


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_hosted_tool_without_a_mapping_is_refused_and_one_whose_mcp_tool_is_gone_is_not_offered(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(say("I cannot search."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, builtin_tools={"web_search": "tools.gone"}) as gateway,
    ):
        body = {"model": MODEL, "input": "Go", "tools": [{"type": "file_search", "vector_store_ids": []}]}
        status, refused = await gateway.send("POST", "/v1/responses", body)
        assert (status, refused["error"]["param"]) == (400, "tools[0].type")
        assert "The gateway's operator can do that, under 'builtin_tools'." in refused["error"]["message"]
        await ask(gateway, tools=[{"type": "web_search"}])
        names = [each["function"]["name"] for each in gateway.model_requests[0]["tools"]]
        assert "web_search" not in names
        forced = {
            "model": MODEL,
            "input": "Go",
            "tools": [{"type": "web_search"}],
            "tool_choice": {"type": "web_search"},
        }
        status, refused = await gateway.send("POST", "/v1/responses", forced)
        assert (status, refused["error"]["param"]) == (400, "tool_choice")


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("mapped", "words"),
    [
        ({"web_search": "nowhere.search"}, "there is no server 'nowhere' in 'mcp_servers'"),
        ({"web_search": "search"}, "Write it as server.tool."),
        ({"telepathy": "a.b"}, "telepathy"),
    ],
)
def test_a_mapping_to_no_server_is_refused_when_the_file_is_loaded(
    tmp_path: Path, mapped: dict[str, str], words: str
) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_bytes(orjson.dumps({**gateway_config("http://127.0.0.1:1", {}), "builtin_tools": mapped}))
    with pytest.raises(ConfigError, match=words):
        read_gateway(file, environ={}, home=tmp_path)
