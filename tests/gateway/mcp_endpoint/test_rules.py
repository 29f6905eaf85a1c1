"""Every rule that keeps a model from running a tool keeps an MCP client from it, too.

The rules are listed once. Each is tried by both doors: a model that calls the tool by the Responses API, and a client
that calls it at `/mcp`. The server behind must see no call by either of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import mcp
import orjson
import pytest
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, read_audit
from gateway.mcp_endpoint.raw_client import build_request, raw_client
from gateway.mcp_endpoint.sdk_client import connect, text_of
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.models.tool import MCPTool
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.lock.current_lock import build_current_lock
from holodeck.tools.mcp.lock.drift import LockedEntry
from holodeck.tools.mcp.lock.lock_file import LockFile, write_lock

KEY = "hd-caller"
ARGUMENTS = {"a": 1, "b": 2}


@dataclass(frozen=True)
class Rule:
    """One rule: what the gateway file says, and the arguments of the call that it stops."""

    server: dict[str, Any] = field(default_factory=dict)
    scope: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=lambda: ARGUMENTS)
    lock: str = ""
    said: str = "Unknown tool: add"
    """A part of what the client is told."""


RULES = {
    "a tool that is not among the allowed": Rule(server={"allowed_tools": ["echo"]}),
    "a tool that is denied": Rule(server={"denied_tools": ["add"]}),
    "a tool that needs approval": Rule(server={"approval": "always"}, said="needs a person's approval"),
    "a tool that differs from the lock": Rule(
        lock='{"version": 1, "files": {"gateway.yaml": {"sums": {"tools": {"add": {"description": "Other."}}}}}}'
    ),
    "a tool that is not in the lock": Rule(lock='{"version": 1, "files": {"gateway.yaml": {"sums": {"tools": {}}}}}'),
    "a tool out of the scope of the key": Rule(scope={"tools": ["sums.echo"]}),
    "a server out of the scope of the key": Rule(scope={"servers": ["other"]}),
    "a server that is switched off": Rule(server={"enabled": False}),
    "arguments that do not fit the schema": Rule(arguments={"a": 1}, said="The arguments do not fit the tool"),
}
Door = Literal["responses", "mcp"]


def _write_lock(folder: Path, rule: Rule) -> None:
    if rule.lock:
        (folder / "holodeck.lock").write_text(rule.lock)


async def _call(gateway: RunningGateway, door: Door, arguments: dict[str, Any]) -> str:
    """Call the tool by one of the doors; what the client is told."""
    if door == "responses":
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"}, key=KEY)
        return ""
    async with connect(gateway, key=KEY) as client:
        try:
            return text_of(await client.call_tool("add", arguments))
        except mcp.MCPError as error:
            return error.error.message


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("door", ["responses", "mcp"])
@pytest.mark.parametrize("name", RULES)
@async_test
async def test_a_rule_holds_by_every_door(tmp_path: Path, name: str, door: Door) -> None:
    rule = RULES[name]
    _write_lock(tmp_path, rule)
    model = ScriptedModel(call("add", **rule.arguments), say("Then not."))
    async with FaultyMCPServer() as server:
        entry = {"name": "sums", "transport": "http", "url": server.url, **rule.server}
        async with run_gateway(tmp_path, model, mcp_servers=[entry], scopes={KEY: rule.scope}) as gateway:
            said = await _call(gateway, door, rule.arguments)
        assert server.calls("add") == []
        if door == "mcp":
            assert rule.said in said


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("door", ["responses", "mcp"])
@async_test
async def test_without_a_rule_the_same_call_runs_and_is_recorded_by_every_door(tmp_path: Path, door: Door) -> None:
    model = ScriptedModel(call("add", **ARGUMENTS), say("3."))
    async with FaultyMCPServer() as server:
        entry = {"name": "sums", "transport": "http", "url": server.url}
        audit = {"file": AUDIT_FILE}
        async with run_gateway(tmp_path, model, mcp_servers=[entry], keys=[KEY], audit=audit) as gateway:
            await _call(gateway, door, ARGUMENTS)
        assert len(server.calls("add")) == 1
    made, ended = read_audit(tmp_path, "tool_call", "tool_result")
    assert (made["door"], made["caller"], made["server"], made["tool"]) == (door, f"key:{KEY}", "sums", "add")
    assert (ended["outcome"], ended["call_id"]) == ("ok", made["call_id"])
    assert orjson.dumps(ARGUMENTS) not in (tmp_path / AUDIT_FILE).read_bytes()


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
            _, listed = await gateway.send("GET", "/v1/mcp/servers", key=KEY)
    (resource,) = listed["data"]
    assert resource["description"] is None, "the instructions of the server are not passed on"
    withheld = " ".join(resource["warnings"])
    for text in (f"prompt '{changed}'", f"resource '{uri}'", "The template '", "instructions", "Another text."):
        assert text in withheld
    assert "mcp.withheld server=sums reason=" in caplog.text


RESOURCE, TEMPLATE, PROMPT = "test://notes.txt", "test://pages/{topic}/{page}", "review"
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
