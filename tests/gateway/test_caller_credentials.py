"""A caller's own token for a server of the gateway: only if the operator allows it, and only for that caller."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.personal_server import PersonalServer
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import ScriptedModel, call, say

ALICE, BOB = "hd-alice", "hd-bob"
TOKENS = {ALICE: "tok-of-alice-4711", BOB: "tok-of-bob-0815"}
OPERATOR = "tok-of-the-operator"
PEOPLE = {f"Bearer {TOKENS[ALICE]}": "alice", f"Bearer {TOKENS[BOB]}": "bob", f"Bearer {OPERATOR}": "operator"}
GET_TIME = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}


def _served(server: PersonalServer, **more: Any) -> dict[str, Any]:
    """Settings of a gateway that reaches this server with the operator's credentials."""
    headers = {"Authorization": "${TOKEN}", "X-Operator": "${TOKEN}"}
    entry = {"name": "work", "description": "w", "url": server.url, "headers": headers, **more}
    return {
        "mcp_servers": [{"caller_authorization": True, **entry}],
        "keys": [ALICE, BOB],
        "environ": {"TOKEN": f"Bearer {OPERATOR}"},
    }


def _run_gateway(folder: Path, model: ScriptedModel, server: PersonalServer, **more: Any) -> Any:
    return run_gateway(folder, model, **_served(server, **more))


def _tool(token: str | None, **more: Any) -> dict[str, Any]:
    own = {} if token is None else {"authorization": token}
    return {"type": "mcp", "server_label": "work", "require_approval": "never", **own, **more}


async def _ask(gateway: RunningGateway, *tools: dict[str, Any], key: str = ALICE, **body: Any) -> tuple[int, Any]:
    return await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": tools, **body}, key=key)


def _whoami_model() -> ScriptedModel:
    return ScriptedModel(lambda got: say("Done.") if got.json["messages"][-1]["role"] == "tool" else call("whoami"))


def _output(answer: dict[str, Any]) -> Any:
    (made,) = [item for item in answer["output"] if item["type"] == "mcp_call"]
    return made["output"]


def _stored_bytes(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.proves("D-26", "D-27", "D-29", "D-30")
@async_test(30)
async def test_a_server_gets_each_caller_s_own_token_and_otherwise_the_operator_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, _whoami_model(), server) as gateway:
        ways = [(ALICE, TOKENS[ALICE]), (BOB, TOKENS[BOB]), (ALICE, None), (ALICE, TOKENS[ALICE])]
        answers = await asyncio.gather(*(_ask(gateway, _tool(token), key=key) for key, token in ways))
        assert [status for status, _ in answers] == [200] * 4
        outputs = [_output(answer) for _, answer in answers]
        assert outputs == ["You are alice.", "You are bob.", "You are operator.", "You are alice."]
        listed = [[tool["name"] for tool in answer["output"][0]["tools"]] for _, answer in answers]
        assert listed[:3] == [["whoami", "of_alice"], ["whoami", "of_bob"], ["whoami", "of_operator"]]
        assert sorted(server.sessions.values()) == ["alice", "bob", "operator"]
        for headers in server.request_headers:
            is_operator = headers["authorization"] == f"Bearer {OPERATOR}"
            assert ("x-operator" in headers) == is_operator
        stored = [await gateway.send("GET", f"/v1/responses/{answers[0][1]['id']}", key=ALICE)]
        stored_bytes = _stored_bytes(tmp_path)
        assert answers[0][1]["id"].encode() in stored_bytes
        assert "authorization" not in answers[0][1]["tools"][0]
        for token in TOKENS.values():
            assert token not in caplog.text
            assert token not in repr((answers, stored, gateway.model_requests))
            assert token.encode() not in stored_bytes


@pytest.mark.proves("D-26", "D-27")
@async_test(30)
async def test_a_caller_s_token_is_refused_unless_the_operator_allows_it_for_that_server(tmp_path: Path) -> None:
    async with (
        PersonalServer(PEOPLE).serve() as server,
        _run_gateway(tmp_path, _whoami_model(), server, caller_authorization=False) as gateway,
    ):
        for own in ({"authorization": TOKENS[ALICE]}, {"headers": {"Authorization": f"Bearer {TOKENS[ALICE]}"}}):
            status, error = await _ask(gateway, {**_tool(None), **own})
            assert (status, error["error"]["param"]) == (400, f"tools[0].{next(iter(own))}")
            assert "caller_authorization: true" in error["error"]["message"]
        assert (server.request_headers, gateway.model_requests) == ([], [])


@pytest.mark.proves("D-27")
@async_test(30)
async def test_headers_of_a_caller_replace_all_headers_of_the_operator(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, _whoami_model(), server) as gateway:
        own = {"headers": {"authorization": f"Bearer {TOKENS[BOB]}", "X-Tenant": "7"}}
        _, answer = await _ask(gateway, _tool(None, **own), key=BOB)
        assert _output(answer) == "You are bob."
        assert [(one.get("x-tenant"), one.get("x-operator")) for one in server.request_headers] == [("7", None)] * len(
            server.request_headers
        )
        status, answer = await _ask(gateway, _tool(None, headers={"X-Tenant": "7"}), key=BOB)
        assert (status, answer["output"][0]["tools"]) == (200, []), (
            "a caller's header is not combined with the operator's token"
        )
        assert server.calls_by_person == ["bob"]


@pytest.mark.proves("D-27", "004:SC-004")
@async_test(30)
async def test_a_token_that_the_server_refuses_fails_only_its_own_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(say("Without it."), call("whoami"), say("Bob."))
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, model, server) as gateway:
        status, answer = await _ask(gateway, _tool("tok-expired-1234"))
        assert (status, answer["output"][0]["tools"]) == (200, [])
        assert "401" in answer["output"][0]["error"]
        assert "tok-expired-1234" not in repr(answer) + caplog.text
        assert _output((await _ask(gateway, _tool(TOKENS[BOB]), key=BOB))[1]) == "You are bob."
        assert OPERATOR not in repr(server.request_headers)


@pytest.mark.proves("D-12", "D-24", "D-26")
@async_test(30)
async def test_the_operator_s_rules_apply_to_a_caller_with_its_own_token(tmp_path: Path) -> None:
    model = ScriptedModel(call("whoami"), say("Alice."))
    rules = {"denied_tools": ["of_*"], "approval": "always"}
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, model, server, **rules) as gateway:
        _, first = await _ask(gateway, _tool(TOKENS[ALICE]))
        assert [tool["name"] for tool in first["output"][0]["tools"]] == ["whoami"]
        assert (first["output"][1]["type"], server.calls_by_person) == ("mcp_approval_request", [])
        yes = {"type": "mcp_approval_response", "approval_request_id": first["output"][1]["id"], "approve": True}
        more = {"previous_response_id": first["id"], "input": [yes]}
        for tools in ((_tool(None),), ()):
            status, error = await _ask(gateway, *tools, **more)
            assert (status, error["error"]["code"]) == (400, "missing_credentials")
        assert _output((await _ask(gateway, _tool(TOKENS[ALICE]), **more))[1]) == "You are alice."
        assert server.calls_by_person == ["alice"]


@pytest.mark.proves("D-23", "D-27")
@async_test(30)
async def test_a_pending_call_in_a_conversation_runs_only_with_its_caller_s_token(tmp_path: Path) -> None:
    model = ScriptedModel([call("whoami"), call("get_time")], say("Alice, at noon."))
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, model, server) as gateway:
        _, made = await gateway.send("POST", "/v1/conversations", {}, key=ALICE)
        here, tool = {"conversation": made["id"]}, _tool(TOKENS[ALICE])
        _, first = await _ask(gateway, GET_TIME, tool, **here)
        (function_call,) = [item for item in first["output"] if item["type"] == "function_call"]
        noon = [{"type": "function_call_output", "call_id": function_call["call_id"], "output": "noon"}]
        status, error = await _ask(gateway, GET_TIME, **here, input=noon)
        assert (status, error["error"]["code"], server.calls_by_person) == (400, "missing_credentials", [])
        _, second = await _ask(gateway, GET_TIME, tool, **here, input=noon)
        assert (_output(second), server.calls_by_person) == ("You are alice.", ["alice"])
        assert TOKENS[ALICE].encode() not in _stored_bytes(tmp_path)


@pytest.mark.proves("D-27")
@async_test(30)
async def test_a_background_response_uses_the_caller_s_token_which_is_not_stored(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _run_gateway(tmp_path, _whoami_model(), server) as gateway:
        _, queued = await _ask(gateway, _tool(TOKENS[ALICE]), background=True)
        session = await gateway.http_client(ALICE)
        async with session.get(f"/v1/responses/{queued['id']}?stream=true") as answer:
            assert "You are alice." in await answer.text()
        assert queued["id"].encode() in _stored_bytes(tmp_path)
        assert TOKENS[ALICE].encode() not in _stored_bytes(tmp_path)
        assert server.calls_by_person == ["alice"]


@pytest.mark.proves("D-27", "D-32")
@async_test(60)
async def test_a_durable_gateway_stores_no_caller_token(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _whoami_model().serve() as scripted:
        entry = {"name": "work", "description": "w", "url": server.url, "caller_authorization": True}
        config = {"mcp_servers": [entry], "background": {"durable": True}}
        async with run_gateway_process(write_gateway_file(tmp_path, scripted.url, **config)) as gateway:
            for tools in ([_tool(TOKENS[ALICE])], []):
                _, queued, _ = await gateway.create_response(background=True, tools=tools)
                await gateway.send("GET", f"/v1/responses/{queued['id']}?stream=true")
                _, ended, _ = await gateway.send("GET", f"/v1/responses/{queued['id']}")
                assert ended["status"] == "completed"
                assert queued["id"].encode() in _stored_bytes(tmp_path)
            assert (tmp_path / "holodeck.db.work").stat().st_size
            gateway.stop()
            assert await gateway.wait_exit() == 0
        assert TOKENS[ALICE].encode() not in _stored_bytes(tmp_path)
        assert TOKENS[ALICE] not in "".join(gateway.stderr_lines)
        assert server.calls_by_person == ["alice"]
