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
