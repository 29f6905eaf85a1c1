"""`holodeck mcp serve` over standard input and output: what clients do wrong, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from agent_project import AgentProject, serve_scripted, server_at
from async_tests import async_test
from cli.served_file import ServedFile, serve_file
from gateway.mcp_endpoint.sdk_client import text_of
from mcp import Client

from holodeck.testing import FaultyMCPServer
from holodeck.testing.mcp.journal import Journal
from holodeck.testing.model.script import call, say

MIB = 1024 * 1024
LONG = 40 * MIB


@pytest.fixture
def project(tmp_path: Path) -> AgentProject:
    return AgentProject(tmp_path)


async def start_slow_call(project: AgentProject, served: ServedFile) -> Journal:
    """Start a call that takes longer than the test, and wait until the server works on it."""
    await served.initialize()
    await served.start_call("slow", request_id=9, seconds=600)
    journal = Journal(project.journal)
    await journal.received("tools/call")
    return journal


def _responses(out: str) -> list[dict[str, Any]]:
    """The responses in its output. It may notify of a changed list at any time: a server that starts has tools."""
    messages: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert all("id" in each or each["method"].endswith("/list_changed") for each in messages)
    return [each for each in messages if "id" in each]


@pytest.mark.proves("D-38")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", -32700),
        (b"\xff\xfe\x00", -32700),
        (b'{"jsonrpc":', -32700),
        (b"[" * 100_000, -32700),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"nope"}', -32600),
    ],
    ids=["text", "bytes", "half", "nested", "number", "null-id", "before-the-handshake"],
)
@async_test
async def test_a_line_that_is_no_request_is_answered_with_an_error_and_the_next_is_served(
    project: AgentProject, line: bytes, code: int
) -> None:
    project.write(None)
    async with serve_file(project) as served:
        await served.write(line + b"\n")
        assert (await served.receive())["error"]["code"] == code
        assert (await served.request("ping"))["result"] == {}
        served.close_stdin()
        assert await served.wait_exit() == (0, "", "")


@pytest.mark.proves("D-38")
@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"   ", b"[]", b'{"method":"x"}'),
        b'{"jsonrpc":"2.0","id":"x","result":{}}\n{"jsonrpc":"2.0","id":[1],"result":{}}',
    ],
)
@async_test
async def test_a_message_that_needs_no_answer_gets_none(project: AgentProject, line: bytes) -> None:
    project.write(None)
    async with serve_file(project) as served:
        await served.write(line + b"\n")
        await served.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert await served.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.proves("D-38")
@async_test
async def test_a_message_of_40_megabytes_is_refused_by_its_id(project: AgentProject) -> None:
    project.write(None)
    async with serve_file(project) as served:
        await served.write(b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"a" * LONG + b'"}}\n')
        refused = await served.receive()
        assert (refused["id"], refused["error"]["code"]) == (7, -32600)
        assert "33554432 are allowed" in refused["error"]["message"]
        assert (await served.request("ping"))["result"] == {}


@pytest.mark.proves("D-38", "D-15")
@async_test(60)
async def test_a_client_that_leaves_during_a_call_ends_the_call_and_the_server(project: AgentProject) -> None:
    project.write(None, project.npx_server("all"))
    async with serve_file(project) as served:
        journal = await start_slow_call(project, served)
        served.close_stdin()
        code, out, err = await served.wait_exit()
        assert (code, _responses(out)) == (0, [])
        assert "Traceback" not in err
    assert [each.method for each in journal.requests][-1] == "notifications/cancelled"
    await project.wait_servers_gone()


@pytest.mark.proves("D-38", "D-15")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
@async_test(60)
async def test_a_signal_during_a_call_ends_it_without_a_traceback_and_leaves_no_process(
    project: AgentProject, number: signal.Signals
) -> None:
    project.write(None, project.npx_server("all"))
    async with serve_file(project) as served:
        journal = await start_slow_call(project, served)
        served.process.send_signal(number)
        code, out, err = await served.wait_exit()
        assert (code, _responses(out)) == (0, [])
        assert "Traceback" not in err
    assert [each.method for each in journal.requests][-1] == "notifications/cancelled"
    await project.wait_servers_gone()


@pytest.mark.proves("D-38")
@async_test(60)
async def test_a_client_that_does_not_read_does_not_keep_it_from_ending(project: AgentProject) -> None:
    project.write(None, project.npx_server("all"))
    async with serve_file(project) as served:
        await served.initialize()
        await served.list_tools()
        # Far more than a pipe holds.
        for number in range(100):
            await served.send({"jsonrpc": "2.0", "id": number + 10, "method": "tools/list"})
        served.close_stdin()
        assert await served.process.wait_ended() == 0
        assert "Traceback" not in (await served.wait_exit())[2]
    await project.wait_servers_gone()


@pytest.mark.proves("D-38")
@async_test(60)
async def test_requests_of_a_file_are_all_answered(project: AgentProject, tmp_path: Path) -> None:
    async with FaultyMCPServer() as server:
        project.write(None, server_at("all", server.url))
        requests: list[dict[str, Any]] = [
            {"method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}},
            *({"method": "tools/list"} for _ in range(50)),
        ]
        lines = [json.dumps({"jsonrpc": "2.0", "id": number, **each}) for number, each in enumerate(requests)]
        file = tmp_path / "requests"
        file.write_text("\n".join(lines))
        async with serve_file(project, stdin=os.open(file, os.O_RDONLY)) as served:
            code, out, _ = await served.wait_exit()
    assert code == 0
    assert sorted(each["id"] for each in _responses(out)) == list(range(51))


@pytest.mark.proves("D-38")
@async_test
async def test_it_ends_at_once_where_its_input_is_empty(project: AgentProject) -> None:
    project.write(None)
    async with serve_file(project, stdin=os.open(os.devnull, os.O_RDONLY)) as served:
        assert await served.wait_exit() == (0, "", "")


@pytest.mark.proves("D-38")
@async_test(60)
async def test_two_of_them_serve_one_file_at_the_same_time(project: AgentProject) -> None:
    project.write(None, project.npx_server("all"))
    async with serve_file(project) as one, serve_file(project) as other:
        await asyncio.gather(one.initialize(), other.initialize())
        sums = await asyncio.gather(one.call("add", a=1, b=2), other.call("add", a=3, b=4))
        assert list(sums) == ["3", "7"]
        one.close_stdin()
        assert (await one.wait_exit())[0] == 0
        assert await other.call("add", a=5, b=6) == "11"
        assert len(set(project.pids())) == 2


@pytest.mark.proves("D-38")
@async_test
async def test_a_file_that_is_not_trusted_is_not_served_where_nobody_can_be_asked(project: AgentProject) -> None:
    project.write(None, project.npx_server("all"))
    async with serve_file(project, environ={"HOLODECK_TRUST": ""}) as served:
        code, out, err = await served.wait_exit()
    assert (code, out) == (2, "")
    assert "agent.yaml" in err
    assert "holodeck trust" in err
    assert not project.pid_file.exists()


@pytest.mark.proves("D-38")
@async_test(60)
async def test_a_server_that_does_not_start_is_missing_and_the_others_are_served(project: AgentProject) -> None:
    async with FaultyMCPServer() as server:
        project.write(None, project.npx_server("broken", "dies-at-start"), server_at("sums", server.url))
        async with serve_file(project) as served:
            await served.initialize()
            # The broken server might have a tool `add`, and is configured first.
            assert "sums__add" in await served.list_tools()
            assert await served.call("sums__add", a=1, b=2) == "3"
            served.close_stdin()
            _, _, err = await served.wait_exit()
    assert "broken" in err
    assert "API_KEY is not set" in err


PRINTING = """
import os, sys
print("at import")

def loud():
    print("in a function")
    os.write(1, b"past Python\\n")
    return "done"
"""


@pytest.mark.proves("D-38")
@async_test(60)
async def test_what_functions_of_the_agent_print_is_not_sent_to_the_client(project: AgentProject) -> None:
    (project.path / "mine.py").write_text(PRINTING)
    tool = "  - {type: function, name: loud, description: d, file: mine.py, function: loud}"
    async with serve_scripted(call("loud"), say("All done.")) as model:
        project.write(model, tool)
        async with serve_file(project) as served:
            await served.initialize()
            assert await served.call("ask_demo", question="Go") == "All done."
            served.close_stdin()
            code, out, err = await served.wait_exit()
    assert (code, out) == (0, "")
    assert {"at import", "in a function", "past Python"} <= set(err.splitlines())


@pytest.mark.proves("D-38")
@async_test
async def test_a_mistyped_server_is_a_mistake_of_usage_that_names_the_right_one(project: AgentProject) -> None:
    project.write(None, project.npx_server("files"))
    async with serve_file(project, "--server", "fles") as served:
        code, out, err = await served.wait_exit()
    assert (code, out) == (2, "")
    assert "there is no server 'fles'" in err
    assert "Did you mean 'files'?" in err
    assert not project.pid_file.exists()


@pytest.mark.proves("D-38")
@async_test
async def test_a_server_is_told_what_its_client_can_answer_even_if_the_client_is_slow(project: AgentProject) -> None:
    async with FaultyMCPServer(era="legacy") as server:
        project.write(None, server_at("all", server.url))
        async with serve_file(project) as served:
            # While these are read, a server that is started too early has been asked for its tools.
            for _ in range(50):
                await served.send("?")
                await served.receive()
            await served.initialize(roots={"listChanged": True})
            await served.list_tools()
        (handshake,) = [each for each in server.requests if each.method == "initialize"]
        capabilities: dict[str, Any] = handshake.params["capabilities"]
        assert capabilities["roots"] == {"listChanged": True}


@pytest.mark.proves("D-38")
@async_test(60)
async def test_with_http_it_says_its_address_and_serves_clients_there_until_it_is_stopped(
    project: AgentProject,
) -> None:
    async with FaultyMCPServer() as server:
        project.write(None, server_at("all", server.url))
        async with serve_file(project, "--http", "--port", "0") as served:
            said = (await served.process.stderr.readline()).decode()
            assert said.startswith("Serving demo at http://127.0.0.1:")
            async with Client(said.split()[-1], mode="auto", read_timeout_seconds=30) as client:
                assert text_of(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
            served.process.send_signal(signal.SIGTERM)
            code, out, err = await served.wait_exit()
    assert (code, out) == (0, "")
    assert "Traceback" not in err
