"""A client of the Responses API that says so answers what MCP servers ask while they work on its calls."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.audit_entries import read_audit
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.gateway.mcp import elicitations
from holodeck.testing import Era, FaultyMCPServer, ScriptedModel, call, say

ERAS: tuple[Era, ...] = ("legacy", "modern")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ALICE, BOB = "hd-alice", "hd-bob"


def asking_model(**arguments: Any) -> ScriptedModel:
    """A model that calls the tool that asks, and then says something."""
    return ScriptedModel(call("ask_elicitation", **arguments), say("Thank you."))


async def start(gateway: RunningGateway, *, key: str = "hd-anybody", **more: Any) -> str:
    """Start a background response whose client answers questions; its id."""
    body = {"model": "demo", "input": "Ask me", "background": True, "elicitation": "ask", **more}
    status, made = await gateway.send("POST", "/v1/responses", body, key=key)
    assert status == 200, made
    return str(made["id"])


async def wait_question(gateway: RunningGateway, response_id: str, *, key: str = "hd-anybody") -> dict[str, Any]:
    """The first open question of a response, once there is one."""
    while True:
        status, listed = await gateway.send("GET", f"/v1/responses/{response_id}/elicitations", key=key)
        assert (status, listed["object"]) == (200, "list"), listed
        if listed["data"]:
            return dict(listed["data"][0])


async def answer(
    gateway: RunningGateway, question: dict[str, Any], action: str, *, key: str = "hd-anybody", **content: Any
) -> tuple[int, Any]:
    path = f"/v1/responses/{question['response_id']}/elicitations/{question['id']}"
    body = {"action": action, **({"content": content} if content else {})}
    return await gateway.send("POST", path, body, key=key)


async def wait_ended(gateway: RunningGateway, response_id: str, *, key: str = "hd-anybody") -> dict[str, Any]:
    """The response, followed to its end."""
    events = await gateway.stream(f"/v1/responses/{response_id}?stream=true", key=key)
    return dict(events[-1]["response"])


def tool_output(gateway: RunningGateway) -> Any:
    """What the model was told of the call: the answer that the server got."""
    return json.loads(gateway.model_requests[-1]["messages"][-1]["content"])


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@async_test
async def test_the_server_gets_what_the_client_has_answered(tmp_path: Path, era: Era, transport: str) -> None:
    async with FaultyMCPServer(era=era) as server:
        entry: dict[str, Any] = {"name": "forms", "type": "mcp", "description": "Forms", "transport": transport}
        if transport == "http":
            entry["url"] = server.url
        else:
            command, *arguments = FaultyMCPServer.command(era=era)
            entry |= {"command": command, "args": arguments}
        config: dict[str, Any] = {"mcp_servers": [entry], "allow_stdio": True, "allowed_commands": [sys.executable]}
        async with run_gateway(tmp_path, asking_model(), **config) as gateway:
            response_id = await start(gateway)
            question = await wait_question(gateway, response_id)
            assert question["expires_at"] - question["created_at"] == 600
            assert {key: question[key] for key in ("object", "response_id", "server_label", "mode", "message")} == {
                "object": "elicitation",
                "response_id": response_id,
                "server_label": "forms",
                "mode": "form",
                "message": "What is your name?",
            }
            assert question["requested_schema"] == SCHEMA
            status, answered = await answer(gateway, question, "accept", name="Ada")
            assert (status, answered) == (200, {**question, "status": "answered"})
            ended = await wait_ended(gateway, response_id)
            assert ended["status"] == "completed"
            assert [item["id"] for item in ended["output"] if item["type"] == "mcp_call"] == [question["call_id"]]
            assert tool_output(gateway) == {"action": "accept", "content": {"name": "Ada"}}


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
@async_test
async def test_the_server_is_told_that_the_client_declines_or_puts_the_question_aside(
    tmp_path: Path, era: Era, action: str
) -> None:
    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, asking_model(), mcp={"forms": server}) as gateway,
    ):
        response_id = await start(gateway)
        status, _ = await answer(gateway, await wait_question(gateway, response_id), action)
        assert status == 200
        await wait_ended(gateway, response_id)
        assert tool_output(gateway) == {"action": action}


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("more", [{}, {"elicitation": "decline"}, {"elicitation": None}])
@async_test
async def test_the_questions_of_a_client_that_does_not_answer_are_declined(
    tmp_path: Path, era: Era, more: dict[str, Any]
) -> None:
    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, asking_model(anyway=True), mcp={"forms": server}) as gateway,
    ):
        status, made = await gateway.send("POST", "/v1/responses", {"model": "demo", "input": "Ask me", **more})
        assert (status, made["status"]) == (200, "completed")
        assert tool_output(gateway) == {"action": "decline"}
        listed = await gateway.send("GET", f"/v1/responses/{made['id']}/elicitations")
        assert listed == (200, {"object": "list", "data": []})


@pytest.mark.proves("D-20")
@async_test
async def test_a_client_that_streams_answers_while_its_stream_waits(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, asking_model(), mcp={"forms": server}) as gateway,
    ):
        body = {"model": "demo", "input": "Ask me", "stream": True, "elicitation": "ask"}
        session = await gateway.http_client()
        async with session.post("/v1/responses", json=body) as reply:
            created = json.loads((await reply.content.readuntil(b"\n\n")).partition(b"data: ")[2])
            question = await wait_question(gateway, created["response"]["id"])
            status, _ = await answer(gateway, question, "accept", name="Ada")
            assert status == 200
            assert b"Thank you." in await reply.read()
        assert tool_output(gateway)["content"] == {"name": "Ada"}


@pytest.mark.proves("D-20")
@async_test
async def test_content_that_does_not_fit_is_refused_by_the_name_of_its_field_and_the_question_stays_open(
    tmp_path: Path,
) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, asking_model(), mcp={"forms": server}) as gateway,
    ):
        response_id = await start(gateway)
        question = await wait_question(gateway, response_id)
        path = f"/v1/responses/{response_id}/elicitations/{question['id']}"
        for body, param in (
            ({"action": "accept", "content": {"name": 7}}, "content.name"),
            ({"action": "accept"}, "content"),
            ({"action": "accept", "content": ["Ada"]}, "content"),
            ({"action": "decline", "content": {"name": "Ada"}}, "content"),
            ({"action": "perhaps"}, "action"),
            ({"content": {"name": "Ada"}}, "action"),
            ({"action": "decline", "reason": "no"}, "reason"),
        ):
            status, refused = await gateway.send("POST", path, body)
            assert (status, refused["error"]["param"]) == (400, param), (body, refused)
            assert await wait_question(gateway, response_id) == question
        assert (await answer(gateway, question, "accept", name="Ada"))[0] == 200
        assert (await wait_ended(gateway, response_id))["status"] == "completed"
        assert tool_output(gateway)["content"] == {"name": "Ada"}


@pytest.mark.proves("D-20")
@async_test
async def test_a_question_is_answered_once(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, asking_model(), mcp={"forms": server}) as gateway,
    ):
        response_id = await start(gateway)
        question = await wait_question(gateway, response_id)
        names = [f"Ada {number}" for number in range(8)]
        statuses = [
            status
            for status, _ in await asyncio.gather(*(answer(gateway, question, "accept", name=name) for name in names))
        ]
        assert statuses.count(200) == 1
        assert set(statuses) <= {200, 404, 409}
        await wait_ended(gateway, response_id)
        assert tool_output(gateway)["content"] == {"name": names[statuses.index(200)]}
        status, gone = await answer(gateway, question, "accept", name="Eve")
        assert (status, gone["error"]["code"]) == (404, "not_found")


@pytest.mark.proves("D-20")
@async_test
async def test_another_caller_neither_sees_nor_answers_a_question(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, asking_model(), mcp={"forms": server}, keys=(ALICE, BOB)) as gateway,
    ):
        response_id = await start(gateway, key=ALICE)
        question = await wait_question(gateway, response_id, key=ALICE)
        status, said = await gateway.send("GET", f"/v1/responses/{response_id}/elicitations", key=BOB)
        unknown = await gateway.send("GET", "/v1/responses/resp_none/elicitations", key=BOB)
        assert (status, said["error"]["code"]) == (404, "not_found")
        assert said["error"]["message"].replace(response_id, "resp_none") == unknown[1]["error"]["message"]
        assert (await answer(gateway, question, "accept", key=BOB, name="Eve"))[0] == 404
        assert (await answer(gateway, question, "accept", key=ALICE, name="Ada"))[0] == 200
        await wait_ended(gateway, response_id, key=ALICE)
        assert tool_output(gateway)["content"] == {"name": "Ada"}


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_question_ends_with_its_run(tmp_path: Path, era: Era) -> None:
    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, asking_model(), mcp={"forms": server}) as gateway,
    ):
        response_id = await start(gateway)
        question = await wait_question(gateway, response_id)
        status, cancelled = await gateway.send("POST", f"/v1/responses/{response_id}/cancel", {})
        assert (status, cancelled["status"]) == (200, "cancelled")
        listed = await gateway.send("GET", f"/v1/responses/{response_id}/elicitations")
        assert listed == (200, {"object": "list", "data": []})
        assert (await answer(gateway, question, "accept", name="Ada"))[0] == 404
        while await gateway.service.store.elicitations.list_elicitations(response_id, "local"):
            pass


@pytest.mark.proves("D-20")
@async_test
async def test_an_answer_at_the_gateway_that_asks_does_not_wait_for_a_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitations, "ANSWER_POLL", 600.0)
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, asking_model(), mcp={"forms": server}) as gateway,
    ):
        response_id = await start(gateway)
        await answer(gateway, await wait_question(gateway, response_id), "accept", name="Ada")
        assert (await wait_ended(gateway, response_id))["status"] == "completed"


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_the_person_is_asked_to_visit_a_web_page_and_no_other_place(tmp_path: Path, era: Era) -> None:
    model = ScriptedModel(
        call("ask_elicitation", url="https://example.com/sign-in"),
        call("ask_elicitation", url="javascript:alert(1)"),
        say("Done."),
    )
    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, model, mcp={"forms": server}) as gateway,
    ):
        response_id = await start(gateway)
        question = await wait_question(gateway, response_id)
        assert (question["mode"], question["url"]) == ("url", "https://example.com/sign-in")
        assert "requested_schema" not in question
        assert (await answer(gateway, question, "accept", name="Ada"))[0] == 400
        assert (await answer(gateway, question, "accept"))[0] == 200
        await wait_ended(gateway, response_id)
        outputs = [each["content"] for each in gateway.model_requests[-1]["messages"] if each["role"] == "tool"]
        assert [json.loads(output) for output in outputs] == [{"action": "accept"}, {"action": "decline"}]


def _repeat_output(received: Any) -> Any:
    messages = received.json["messages"]
    if messages[-1]["role"] == "tool":
        return say(messages[-1]["content"])
    return call("slow", seconds=600) if messages[-1]["content"] == "slowly" else call("ask_elicitation")


@pytest.mark.proves("D-20")
@async_test
async def test_a_question_that_could_be_of_two_runs_is_declined_and_the_model_is_told(tmp_path: Path) -> None:
    async with FaultyMCPServer(era="legacy") as server:
        entry = {
            "name": "forms",
            "type": "mcp",
            "description": "Forms.",
            "transport": "sse",
            "url": server.url_for("sse"),
        }
        async with run_gateway(tmp_path, ScriptedModel(_repeat_output), mcp_servers=[entry]) as gateway:
            slow = await start(gateway, input="slowly")
            await server.received("tools/call", name="slow")
            ended = await wait_ended(gateway, await start(gateway))
            text = ended["output"][-1]["content"][0]["text"]
            assert '{"action": "decline"}' in text
            assert "Nobody was asked" in text
            await gateway.send("POST", f"/v1/responses/{slow}/cancel", {})


@pytest.mark.proves("D-20")
@async_test
async def test_questions_of_many_runs_at_one_legacy_session_are_each_put_to_their_own(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer(era="legacy") as server,
        run_gateway(tmp_path, ScriptedModel(_repeat_output), mcp={"forms": server}) as gateway,
    ):
        runs = [await start(gateway) for _ in range(10)]
        questions = [await wait_question(gateway, run) for run in runs]
        for number, question in enumerate(questions):
            assert (await answer(gateway, question, "accept", name=f"Ada {number}"))[0] == 200
        ended = [await wait_ended(gateway, run) for run in runs]
    assert len({request.headers["mcp-session-id"] for request in server.calls("ask_elicitation")}) == 1
    texts = [each["output"][-1]["content"][0]["text"] for each in ended]
    assert [json.loads(text)["content"]["name"] for text in texts] == [f"Ada {number}" for number in range(10)]


@pytest.mark.proves("D-20")
@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_a_server_that_the_request_declares_by_its_url_asks_too(tmp_path: Path, era: Era) -> None:
    rules = {"allow": True, "allow_private_hosts": ["127.0.0.0/8"], "allow_insecure_hosts": ["127.0.0.1"]}
    async with (
        FaultyMCPServer(era=era) as server,
        run_gateway(tmp_path, asking_model(), request_servers=rules) as gateway,
    ):
        tool = {"type": "mcp", "server_label": "mine", "server_url": server.url, "require_approval": "never"}
        response_id = await start(gateway, tools=[tool])
        question = await wait_question(gateway, response_id)
        assert question["server_label"] == "mine"
        assert (await answer(gateway, question, "accept", name="Ada"))[0] == 200
        await wait_ended(gateway, response_id)
        assert tool_output(gateway)["content"] == {"name": "Ada"}


@pytest.mark.proves("D-20")
@async_test
async def test_a_response_that_is_not_stored_cannot_ask(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        body = {"model": "demo", "input": "Hello", "store": False, "elicitation": "ask"}
        status, refused = await gateway.send("POST", "/v1/responses", body)
        assert (status, refused["error"]["param"]) == (400, "elicitation")
        assert "found by the id of a stored response" in refused["error"]["message"]
        status, refused = await gateway.send("POST", "/v1/responses", {**body, "elicitation": "maybe"})
        assert (status, refused["error"]["param"]) == (400, "elicitation")


@pytest.mark.proves("D-20")
@async_test
async def test_the_audit_log_says_who_answered_and_not_what(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        audit = {"file": "audit.jsonl", "values": True}
        async with run_gateway(tmp_path, asking_model(), mcp={"forms": server}, keys=(ALICE,), audit=audit) as gateway:
            response_id = await start(gateway, key=ALICE)
            question = await wait_question(gateway, response_id, key=ALICE)
            await answer(gateway, question, "accept", key=ALICE, name="a secret of Ada")
            await wait_ended(gateway, response_id, key=ALICE)
    (called, answered) = read_audit(tmp_path, "tool_call", "elicitation_answered")
    assert answered["decision"] == "accept"
    assert answered["decided_by"] == answered["caller"] == called["caller"]
    assert (answered["server"], answered["response_id"]) == ("forms", response_id)
    assert answered["call_id"] == called["call_id"]
    assert "a secret of Ada" not in json.dumps(answered)
