"""Every rule of a call holds by every door: of a model at each API, of an MCP client, and of an agent by itself.

The rules are listed once, and all of them are tried at one gateway and at one agent. The server behind must see no call
that a rule stops, and the audit log has each call, the same by every door.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mcp
import orjson
import pytest
from agent_of_file import load_runner
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.mcp_endpoint.raw_client import build_request, raw_client
from gateway.mcp_endpoint.sdk_client import connect
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.agents.agent import Agent
from holodeck.models.items import FunctionCallOutput, Message
from holodeck.models.model_io import ModelRequest
from holodeck.models.tool import MCPTool
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.lock.current_lock import build_current_lock
from holodeck.tools.mcp.lock.drift import LockedEntry
from holodeck.tools.mcp.lock.lock_file import LockFile, write_lock
from holodeck.tools.mcp.names import full_name

KEY = "hd-caller"
ARGUMENTS = {"a": 1, "b": 2}
RESOURCE, TEMPLATE, PROMPT = "test://notes.txt", "test://pages/{topic}/{page}", "review"


@dataclass(frozen=True)
class Rule:
    """One rule: the server whose definition has it, and the call that it stops."""

    server: str = "free"
    key: str = KEY
    tool: str = "add"
    arguments: dict[str, Any] = field(default_factory=lambda: ARGUMENTS)
    code: str = "unknown_tool"
    """The reason in the audit log."""
    said: str = "Unknown tool: "
    """A part of what an MCP client is told."""


SERVERS: dict[str, dict[str, Any]] = {
    "free": {"load_prompts": True},
    "others": {"allowed_tools": ["echo"]},
    "denied": {"denied_tools": ["add"]},
    "asks": {"approval": "always"},
    "drifted": {},
    "unlisted": {},
    "off": {"enabled": False},
}
ONE_TOOL, OTHER_SERVER = "hd-one-tool", "hd-other-server"
LIMITED: dict[str, dict[str, Any]] = {
    KEY: {},
    ONE_TOOL: {"tools": ["free.echo"], "agents": []},
    OTHER_SERVER: {"servers": ["nowhere"]},
}
RULES = {
    "there is no such tool": Rule(tool="nothing"),
    "a tool that is not among the allowed": Rule(server="others"),
    "a tool that is denied": Rule(server="denied"),
    "a tool that needs approval": Rule(server="asks", code="approval_needed", said="needs a person's approval"),
    "a tool that differs from the lock": Rule(server="drifted"),
    "a tool that is not in the lock": Rule(server="unlisted"),
    "a tool out of the scope of the key": Rule(key=ONE_TOOL),
    "a server out of the scope of the key": Rule(key=OTHER_SERVER),
    "a server that is switched off": Rule(server="off"),
    "arguments that do not fit the schema": Rule(
        arguments={"a": 1}, code="invalid_arguments", said="The arguments do not fit the tool"
    ),
}
# By what an MCP client asks for, the reason for which it does not get it; empty: it does. The audit log has the target.
METHODS: dict[tuple[str, str], list[tuple[dict[str, Any], str, str]]] = {
    ("/mcp/free", "resources/read"): [({"uri": RESOURCE}, "", "free.read_resource")],
    ("/mcp/asks", "resources/read"): [({"uri": RESOURCE}, "approval_needed", "asks.read_resource")],
    ("/mcp/free", "prompts/get"): [
        ({"name": PROMPT, "arguments": {"code": "x"}}, "", "free.get_prompt:review"),
        ({"name": "nothing"}, "unknown_tool", "unknown"),
    ],
    ("/mcp", "tools/call"): [
        ({"name": "ask_clerk", "arguments": {"question": "Who?"}}, "", "ask_agent:clerk"),
        ({"name": "ask_clerk", "arguments": {}}, "invalid_arguments", "ask_agent:clerk"),
        ({"name": "ask_nobody", "arguments": {}}, "unknown_tool", "unknown"),
    ],
}
DOORS = ("responses", "chat_completions", "messages", "mcp")


def _answer_as_asked(received: Any) -> Any:
    """The turn of a model that makes the call which its question is, and then has nothing more to say."""
    message = received.json["messages"][-1]
    if message["role"] == "tool":
        return say("Then not.")
    name, arguments = orjson.loads(message["content"])
    return call(name, **arguments)


async def _call(gateway: RunningGateway, door: str, rule: Rule) -> str:
    """Make the call of a rule by one of the doors; what an MCP client is told."""
    # Of two servers with a tool of one name, the first has it.
    name = rule.tool if rule.server == "free" else full_name(rule.server, rule.tool)
    if door == "mcp":
        has_address = rule.key == KEY and rule.server != "off"
        async with raw_client(gateway, key=rule.key, path=f"/mcp/{rule.server}" if has_address else "/mcp") as client:
            await client.initialize()
            sent = {"name": rule.tool if has_address else name, "arguments": rule.arguments}
            answer = await client.request("tools/call", sent)
            return str(answer["message"] if "message" in answer else answer["content"][0]["text"])
    messages = [{"role": "user", "content": orjson.dumps([name, rule.arguments]).decode()}]
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "responses": ("/v1/responses", {"input": messages[0]["content"]}),
        "chat_completions": ("/v1/chat/completions", {"messages": messages}),
        "messages": ("/v1/messages", {"messages": messages, "max_tokens": 100}),
    }
    path, body = requests[door]
    status, said = await gateway.send("POST", path, {"model": MODEL, **body}, key=rule.key)
    assert status == 200, said
    return ""


def _define(name: str, server: FaultyMCPServer) -> dict[str, Any]:
    return {"name": name, "type": "mcp", "transport": "http", "url": server.url, **SERVERS[name]}


async def _write_lock(file: Path, server: FaultyMCPServer) -> None:
    """Accept what the server lists for all definitions in a file, but not the tool of the two that differ."""
    async with create_mcp_plugin(MCPTool.model_validate(_define("free", server))) as plugin:
        accepted = await build_current_lock(plugin)
    drifted = replace(accepted, tools={**accepted.tools, "add": LockedEntry(values={"description": "Other."})})
    unlisted = replace(accepted, tools={key: tool for key, tool in accepted.tools.items() if key != "add"})
    locks = {**dict.fromkeys(SERVERS, accepted), "drifted": drifted, "unlisted": unlisted}
    write_lock(file.parent, LockFile(files={file.name: locks}))


@asynccontextmanager
async def _guarded_gateway(folder: Path) -> AsyncIterator[tuple[RunningGateway, FaultyMCPServer]]:
    """A gateway with all rules: one server behind, under the name of each rule, and an agent."""
    async with FaultyMCPServer() as server, ScriptedModel(lambda _: say("I.")).serve() as scripted:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        (folder / "clerk.yaml").write_bytes(orjson.dumps({"name": "clerk", "description": "Knows.", "model": llm}))
        await _write_lock(folder / "gateway.yaml", server)
        entries = [_define(name, server) for name in SERVERS]
        async with run_gateway(
            folder,
            ScriptedModel(_answer_as_asked),
            mcp_servers=entries,
            agents=[{"file": "clerk.yaml"}],
            scopes=LIMITED,
            audit={"file": AUDIT_FILE},
        ) as gateway:
            yield gateway, server


@pytest.mark.proves("D-38", "D-39")
@async_test(120)
async def test_every_rule_of_a_call_holds_by_every_door_and_is_recorded_the_same(tmp_path: Path) -> None:
    async with _guarded_gateway(tmp_path) as (gateway, server):
        for name, rule in RULES.items():
            for door in DOORS:
                before = len(read_audit(tmp_path, "tool_call"))
                said = await _call(gateway, door, rule)
                assert server.calls() == [], (name, door)
                assert door != "mcp" or rule.said in said, name
                (entry,) = read_audit(tmp_path, "tool_call")[before:]
                recorded = (entry["door"], entry["caller"], entry["outcome"], entry["error_code"])
                assert recorded == (door, f"key:{rule.key}", "refused", rule.code), name
                assert entry["tool"] == ("unknown" if rule.code == "unknown_tool" else "add"), name
        assert read_audit(tmp_path, "tool_result") == []
        for number, door in enumerate(DOORS, start=1):
            await _call(gateway, door, Rule())
            assert len(server.calls("add")) == number
            made, ended = read_audit(tmp_path, "tool_call", "tool_result")[-2:]
            assert (made["door"], made["caller"], made["server"], made["tool"]) == (door, f"key:{KEY}", "free", "add")
            assert (made["event"], ended["outcome"], ended["call_id"]) == ("tool_call", "ok", made["call_id"])
        _, report = await gateway.send("GET", "/v1/usage?group_by=server,tool", key=KEY)
        counted = {(row["server"], row["tool"]): row["tool_calls"] for row in report["data"]}
        assert counted["free", "add"] == len(DOORS) + 1, (
            "with the refused call of the MCP client that had wrong arguments"
        )
    assert orjson.dumps(ARGUMENTS) not in (tmp_path / AUDIT_FILE).read_bytes()


@pytest.mark.proves("D-35", "D-38")
@async_test(120)
async def test_every_rule_of_a_call_holds_for_an_agent_in_a_terminal_and_in_python(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"

    def answer(request: ModelRequest) -> Any:
        last = request.items[-1]
        if isinstance(last, FunctionCallOutput):
            return say("refused" if last.is_error else "done")
        name, arguments = orjson.loads(last.text if isinstance(last, Message) else "")
        return call(name, **arguments)

    async with FaultyMCPServer() as server:
        await _write_lock(file, server)
        definitions = [{"description": "d", **_define(name, server)} for name in SERVERS]
        file.write_bytes(orjson.dumps({"name": "agent", "tools": definitions}))
        model = ScriptedModel(answer)
        async with (
            load_runner(file, model=model, environ={}, home=tmp_path) as runner,
            Agent.from_file(file, model=model, environ={}, home=tmp_path) as agent,
        ):
            for name, rule in {**RULES, "none": Rule()}.items():
                if rule.key != KEY:
                    continue
                tool = rule.tool if rule.server == "free" else full_name(rule.server, rule.tool)
                question = orjson.dumps([tool, rule.arguments]).decode()
                said = [(await runner.run(question)).text, (await agent.run(question)).text]
                assert said == (["done"] * 2 if name == "none" else ["refused"] * 2), name
                assert len(server.calls()) == (2 if name == "none" else 0), name


@pytest.mark.proves("D-38")
@async_test(60)
async def test_resources_prompts_and_agents_pass_the_rules_of_tools(tmp_path: Path) -> None:
    async with _guarded_gateway(tmp_path) as (gateway, _):
        for (path, method), cases in METHODS.items():
            for key in (KEY, ONE_TOOL):
                async with raw_client(gateway, key=key, path=path) as client:
                    if (await client.send(build_request("ping")))[0] == 404:
                        continue
                    await client.initialize()
                    for params, code, target in cases:
                        before = len(read_audit(tmp_path))
                        answer = await client.request(method, params)
                        entry, *ended = read_audit(tmp_path)[before:]
                        reason, what = (code, target) if key == KEY else ("unknown_tool", "unknown")
                        assert ("code" in answer or answer.get("isError") is True) is bool(reason), (method, params)
                        assert ".".join(filter(None, (entry.get("server"), entry["tool"]))) == what
                        assert entry.get("error_code", "") == reason
                        assert [each["outcome"] for each in ended] == ([] if reason else ["ok"])


@pytest.mark.proves("D-38")
@async_test
async def test_a_client_gets_no_prompt_resource_template_or_instructions_that_differ_from_the_lock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = LockedEntry(values={"description": "Another text."})
    async with FaultyMCPServer() as server:
        entry = {"name": "sums", "transport": "http", "url": server.url, "load_prompts": True}
        async with create_mcp_plugin(MCPTool.model_validate({**entry, "type": "mcp"})) as plugin:
            accepted = await build_current_lock(plugin)
        changed, kept = list(accepted.prompts)[:2]
        uri = next(iter(accepted.resources))
        lock = replace(
            accepted,
            prompts={**accepted.prompts, changed: other},
            resources={**accepted.resources, uri: other},
            templates={},
            instructions=other,
        )
        write_lock(tmp_path, LockFile(files={"gateway.yaml": {"sums": lock}}))
        async with (
            run_gateway(tmp_path, ScriptedModel(), mcp_servers=[entry], admins=[KEY]) as gateway,
            connect(gateway, key=KEY) as client,
        ):
            prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
            assert (changed in prompts, kept in prompts) == (False, True)
            assert uri not in {str(resource.uri) for resource in (await client.list_resources()).resources}
            assert (await client.list_resource_templates()).resource_templates == [], "none of them was accepted"
            with pytest.raises(mcp.MCPError, match="Unknown prompt"):
                await client.get_prompt(changed)
            for unseen in (uri, uri.replace("test:", "TEST:"), "Test://pages/a/1"):
                with pytest.raises(mcp.MCPError, match=r"is not as holodeck\.lock has it"):
                    await client.read_resource(unseen)
            assert (await client.read_resource(next(each for each in accepted.resources if each != uri))).contents
            _, listed = await gateway.send("GET", "/v1/mcp/servers", key=KEY)
    (resource,) = listed["data"]
    assert resource["description"] is None, "the instructions of the server are not passed on"
    withheld = " ".join(resource["warnings"])
    for text in (f"prompt '{changed}'", f"resource '{uri}'", "The template '", "instructions", "Another text."):
        assert text in withheld
    assert "mcp.withheld server=sums reason=" in caplog.text


RESOURCE_METHODS: dict[str, dict[str, Any]] = {
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": RESOURCE},
    "resources/subscribe": {"uri": RESOURCE},
    "completion/complete": {
        "ref": {"type": "ref/resource", "uri": TEMPLATE},
        "argument": {"name": "topic", "value": ""},
    },
}
PROMPT_METHODS: dict[str, dict[str, Any]] = {
    "prompts/list": {},
    "prompts/get": {"name": PROMPT, "arguments": {"code": "x"}},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": PROMPT}, "argument": {"name": "code", "value": ""}},
}
# By scope: whether its caller may read resources, and use prompts, of the server `docs`.
SCOPES: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "hd-all": ({}, True, True),
    "hd-one-tool": ({"tools": ["docs.echo"]}, False, False),
    "hd-reads": ({"tools": ["docs.read_resource"]}, True, False),
    "hd-all-tools": ({"tools": ["docs.*"]}, True, False),
    "hd-not-echo": ({"tools": ["!docs.echo"]}, True, True),
    "hd-reads-not": ({"tools": ["!docs.read_resource"]}, False, True),
    "hd-prompts": ({"tools": [], "prompts": ["docs.rev*"]}, False, True),
    "hd-other-prompts": ({"prompts": ["docs.greet"]}, True, False),
    "hd-no-prompts": ({"prompts": ["!docs.*"]}, True, False),
    "hd-other-server": ({"tools": ["other.*"], "prompts": ["other.*"]}, False, False),
}


@pytest.mark.proves("D-38", "D-39")
@async_test(120)
async def test_resources_and_prompts_out_of_scope_are_not_there_by_any_door(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: say("Done."))
    async with FaultyMCPServer() as docs:
        entry = {"name": "docs", "transport": "http", "url": docs.url, "load_resources": True}
        scopes = {key: scope for key, (scope, _, _) in SCOPES.items()}
        async with run_gateway(tmp_path, model, mcp_servers=[entry], scopes=scopes) as gateway:
            found = {key: await _find_features(gateway, key) for key in SCOPES}
    for key, (scope, reads, has_prompts) in SCOPES.items():
        has_server = key != "hd-other-server"
        doors = ("/mcp", "/mcp/docs") if has_server else ("/mcp",)
        expected = {(door, "resources", method): reads for door in doors for method in RESOURCE_METHODS}
        expected |= {(door, "prompts", method): has_prompts for door in doors for method in PROMPT_METHODS}
        assert found[key] == {**expected, ("/v1/responses", "resources", "read_resource"): reads}, scope


async def _find_features(gateway: RunningGateway, key: str) -> dict[tuple[str, str, str], bool]:
    """Whether a caller finds the resource and the prompt, by door, kind and method."""
    found: dict[tuple[str, str, str], bool] = {}
    for door in ("/mcp", "/mcp/docs"):
        async with raw_client(gateway, key=key, path=door) as client:
            if (await client.send(build_request("ping")))[0] == 404:
                continue
            await client.initialize()
            for kind, methods in (("resources", RESOURCE_METHODS), ("prompts", PROMPT_METHODS)):
                for method, params in methods.items():
                    found[door, kind, method] = _has_feature(method, await client.request(method, params))
    await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key=key)
    offered = orjson.dumps(gateway.model_requests[-1].get("tools", ())).decode()
    found["/v1/responses", "resources", "read_resource"] = RESOURCE in offered
    return found


def _has_feature(method: str, answer: dict[str, Any]) -> bool:
    if method.endswith("/list"):
        (entries,) = (value for value in answer.values() if isinstance(value, list))
        own = {entry.get("uri") or entry.get("uriTemplate") or entry["name"] for entry in entries}
        return bool(own & {RESOURCE, TEMPLATE, PROMPT})
    return "code" not in answer


@pytest.mark.proves("D-38", "D-39")
@async_test(60)
async def test_a_link_of_a_result_can_be_read_by_its_caller_within_its_scope(tmp_path: Path) -> None:
    uri = "test://far.pdf"
    scopes: dict[str, dict[str, Any]] = {
        "hd-ada": {"tools": ["docs.resource_link"]},
        "hd-eve": {"tools": ["docs.resource_link"]},
        "hd-denied": {"tools": ["docs.resource_link", "!docs.read_resource"]},
    }
    async with FaultyMCPServer() as docs, run_gateway(tmp_path, mcp={"docs": docs}, scopes=scopes) as gateway:
        for key, calls, can_read in (("hd-ada", True, True), ("hd-eve", False, False), ("hd-denied", True, False)):
            async with raw_client(gateway, key=key) as client:
                await client.initialize()
                if calls:
                    result = await client.request("tools/call", {"name": "resource_link", "arguments": {}})
                    assert result["content"][0]["uri"] == uri
                read = await client.request("resources/read", {"uri": uri})
                assert ("contents" in read) is can_read, key
                other = await client.request("resources/read", {"uri": RESOURCE})
                assert other["message"] == f"Resource not found: {RESOURCE}", "only what it was sent a link to"
