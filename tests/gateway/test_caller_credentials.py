"""A caller's own token for a server of the gateway: only if the operator allows it, and for nobody but that caller."""

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
    """A gateway with this server, which it reaches with the operator's own credentials."""
    headers = {"Authorization": "${TOKEN}", "X-Operator": "${TOKEN}"}
    entry = {"name": "work", "description": "w", "url": server.url, "headers": headers, **more}
    return {
        "mcp_servers": [{"caller_authorization": True, **entry}],
        "keys": [ALICE, BOB],
        "environ": {"TOKEN": f"Bearer {OPERATOR}"},
    }


def _stand(folder: Path, model: ScriptedModel, server: PersonalServer, **more: Any) -> Any:
    return run_gateway(folder, model, **_served(server, **more))


def _tool(token: str | None, **more: Any) -> dict[str, Any]:
    own = {} if token is None else {"authorization": token}
    return {"type": "mcp", "server_label": "work", "require_approval": "never", **own, **more}


async def _ask(stand: RunningGateway, *tools: dict[str, Any], key: str = ALICE, **body: Any) -> tuple[int, Any]:
    return await stand.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": tools, **body}, key=key)


def _asks_who() -> ScriptedModel:
    return ScriptedModel(lambda got: say("Done.") if got.json["messages"][-1]["role"] == "tool" else call("whoami"))


def _output(answer: dict[str, Any]) -> Any:
    (made,) = [item for item in answer["output"] if item["type"] == "mcp_call"]
    return made["output"]


def _kept(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.proves("D-26", "D-27", "D-29", "D-30")
@async_test(30)
async def test_each_caller_is_itself_at_the_server_and_the_operator_is_for_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with PersonalServer(PEOPLE).serve() as server, _stand(tmp_path, _asks_who(), server) as stand:
        ways = [(ALICE, TOKENS[ALICE]), (BOB, TOKENS[BOB]), (ALICE, None), (ALICE, TOKENS[ALICE])]
        answers = await asyncio.gather(*(_ask(stand, _tool(token), key=key) for key, token in ways))
        assert [status for status, _ in answers] == [200] * 4
        words = [_output(answer) for _, answer in answers]
        assert words == ["You are alice.", "You are bob.", "You are operator.", "You are alice."]
        listed = [[tool["name"] for tool in answer["output"][0]["tools"]] for _, answer in answers]
        assert listed[:3] == [["whoami", "of_alice"], ["whoami", "of_bob"], ["whoami", "of_operator"]]
        assert sorted(server.sessions.values()) == ["alice", "bob", "operator"]
        for headers in server.request_headers:
            is_operator = headers["authorization"] == f"Bearer {OPERATOR}"
            assert ("x-operator" in headers) == is_operator
        stored = [await stand.send("GET", f"/v1/responses/{answers[0][1]['id']}", key=ALICE)]
        kept = _kept(tmp_path)
        assert answers[0][1]["id"].encode() in kept
        assert "authorization" not in answers[0][1]["tools"][0]
        for token in TOKENS.values():
            assert token not in caplog.text
            assert token not in repr((answers, stored, stand.model_requests))
            assert token.encode() not in kept


@pytest.mark.proves("D-26", "D-27")
@async_test(30)
async def test_it_is_refused_unless_the_operator_allows_it_for_that_server(tmp_path: Path) -> None:
    async with (
        PersonalServer(PEOPLE).serve() as server,
        _stand(tmp_path, _asks_who(), server, caller_authorization=False) as stand,
    ):
        for own in ({"authorization": TOKENS[ALICE]}, {"headers": {"Authorization": f"Bearer {TOKENS[ALICE]}"}}):
            status, error = await _ask(stand, {**_tool(None), **own})
            assert (status, error["error"]["param"]) == (400, f"tools[0].{next(iter(own))}")
            assert "caller_authorization: true" in error["error"]["message"]
        assert (server.request_headers, stand.model_requests) == ([], [])


@pytest.mark.proves("D-27")
@async_test(30)
async def test_headers_of_a_caller_take_the_place_of_all_of_the_operator_s(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _stand(tmp_path, _asks_who(), server) as stand:
        own = {"headers": {"authorization": f"Bearer {TOKENS[BOB]}", "X-Tenant": "7"}}
        _, answer = await _ask(stand, _tool(None, **own), key=BOB)
        assert _output(answer) == "You are bob."
        assert [(one.get("x-tenant"), one.get("x-operator")) for one in server.request_headers] == [("7", None)] * len(
            server.request_headers
        )
        status, answer = await _ask(stand, _tool(None, headers={"X-Tenant": "7"}), key=BOB)
        assert (status, answer["output"][0]["tools"]) == (200, []), "a header alone opens nothing with another's token"
        assert server.calls_by_person == ["bob"]


@pytest.mark.proves("D-27", "004:SC-004")
@async_test(30)
async def test_a_token_that_the_server_refuses_fails_only_its_own_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel(say("Without it."), call("whoami"), say("Bob."))
    async with PersonalServer(PEOPLE).serve() as server, _stand(tmp_path, model, server) as stand:
        status, answer = await _ask(stand, _tool("tok-expired-1234"))
        assert (status, answer["output"][0]["tools"]) == (200, [])
        assert "401" in answer["output"][0]["error"]
        assert "tok-expired-1234" not in repr(answer) + caplog.text
        assert _output((await _ask(stand, _tool(TOKENS[BOB]), key=BOB))[1]) == "You are bob."
        assert OPERATOR not in repr(server.request_headers)


@pytest.mark.proves("D-12", "D-24", "D-26")
@async_test(30)
async def test_the_operator_s_rules_hold_for_a_caller_with_a_token_of_its_own(tmp_path: Path) -> None:
    model = ScriptedModel(call("whoami"), say("Alice."))
    rules = {"denied_tools": ["of_*"], "approval": "always"}
    async with PersonalServer(PEOPLE).serve() as server, _stand(tmp_path, model, server, **rules) as stand:
        _, first = await _ask(stand, _tool(TOKENS[ALICE]))
        assert [tool["name"] for tool in first["output"][0]["tools"]] == ["whoami"]
        assert (first["output"][1]["type"], server.calls_by_person) == ("mcp_approval_request", [])
        yes = {"type": "mcp_approval_response", "approval_request_id": first["output"][1]["id"], "approve": True}
        more = {"previous_response_id": first["id"], "input": [yes]}
        for tools in ((_tool(None),), ()):
            status, error = await _ask(stand, *tools, **more)
            assert (status, error["error"]["code"]) == (400, "missing_credentials")
        assert _output((await _ask(stand, _tool(TOKENS[ALICE]), **more))[1]) == "You are alice."
        assert server.calls_by_person == ["alice"]


@pytest.mark.proves("D-23", "D-27")
@async_test(30)
async def test_a_call_that_waits_in_a_conversation_runs_with_its_caller_s_token_or_not_at_all(tmp_path: Path) -> None:
    model = ScriptedModel([call("whoami"), call("get_time")], say("Alice, at noon."))
    async with PersonalServer(PEOPLE).serve() as server, _stand(tmp_path, model, server) as stand:
        _, made = await stand.send("POST", "/v1/conversations", {}, key=ALICE)
        here, tool = {"conversation": made["id"]}, _tool(TOKENS[ALICE])
        _, first = await _ask(stand, GET_TIME, tool, **here)
        (asked,) = [item for item in first["output"] if item["type"] == "function_call"]
        noon = [{"type": "function_call_output", "call_id": asked["call_id"], "output": "noon"}]
        status, error = await _ask(stand, GET_TIME, **here, input=noon)
        assert (status, error["error"]["code"], server.calls_by_person) == (400, "missing_credentials", [])
        _, second = await _ask(stand, GET_TIME, tool, **here, input=noon)
        assert (_output(second), server.calls_by_person) == ("You are alice.", ["alice"])
        assert TOKENS[ALICE].encode() not in _kept(tmp_path)


@pytest.mark.proves("D-27")
@async_test(30)
async def test_a_background_response_uses_the_token_and_nobody_keeps_it(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _stand(tmp_path, _asks_who(), server) as stand:
        _, queued = await _ask(stand, _tool(TOKENS[ALICE]), background=True)
        session = await stand.http_client(ALICE)
        async with session.get(f"/v1/responses/{queued['id']}?stream=true") as answer:
            assert "You are alice." in await answer.text()
        assert queued["id"].encode() in _kept(tmp_path)
        assert TOKENS[ALICE].encode() not in _kept(tmp_path)
        assert server.calls_by_person == ["alice"]


@pytest.mark.proves("D-27", "D-32")
@async_test(60)
async def test_a_durable_gateway_keeps_no_work_that_has_a_token_in_it(tmp_path: Path) -> None:
    async with PersonalServer(PEOPLE).serve() as server, _asks_who().serve() as scripted:
        entry = {"name": "work", "description": "w", "url": server.url, "caller_authorization": True}
        config = {"mcp_servers": [entry], "background": {"durable": True}}
        async with run_gateway_process(write_gateway_file(tmp_path, scripted.url, **config)) as gateway:
            for tools in ([_tool(TOKENS[ALICE])], []):
                _, queued, _ = await gateway.create_response(background=True, tools=tools)
                await gateway.send("GET", f"/v1/responses/{queued['id']}?stream=true")
                _, ended, _ = await gateway.send("GET", f"/v1/responses/{queued['id']}")
                assert ended["status"] == "completed"
                assert queued["id"].encode() in _kept(tmp_path)
            assert (tmp_path / "holodeck.db.work").stat().st_size
            gateway.stop()
            assert await gateway.wait_exit() == 0
        assert TOKENS[ALICE].encode() not in _kept(tmp_path)
        assert TOKENS[ALICE] not in "".join(gateway.stderr_lines)
        assert server.calls_by_person == ["alice"]
