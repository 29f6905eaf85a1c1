"""`MCPServer` alone: a program calls the tools of MCP servers without an agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from real.project import START_SECONDS

from holodeck import Agent, ConfigError, LogMessage, MCPServer, MCPToolError, OAuthClientCredentials, ServerOptions
from holodeck.agents.hooks import Elicitation
from holodeck.lib.errors import (
    MCPConfigError,
    MCPConnectionError,
    MCPError,
    MCPProtocolError,
    MCPTimeoutError,
    MCPToolNotFoundError,
)
from holodeck.testing import Era, FaultyMCPServer, Journal, ScriptedModel, Transport, call, read_pids, say
from holodeck.tools.mcp.content import ImageContent


def sums(*mode: str, **options: Any) -> MCPServer:
    """A process with real tools."""
    return MCPServer.stdio(*FaultyMCPServer.command(*mode or ("normal",), **options), name="sums")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Calls


@async_test(START_SECONDS)
async def test_a_program_calls_a_server_that_others_wrote() -> None:
    variables = {"MARK": "seen"}
    async with MCPServer.stdio("npx", "-y", "@modelcontextprotocol/server-everything", env=variables) as server:
        assert json.loads((await server.call("get-env")).text)["MARK"] == "seen"
        result = await server.call("echo", message="hi")
        assert (server.name, result.text) == ("everything", "Echo: hi")
        assert "echo" in {tool.name for tool in await server.tools()}
        weather = await server.call_tool("get-structured-content", {"location": "Chicago"})
        assert set(weather.structured) == {"temperature", "conditions", "humidity"}
        assert any(isinstance(block, ImageContent) for block in (await server.call("get-tiny-image")).content)


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
@async_test
async def test_a_server_is_reached_over_each_transport(transport: Transport) -> None:
    build = getattr(MCPServer, transport)
    async with FaultyMCPServer(transport=transport) as running, build(running.url) as server:
        assert (await server.call("add", a=1, b=2)).text == "3"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test
async def test_a_connected_server_says_what_it_is(era: Era) -> None:
    async with FaultyMCPServer(era=era) as running:
        server = MCPServer.http(running.url)
        with pytest.raises(MCPError, match="not connected"):
            _ = server.info
        async with server:
            assert (server.info.name, server.info.version, server.info.era) == ("faulty", "1.0", era)
            assert server.info.instructions == "A server for tests. It may misbehave."


@async_test
async def test_prompts_and_resources_are_read() -> None:
    async with FaultyMCPServer() as running, MCPServer.http(running.url) as server:
        assert "review" in {prompt.name for prompt in await server.prompts()}
        assert "x = 1" in (await server.get_prompt("review", code="x = 1")).text
        resources = await server.resources()
        assert (await server.read(resources[0].uri)).content
        assert await server.resource_templates()
        with pytest.raises(MCPProtocolError):
            await server.read("file:///nothing")


@async_test
async def test_arguments_may_have_the_names_of_parameters() -> None:
    async with FaultyMCPServer() as running, MCPServer.http(running.url) as server:
        await server.call("echo", text="hi", name="n", self="s")
        received = await running.received("tools/call")
        assert received[0].params["arguments"] == {"text": "hi", "name": "n", "self": "s"}


@async_test
async def test_progress_is_reported() -> None:
    reports: list[tuple[float | None, float | None, str | None]] = []
    async with FaultyMCPServer() as running, MCPServer.http(running.url) as server:
        running_call = asyncio.create_task(
            server.call_tool("slow", {"steps": 2}, on_progress=lambda *report: reports.append(report))
        )
        await running.received("tools/call")
        running.release()
        await running_call
    assert reports


# Failures


@async_test
async def test_a_tool_that_reports_an_error_raises_it_with_its_result() -> None:
    async with FaultyMCPServer() as running, MCPServer.http(running.url, name="sums") as server:
        with pytest.raises(MCPToolError, match="'fail' reports an error: It did not work") as caught:
            await server.call("fail")
        assert (caught.value.result.text, caught.value.server) == ("It did not work.", "sums")
        unchecked = await server.call_tool("fail", check=False)
        assert (unchecked.success, unchecked.is_error) == (False, True)


@async_test
async def test_other_failures_raise_their_own_errors() -> None:
    async with FaultyMCPServer() as running, MCPServer.http(running.url) as server:
        with pytest.raises(MCPToolNotFoundError, match="no tool 'nothing'"):
            await server.call("nothing")
        with pytest.raises(MCPProtocolError):
            await server.call("protocol_error")
        assert isinstance((await server.call_tool("nothing", check=False)).error, MCPToolNotFoundError)
    async with FaultyMCPServer("hangs") as running, MCPServer.http(running.url) as server:
        with pytest.raises(MCPTimeoutError):
            await server.call_tool("add", {"a": 1, "b": 2}, timeout=0.2)


@async_test
async def test_a_server_that_does_not_start_fails_the_block_and_leaves_nothing() -> None:
    server = sums("dies-at-start")
    with pytest.raises(MCPConnectionError, match="sums"):
        async with server:
            pass
    with pytest.raises(MCPError, match="not connected"):
        _ = server.info


@async_test
async def test_a_server_that_is_killed_is_started_again(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with sums(pid_file=pids) as server:
        assert (await server.call("add", a=1, b=2)).text == "3"
        os.kill(read_pids(pids)[0], signal.SIGKILL)
        # The death may be noticed only by the call, which has then not been sent: it is repeated.
        while len(read_pids(pids)) == 1:
            await server.call_tool("add", {"a": 1, "b": 2}, check=False)
        assert (await server.call("add", a=2, b=2)).text == "4"


# Connections


@async_test
async def test_all_users_share_one_process_which_ends_after_the_last(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = sums(pid_file=pids)
    models = [ScriptedModel(call("add", a=1, b=2), say("3")) for _ in range(2)]
    agents = [Agent(model, tools=[server]) for model in models]
    async with server:
        async with server:
            own_call = asyncio.create_task(server.call("add", a=1, b=2))
            results = await asyncio.gather(*(agent.run("1 + 2?") for agent in agents))
            assert (await own_call).text == "3"
        assert [result.text for result in results] == ["3", "3"]
        assert all("3" in str(model.requests[1].items[-1]) for model in models)
        assert len(read_pids(pids)) == 1
        assert is_running(read_pids(pids)[0])
    assert not is_running(read_pids(pids)[0])


@async_test
async def test_an_agent_that_is_open_keeps_the_server_of_a_finished_block(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = sums(pid_file=pids)
    script = [call("add", a=1, b=2), say("3")] * 2
    async with Agent(ScriptedModel(*script), tools=[server]) as agent:
        async with server:
            await agent.run("1 + 2?")
        assert (await agent.run("1 + 2?")).tool_calls == 1
        assert len(read_pids(pids)) == 1
    assert not is_running(read_pids(pids)[0])


@async_test
async def test_a_call_without_a_block_starts_the_server_for_this_call(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    assert (await sums(pid_file=pids).call("add", a=1, b=2)).text == "3"
    assert not is_running(read_pids(pids)[0])


def test_each_event_loop_has_a_connection_of_its_own(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = sums(pid_file=pids)

    async def add() -> str:
        async with server:
            return (await server.call("add", a=1, b=2)).text

    with server:
        assert (asyncio.run(add()), asyncio.run(add())) == ("3", "3")
        assert server.call_sync("add", a=2, b=2).text == "4"
        assert "add" in {tool.name for tool in server.tools_sync()}
    assert len(read_pids(pids)) == 3
    assert not any(map(is_running, read_pids(pids)))


# Messages of servers


@async_test
async def test_questions_logs_and_changes_reach_the_functions_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holodeck.mcp.server")
    logs: list[LogMessage] = []
    asked: list[Elicitation] = []
    changed = asyncio.Event()

    async def answer(question: Elicitation) -> Mapping[str, Any]:
        asked.append(question)
        return {"name": "Ada"}

    async def sample(params: Mapping[str, Any]) -> str:
        return f"{len(params['messages'])} message"

    async with FaultyMCPServer() as running:
        server = MCPServer.http(
            running.url,
            name="asks",
            on_log=logs.append,
            on_elicitation=answer,
            on_sampling=sample,
            on_tools_changed=changed.set,
        )
        async with server:
            assert "Ada" in (await server.call("ask_elicitation")).text
            assert "1 message" in (await server.call("ask_sampling")).text
            await server.call("log")
            await server.call("grow")
            await changed.wait()
            assert "grown_1" in {tool.name for tool in await server.tools()}
    assert asked[0].server == "asks"
    assert asked[0].schema["type"] == "object"
    assert "info" in {each.level for each in logs}


@async_test
async def test_without_functions_questions_are_declined() -> None:
    async with FaultyMCPServer() as running, MCPServer.http(running.url) as server:
        result = await server.call_tool("ask_elicitation", check=False)
        assert "accept" not in result.text


@async_test
async def test_a_server_of_an_agent_may_ask_its_model() -> None:
    async with FaultyMCPServer() as running:
        server = MCPServer.http(running.url, sampling="allow")
        model = ScriptedModel(call("ask_sampling"), say("sampled"), say("done"))
        result = await Agent(model, tools=[server]).run("Ask")
    assert result.text == "done"
    assert "sampled" in str(model.requests[2].items[-1])


# Definitions


@async_test
async def test_options_decide_which_tools_there_are() -> None:
    options: ServerOptions = {"allowed_tools": ["add", "e*"], "denied_tools": ["echo"]}
    async with FaultyMCPServer() as running, MCPServer.http(running.url, **options) as server:
        assert [tool.name for tool in await server.tools()] == ["add"]
        with pytest.raises(MCPToolNotFoundError):
            await server.call("echo", text="hi")


@async_test
async def test_a_bearer_token_and_headers_are_sent() -> None:
    async with FaultyMCPServer("requires-token", token="s3cret") as running:
        with pytest.raises(MCPConnectionError):
            await MCPServer.http(running.url).call("add", a=1, b=2)
        async with MCPServer.http(running.url, auth="s3cret", headers={"X-Team": "blue"}) as server:
            assert (await server.call("add", a=1, b=2)).text == "3"
        assert running.requests[-1].headers["x-team"] == "blue"
    assert "s3cret" not in repr(server.tool)


@async_test
async def test_the_program_runs_in_its_folder(tmp_path: Path) -> None:
    command = FaultyMCPServer.command("normal", journal=Path("journal"))
    async with MCPServer.stdio(*command, name="sums", cwd=tmp_path) as server:
        await server.call("add", a=1, b=2)
    assert Journal(tmp_path / "journal").requests[-1].method == "tools/call"


@async_test
async def test_servers_of_files_are_used(tmp_path: Path) -> None:
    command, *args = FaultyMCPServer.command("normal")
    file = tmp_path / "mcp.json"
    servers = {"sums": {"command": command, "args": args}, "more": {"command": command, "args": args}}
    file.write_text(json.dumps({"mcpServers": servers}))
    async with MCPServer.from_file(file, "sums") as server:
        assert (await server.call("add", a=1, b=2)).text == "3"
    with pytest.raises(ConfigError, match=r"no MCP server 'other'. Its servers: 'sums', 'more'"):
        MCPServer.from_file(file, "other")
    with pytest.raises(ConfigError, match="name one"):
        MCPServer.from_file(file)
    agent = tmp_path / "agent.yaml"
    agent.write_text("name: a\ntools: [{name: web, type: mcp, transport: http, url: 'https://${HOST}/mcp'}]\n")
    assert MCPServer.from_file(agent, environ={"HOST": "example.com"}).tool.url == "https://example.com/mcp"
    agent.write_text("name: a\ntools: [{name: web, type: mcp, transport: http}]\n")
    with pytest.raises(ConfigError, match="'url' is required"):
        MCPServer.from_file(agent)


def test_wrong_definitions_say_what_is_wrong() -> None:
    misspelt: dict[str, Any] = {"requst_timeout": 5}
    with pytest.raises(MCPConfigError, match=r"no option 'requst_timeout'. Did you mean 'request_timeout'"):
        MCPServer.stdio("server", **misspelt)
    with pytest.raises(MCPConfigError, match="'request_timeout' must be at least 1"):
        MCPServer.stdio("server", request_timeout=0)
    with pytest.raises(MCPConfigError, match="no option 'sandbox'"):
        MCPServer.http("https://example.com/mcp", **{"sandbox": True})  # type: ignore[arg-type]
    with pytest.raises(MCPConfigError, match="must use https://"):
        MCPServer.http("http://example.com/mcp")
    with pytest.raises(MCPConfigError, match="name"):
        MCPServer.stdio("server", name="not a name")
    with pytest.raises(MCPConfigError, match="pinned 'token_url' or 'issuer'"):
        asyncio.run(MCPServer.http("https://example.com/mcp", auth=OAuthClientCredentials(client_id="a")).call("x"))


@async_test
async def test_a_python_file_is_run_by_the_python_of_the_program(tmp_path: Path) -> None:
    command = FaultyMCPServer.command("normal")
    (tmp_path / "sums.py").write_text(f"import os, sys\nos.execv({command[0]!r}, {command!r} + sys.argv[1:])\n")
    server = MCPServer.stdio("sums.py", cwd=tmp_path)
    assert server.name == "sums"
    assert (await server.call("add", a=1, b=2)).text == "3"
    with pytest.raises(MCPConfigError, match=r"There is no file 'sum.py' in .*, which MCPServer.stdio should run"):
        MCPServer.stdio("sum.py", cwd=tmp_path)


@pytest.mark.parametrize("is_wrapped", [True, False], ids=["as in mcp.json", "names alone"])
@async_test
async def test_servers_of_a_dictionary_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_wrapped: bool
) -> None:
    monkeypatch.setenv("SUMS_MODE", "normal")
    command = [each.replace("normal", "${SUMS_MODE}") for each in FaultyMCPServer.command("normal")]
    async with FaultyMCPServer() as running:
        servers = {"near": {"command": command[0], "args": command[1:]}, "far": {"type": "http", "url": running.url}}
        near, far = MCPServer.from_dict({"mcpServers": servers} if is_wrapped else servers, cwd=tmp_path)
        assert (near.name, far.name) == ("near", "far")
        assert [(await each.call("add", a=1, b=2)).text for each in (near, far)] == ["3", "3"]
        model = ScriptedModel(call("add", a=1, b=2), say("3"))
        assert (await Agent(model, tools=[far]).run("Add")).tool_calls == 1


def test_a_dictionary_with_a_mistake_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"far.*url"):
        MCPServer.from_dict({"far": {"type": "http", "url": "ftp://example.com"}})
    with pytest.raises(ConfigError, match="near"):
        MCPServer.from_dict({"near": {}})
    with pytest.raises(ConfigError, match="is no dictionary"):
        MCPServer.from_dict(["server.py"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as incomplete:
        MCPServer.from_dict({"near": {"args": ["x"]}})
    assert str(incomplete.value) == (
        "mcpServers.near.command: MCPConfigError: 'command' is required for stdio transport\n"
        "  Give the server a 'command' with its 'args', or a 'url'."
    )


@async_test
async def test_a_missing_program_is_told_in_words_of_python_as_well_as_of_files() -> None:
    with pytest.raises(MCPConnectionError, match="'no-such-program' is not on PATH") as caught:
        await MCPServer.stdio("no-such-program").tools()
    assert str(caught.value).endswith("Install 'no-such-program', or use a server at a URL.")
