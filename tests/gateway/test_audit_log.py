"""The audit log of a gateway has every tool call, before it is made and with its outcome, by whichever API it came."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import orjson
import pytest
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit, without_changing_fields
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.mcp_endpoint.sdk_client import connect
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.all_endpoints import list_routes
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

AUDIT = {"file": AUDIT_FILE}
KEY = "hd-alice-0123456789"
OPS = "hd-ops-0123456789"
CANARY = "canary-of-an-argument-4711"
DOORS = ("responses", "chat_completions", "messages")


async def ask(gateway: RunningGateway, door: str, *, key: str = KEY) -> Any:
    """One question by one of the APIs."""
    messages = [{"role": "user", "content": "Go"}]
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "responses": ("/v1/responses", {"input": "Go"}),
        "chat_completions": ("/v1/chat/completions", {"messages": messages}),
        "messages": ("/v1/messages", {"messages": messages, "max_tokens": 100}),
    }
    path, body = requests[door]
    status, answer = await gateway.send("POST", path, {"model": MODEL, **body}, key=key)
    assert status == 200, answer
    return answer


@async_test(60)
async def test_every_api_writes_the_same_entries_for_the_same_call(tmp_path: Path) -> None:
    model = ScriptedModel(*(step for _ in DOORS for step in (call("add", a=1, b=2), say("3."))))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[KEY], audit=AUDIT) as gateway,
    ):
        ids = [(await ask(gateway, door))["id"] for door in DOORS]
        entries = read_audit(tmp_path, "tool_call", "tool_result")
    assert [entry["door"] for entry in entries] == [door for door in DOORS for _ in range(2)]
    assert [entry["response_id"] for entry in entries] == [response_id for response_id in ids for _ in range(2)]
    about = {"caller": f"key:{KEY}", "model": MODEL, "server": "sums", "tool": "add"}
    digest = hashlib.sha256(b'{"a":1,"b":2}').hexdigest()
    for made, ended in zip(entries[::2], entries[1::2], strict=True):
        assert without_changing_fields(made) == {
            "event": "tool_call",
            **about,
            "arguments_sha256": digest,
            "decision": "not_needed",
        }
        assert without_changing_fields(ended) == {"event": "tool_result", **about, "outcome": "ok"}
        assert made["call_id"] == ended["call_id"]
        assert made["request_id"].startswith("req_")
        assert ended["duration_ms"] >= 0


@async_test(60)
async def test_the_entry_of_a_call_is_written_before_the_call_is_made(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, keys=[KEY], audit=AUDIT) as gateway,
    ):
        events = gateway.stream("/v1/responses", {"model": MODEL, "input": "Go", "stream": True}, key=KEY)
        asking = asyncio.create_task(events)
        await server.received("tools/call")
        assert [entry["tool"] for entry in read_audit(tmp_path, "tool_call")] == ["slow"]
        assert not read_audit(tmp_path, "tool_result")
        asking.cancel()
        await asyncio.wait({asking})
    (ended,) = read_audit(tmp_path, "tool_result")
    assert (ended["outcome"], ended["error_code"]) == ("unknown", "cancelled")
    assert [entry["event"] for entry in read_audit(tmp_path)][-1] == "stop"


@async_test(60)
async def test_failed_and_refused_calls_say_how_they_ended(tmp_path: Path) -> None:
    calls = [call("fail"), call("add", a="x", b=[]), call("invented_tool", secret=CANARY), call("echo", text="hi")]
    model = ScriptedModel(calls, say("Done."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, audit=AUDIT) as gateway,
    ):
        await ask(gateway, "responses")
    calls_by_tool = {entry["tool"]: entry for entry in read_audit(tmp_path, "tool_call")}
    assert {tool: entry["decision"] for tool, entry in calls_by_tool.items()} == {
        "fail": "not_needed",
        "add": "refused",
        "unknown": "refused",
        "echo": "not_needed",
    }
    for tool, code in (("add", "invalid_arguments"), ("unknown", "unknown_tool")):
        entry = calls_by_tool[tool]
        assert (entry["decided_by"], entry["outcome"], entry["error_code"]) == ("rule", "refused", code)
    outcomes = {entry["tool"]: entry["outcome"] for entry in read_audit(tmp_path, "tool_result")}
    assert outcomes == {"fail": "tool_error", "echo": "ok"}
    assert "invented_tool" not in (tmp_path / AUDIT_FILE).read_text()


@pytest.mark.parametrize(("approve", "decision"), [(True, "approved"), (False, "refused")])
@async_test(60)
async def test_an_approval_is_recorded_when_it_is_asked_for_and_when_it_is_decided(
    tmp_path: Path, approve: bool, decision: str
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Done."))
    tools = [{"type": "mcp", "server_label": "sums", "require_approval": "always"}]
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"sums": server}, keys=[KEY], audit=AUDIT) as gateway,
    ):
        body = {"model": MODEL, "input": "Go", "tools": tools}
        _, first = await gateway.send("POST", "/v1/responses", body, key=KEY)
        assert [entry["event"] for entry in read_audit(tmp_path)] == ["start", "approval_requested"]
        answer = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": approve}
        body |= {"input": [answer], "previous_response_id": first["id"]}
        _, second = await gateway.send("POST", "/v1/responses", body, key=KEY)
    asked, decided, *made = read_audit(tmp_path, "approval_requested", "approval_decided", "tool_call", "tool_result")
    assert (asked["event"], asked["decision"], asked["response_id"]) == ("approval_requested", "asked", first["id"])
    assert (decided["event"], decided["decision"]) == ("approval_decided", decision)
    assert (decided["decided_by"], decided["response_id"]) == (f"key:{KEY}", second["id"])
    expected = [("tool_call", "approved", f"key:{KEY}"), ("tool_result", None, None)] if approve else []
    assert [(entry["event"], entry.get("decision"), entry.get("decided_by")) for entry in made] == expected
    entries = [asked, decided, *made]
    assert len({entry["call_id"] for entry in entries}) == 1
    assert {(entry["server"], entry["tool"]) for entry in entries} == {("sums", "add")}
    assert len({entry["arguments_sha256"] for entry in entries if "arguments_sha256" in entry}) == 1
    assert len(server.calls()) == approve


@async_test(60)
async def test_a_call_that_needs_an_approval_which_the_client_cannot_give_is_refused_by_rule(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Then not."))
    async with FaultyMCPServer() as server:
        tool = {"name": "sums", "type": "mcp", "description": "d", "transport": "http", "url": server.url}
        servers = [tool | {"approval": "always"}]
        async with run_gateway(tmp_path, model, mcp_servers=servers, audit=AUDIT) as gateway:
            await ask(gateway, "chat_completions")
        assert not server.calls()
    (refused,) = read_audit(tmp_path, "tool_call", "tool_result")
    assert (refused["decision"], refused["decided_by"]) == ("refused", "rule")
    assert (refused["outcome"], refused["error_code"]) == ("refused", "approval_needed")
    assert (refused["server"], refused["tool"]) == ("sums", "add")


@async_test(60)
async def test_no_argument_and_no_result_is_in_the_file(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text=CANARY), say("Done."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, audit=AUDIT) as gateway,
    ):
        await ask(gateway, "responses")
    assert len(read_audit(tmp_path, "tool_call", "tool_result")) == 2
    assert CANARY not in (tmp_path / AUDIT_FILE).read_text()


@async_test(60)
async def test_values_are_written_on_request_cut_and_without_secrets(tmp_path: Path) -> None:
    secret = "s3cr3t-of-the-operator-0815"
    long = "x" * 20_000
    model = ScriptedModel([call("echo", text=f"{CANARY} {secret}"), call("echo", text=long)], say("Done."))
    async with FaultyMCPServer() as server:
        tool = {"name": "tools", "type": "mcp", "description": "d", "transport": "http", "url": server.url}
        servers = [tool | {"headers": {"X-Api-Key": "${TOOLS_KEY}"}}]
        environ = {"TOOLS_KEY": secret}
        audit = AUDIT | {"values": True}
        async with run_gateway(tmp_path, model, mcp_servers=servers, environ=environ, audit=audit) as gateway:
            await ask(gateway, "responses")
    by_size = sorted(read_audit(tmp_path, "tool_call"), key=lambda entry: len(entry["arguments"]))
    assert orjson.loads(by_size[0]["arguments"]) == {"text": f"{CANARY} ***"}
    assert by_size[1]["arguments"].endswith("... (cut: 20011 characters)")
    results = [entry["result"] for entry in read_audit(tmp_path, "tool_result")]
    assert any(CANARY in result for result in results)
    assert max(map(len, results)) < 17_000
    assert secret not in (tmp_path / AUDIT_FILE).read_text()


@async_test(60)
async def test_refused_credentials_are_recorded_and_a_flood_of_them_is_one_entry(tmp_path: Path) -> None:
    wrong, attempts = "hd-wrong-0123456789", 20
    async with run_gateway(tmp_path, keys=[KEY], audit=AUDIT) as gateway:
        for _ in range(attempts):
            assert (await gateway.send("POST", "/v1/chat/completions", {}, key=wrong))[0] == 401
        assert (await gateway.send("POST", "/v1/mcp/servers/x/refresh", key=KEY))[0] == 403
    entries = read_audit(tmp_path, "auth_refused")
    assert sum(entry["count"] for entry in entries) == attempts + 1
    assert len(entries) < attempts
    first = entries[0]
    assert (first["door"], first["error_code"], first["address"]) == (
        "chat_completions",
        "invalid_api_key",
        "127.0.0.1",
    )
    assert wrong not in (tmp_path / AUDIT_FILE).read_text()


@async_test(60)
async def test_refused_credentials_at_the_address_of_one_mcp_server_are_of_the_mcp_door(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=[KEY], audit=AUDIT) as gateway:
        assert (await gateway.send("POST", "/mcp/files", {}, key="hd-wrong-0123456789"))[0] == 401
    assert [entry["door"] for entry in read_audit(tmp_path, "auth_refused")] == ["mcp"]


@async_test(60)
async def test_a_python_function_of_an_agent_is_recorded_without_a_server(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def greets(name: str) -> str:\n    return f'hello {name}'\n")
    async with ScriptedModel(call("greets", name=CANARY), say("Done.")).serve() as scripted:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        tool = {"type": "function", "name": "greets", "description": "Greets.", "file": "mine.py", "function": "greets"}
        (tmp_path / "agent.yaml").write_bytes(orjson.dumps({"name": "helper", "model": llm, "tools": [tool]}))
        file = write_gateway_file(tmp_path, scripted.url, agents=[{"file": "agent.yaml"}], audit=AUDIT)
        async with run_gateway_process(file) as served:
            assert (await served.create_response(model="helper"))[0] == 200
    made, ended = read_audit(tmp_path, "tool_call", "tool_result")
    assert (made["tool"], "server" in made, made["model"]) == ("greets", False, "helper")
    assert ended["outcome"] == "ok"
    assert CANARY not in (tmp_path / AUDIT_FILE).read_text()


@pytest.mark.parametrize("action", ["accept", "decline"])
@async_test(60)
async def test_the_calls_of_an_agent_that_an_mcp_client_asks_are_recorded_with_its_decision(
    tmp_path: Path, action: Literal["accept", "decline"]
) -> None:
    async def decide(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action=action)

    model = ScriptedModel(call("add", a=1, b=2), say("Done."))
    async with FaultyMCPServer() as server, model.serve() as scripted:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        tool = {"name": "sums", "type": "mcp", "description": "d", "transport": "http", "url": server.url}
        agent = {"name": "clerk", "description": "Adds.", "model": llm, "tools": [tool | {"approval": "always"}]}
        (tmp_path / "clerk.yaml").write_bytes(orjson.dumps(agent))
        async with (
            run_gateway(tmp_path, agents=[{"file": "clerk.yaml"}], audit=AUDIT) as gateway,
            connect(gateway, elicitation_callback=decide) as client,
        ):
            await client.call_tool("ask_clerk", {"question": "Add 1 and 2"})
    asked, made, *ended, answered = read_audit(tmp_path, "tool_call", "tool_result")
    assert (asked["tool"], answered["outcome"]) == ("ask_agent:clerk", "ok")
    assert asked["call_id"] == answered["call_id"]
    assert (made["door"], made["model"], made["server"], made["tool"]) == ("mcp", "clerk", "sums", "add")
    if action == "accept":
        assert (made["decision"], made["decided_by"]) == ("approved", "local")
        assert [entry["outcome"] for entry in ended] == ["ok"]
    else:
        assert (made["decision"], made["decided_by"], ended) == ("refused", "local", [])
        assert made["error_code"] == "approval_declined"


@async_test(60)
async def test_a_resource_that_a_result_links_to_is_recorded_with_its_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("resource_link"), call("read_resource", uri="test://far.pdf"), say("Done."))
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, model, mcp={"tools": server}, audit=AUDIT) as gateway,
    ):
        await ask(gateway, "responses")
    assert [(entry["server"], entry["tool"]) for entry in read_audit(tmp_path, "tool_call")] == [
        ("tools", "resource_link"),
        ("tools", "read_resource"),
    ]
    assert [entry["outcome"] for entry in read_audit(tmp_path, "tool_result")] == ["ok", "ok"]


@async_test(60)
async def test_a_resource_that_a_server_lists_is_recorded_with_its_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("read_resource", uri="test://notes.txt"), say("Done."))
    async with FaultyMCPServer() as server:
        about = {"type": "mcp", "name": "tools", "description": "d", "transport": "http", "url": server.url}
        entry = {**about, "load_resources": True}
        async with run_gateway(tmp_path, model, keys=[KEY], mcp_servers=[entry], audit=AUDIT) as gateway:
            await ask(gateway, "responses")
    (made,) = read_audit(tmp_path, "tool_call")
    assert (made["server"], made["tool"]) == ("tools", "read_resource")


@async_test(60)
async def test_entries_can_be_events_of_the_log_instead_of_a_file(tmp_path: Path) -> None:
    async with FaultyMCPServer() as server, ScriptedModel(call("echo", text=CANARY), say("Done.")).serve() as scripted:
        tool = {"name": "tools", "type": "mcp", "description": "d", "transport": "http", "url": server.url}
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[tool], audit={"logger": True})
        async with run_gateway_process(file, "--log-format", "json") as served:
            assert (await served.create_response())[0] == 200
            served.stop()
            assert await served.wait_exit() == 0
    events = {entry["event"]: entry for line in served.stderr_lines if (entry := orjson.loads(line))}
    assert events["audit.tool_call"]["arguments_sha256"]
    assert events["audit.tool_result"]["outcome"] == "ok"
    assert {"audit.start", "audit.stop"} <= events.keys()
    assert CANARY not in "".join(served.stderr_lines)
    assert not (tmp_path / AUDIT_FILE).exists()


@async_test(60)
async def test_every_request_of_an_operator_leaves_an_entry_unless_its_route_is_a_plain_read(tmp_path: Path) -> None:
    routes = [route for route in list_routes() if route.roles or route.shows_other_callers]
    async with run_gateway(tmp_path, admins=[OPS], keys=[KEY], audit=AUDIT) as gateway:
        for route in routes:
            body = {"name": "nobody"} if route.method == "POST" else None
            path = re.sub(r"\{\w+\}", "nobody", route.path)
            status, _ = await gateway.send(route.method, path, body, key=OPS)
            left = read_audit(tmp_path, "operator_request")
            if route.is_plain_read:
                assert not left or left[-1]["route"] != route.path or left[-1]["method"] != route.method
                continue
            entry = left[-1]
            assert (entry["caller"], entry["method"], entry["route"]) == (f"key:{OPS}", route.method, route.path)
            assert (entry["status"], entry["request_id"][:4]) == (status, "req_")
            assert entry.get("subject") == ("nobody" if "{" in route.path or body else None)
        # A caller's own things, and what is not an operator's, leave none.
        count = len(read_audit(tmp_path, "operator_request"))
        assert (await gateway.send("GET", f"/v1/runs?caller={OPS}", key=OPS))[0] == 200
        assert (await gateway.send("GET", "/v1/usage", key=KEY))[0] == 200
        assert len(read_audit(tmp_path, "operator_request")) == count
    plain = {(route.method, route.path) for route in routes if route.is_plain_read}
    assert plain == {
        ("GET", "/metrics"),
        ("GET", "/v1/callers"),
        ("GET", "/v1/callers/{id}"),
        ("GET", "/v1/config"),
        ("GET", "/v1/groups"),
        ("GET", "/v1/keys"),
        ("GET", "/v1/mcp/servers"),
        ("GET", "/v1/mcp/servers/{name}/login"),
        ("GET", "/v1/mcp/servers/{name}/tools"),
    }


@async_test(60)
async def test_a_change_of_keys_says_what_changed_by_which_request_and_no_secret(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, admins=[OPS], audit=AUDIT) as gateway:
        _, created = await gateway.send("POST", "/v1/keys", {"name": "bob", "role": "operator"}, key=OPS)
        body = {"name": "bob", "role": None, "allow": {"models": [MODEL]}}
        assert (await gateway.send("POST", "/v1/keys/update", body, key=OPS))[0] == 200
        # Its own key: the request is cancelled by what it does, and has its reply and its entry all the same.
        _, own = await gateway.send("POST", "/v1/keys", {"name": "ann", "role": "operator"}, key=OPS)
        status, rotated = await gateway.send("POST", "/v1/keys/rotate", {"name": "ann"}, key=own["key"])
        assert status == 200
        assert (await gateway.send("DELETE", "/v1/keys/bob", key=rotated["key"]))[0] == 200
        assert (await gateway.send("DELETE", f"/v1/keys/{created['key']}", key=rotated["key"]))[0] == 404
        assert not await gateway.reload(models=[])
    entries = read_audit(tmp_path, "operator_request", "reloaded", "reload_refused")
    requests = [entry for entry in entries if entry["event"] == "operator_request"]
    assert [(entry["subject"], entry.get("fields"), entry["status"]) for entry in requests] == [
        ("bob", "role", 200),
        ("bob", "allow.models, role", 200),
        ("ann", "role", 200),
        ("ann", None, 200),
        ("bob", None, 200),
        ("***", None, 404),
    ]
    assert entries[-1]["event"] == "reload_refused"
    assert "models" in entries[-1]["problems"]
    text = (tmp_path / AUDIT_FILE).read_text()
    assert created["key"] not in text
    assert rotated["key"] not in text


@async_test(60)
async def test_an_operator_that_reads_the_run_of_another_leaves_its_owner_and_repeated_reads_one_entry(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(say("Hi."), say("Ho."))
    async with run_gateway(tmp_path, model, admins=[OPS], keys=[KEY], audit=AUDIT) as gateway:
        theirs, own = (await ask(gateway, "responses"))["id"], (await ask(gateway, "responses", key=OPS))["id"]
        for path in (f"/v1/runs/{theirs}/trace", f"/v1/runs/{theirs}/trace", f"/v1/runs/{own}"):
            assert (await gateway.send("GET", path, key=OPS))[0] == 200
    (read,) = read_audit(tmp_path, "operator_request")
    assert (read["caller"], read["subject"], read["owner"]) == (f"key:{OPS}", theirs, f"key:{KEY}")
