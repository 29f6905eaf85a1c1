"""`holodeck mcp doctor` and `login`: which step fails, why, and what to do; servers in a process and on the network."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from cli.mcp_project import DOCKER, NPX, UVX, MCPProject
from tools.mcp.auth_server import run_auth_server
from tools.mcp.resource_server import follow_login, run_resource_server

from holodeck.lib.system.landlock import find_missing
from holodeck.testing import FaultyMCPServer

BUSY = 60  # processes are started, and the first login imports the SDK


def failed(done: Any) -> Mapping[str, Any]:
    """The step that failed, of the only server."""
    server = json.loads(done.stdout)["servers"][0]
    steps = [step for step in server["steps"] if step["outcome"] == "failed"]
    assert len(steps) == 1
    step = steps[0]
    assert isinstance(step, dict)
    assert step["advice"]
    return step


async def run(*args: str, folder: Path, env: Mapping[str, str]) -> tuple[int | None, str, str]:
    """The command beside servers that live in this process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holodeck",
        "mcp",
        *args,
        cwd=folder,
        env={**env, "HOME": str(folder), "HOLODECK_TRUST": "all"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def test_a_healthy_server_passes_every_step(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    done = project.run_mcp("doctor")
    assert done.returncode == 0
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["found", "ok", str(project.programs / "npx")] in words
    assert ["speaks", "MCP", "ok", "legacy,", "2025-11-25;", "faulty", "1.0"] in words
    assert ["lists", "tools", "ok", "22", "tools,", "2", "prompts"] in words
    assert done.stdout.count(" ok ") == 5


@pytest.mark.parametrize(
    ("mode", "step", "words"),
    [
        ("dies-at-start", "started", "Its last words:\nFATAL: API_KEY is not set"),
        ("dies-at-start-silently", "started", "exit code 3"),
        ("hangs-at-start", "speaks MCP", "did not answer within 1 s"),
        ("unknown-version", "speaks MCP", "protocol version"),
    ],
)
def test_the_step_that_fails_is_named_with_the_reason(project: MCPProject, mode: str, step: str, words: str) -> None:
    project.set_uvx_server(mode)
    project.write_servers(s={**UVX, "startup_timeout": 1 if mode == "hangs-at-start" else 60})
    done = project.run_mcp("doctor", "--json")
    found = failed(done)
    assert (done.returncode, found["name"]) == (1, step)
    assert words in found["detail"]
    assert project.running_servers() == []


STRAY = "Its standard output is not MCP: 'Usage: \\x1b[1mtool\\x1b[0m FILE'."
RIGHT_PACKAGE = "Is this the right package, with the right arguments?"
GREETING = "print('Usage: \\x1b[1mtool\\x1b[0m FILE\\nMore', flush=True)\n"


@pytest.mark.parametrize(
    ("program", "step", "detail", "advice"),
    [
        (f"{GREETING}open(0).read()", "speaks MCP", f"within 5 s ('startup_timeout'). {STRAY}", RIGHT_PACKAGE),
        (GREETING, "started", f"'uvx' ended with exit code 0. {STRAY}", RIGHT_PACKAGE),
        ("", "started", "'uvx' ended with exit code 0. It wrote nothing to standard error.", "Start it by hand: "),
    ],
    ids=["hangs", "ends", "ends-silently"],
)
def test_a_program_that_is_no_mcp_server_is_quoted(
    project: MCPProject, program: str, step: str, detail: str, advice: str
) -> None:
    project.set_uvx_program(program)
    project.write_servers(s={**UVX, "startup_timeout": 5 if step == "speaks MCP" else 60})
    found = failed(project.run_mcp("doctor", "--json"))
    assert found["name"] == step
    assert found["detail"].endswith(detail)
    assert advice in found["advice"]


def test_a_server_for_an_older_package_is_told_how_to_get_it(project: MCPProject) -> None:
    project.set_uvx_program("raise ModuleNotFoundError(\"No module named 'mcp.server.fastmcp'. This is mcp 2.x.\")")
    project.write_servers(s=UVX)
    found = failed(project.run_mcp("doctor", "--json"))
    assert "--with 'mcp<2'" in found["advice"]
    assert "--with 'mcp<2'" in found["detail"]
    assert "Its last words:" in found["detail"]


def test_a_sandboxed_server_that_may_not_use_a_file_is_told_which_key_lets_it(project: MCPProject) -> None:
    outside = project.path.parent / "outside.txt"
    outside.write_text("Notes")
    project.set_uvx_program(f"open({str(outside)!r})")
    project.write_servers(s={**UVX, "sandbox": True})
    found = failed(project.run_mcp("doctor", "--json"))
    # Where this machine has no sandbox, the server is not started.
    missing = find_missing()
    assert (missing or "Permission denied") in found["detail"]
    assert missing is not None or "'sandbox.read'" in found["advice"]


def test_a_timeout_names_the_limit_that_was_in_force(project: MCPProject) -> None:
    project.set_uvx_server("hangs-at-start")
    project.write_servers(s={**UVX, "startup_timeout": 60})
    found = failed(project.run_mcp("doctor", "--json", "--timeout", "1"))
    assert found["detail"] == "it did not answer within 1 s ('--timeout')."
    assert found["advice"].endswith("raise '--timeout'.")


def test_a_command_that_is_not_installed_is_not_found(project: MCPProject) -> None:
    project.write_servers(s=DOCKER)
    found = failed(project.run_mcp("doctor", "--json"))
    assert (found["name"], found["detail"]) == ("found", "'docker' is not on PATH.")
    assert "Install Docker" in found["advice"]


def test_a_path_of_another_machine_is_not_to_be_installed(project: MCPProject) -> None:
    project.write_servers(s={"command": r"C:\Program Files\nodejs\node.exe", "args": ["server.js"]})
    found = failed(project.run_mcp("doctor", "--json"))
    assert "is no program on this machine" in found["detail"]
    assert "the path that it has here" in found["advice"]


def test_the_servers_of_a_gateway_file_and_of_its_agents_are_examined(project: MCPProject) -> None:
    project.write_gateway({"own": NPX}, helper={"files": DOCKER})
    done = project.run_mcp("doctor", "-f", "gateway.yaml", "--json")
    healthy = {server["name"]: server["healthy"] for server in json.loads(done.stdout)["servers"]}
    assert (done.returncode, healthy) == (1, {"own": True, "files": False})


def test_an_agent_file_of_a_gateway_that_is_not_there_is_not_healthy(project: MCPProject) -> None:
    project.write_gateway({"own": NPX}, helper={})
    (project.path / "helper.yaml").unlink()
    done = project.run_mcp("doctor")
    assert (done.returncode, done.stdout.count(" ok ")) == (2, 5)
    assert "helper.yaml\n  ConfigError: there is no such file" in done.stderr


def test_a_secret_in_a_gateway_file_is_refused_and_never_shown(project: MCPProject) -> None:
    headers = {"Authorization": "Bearer s3cret-token"}
    project.write_gateway({"own": {"transport": "http", "url": "https://mcp.example.com/mcp", "headers": headers}})
    done = project.run_mcp("doctor", "-v")
    assert (done.returncode, "a secret must not be written into this file" in done.stderr) == (2, True)
    assert "s3cret" not in done.stdout + done.stderr


def test_a_file_that_is_wrong_is_part_of_the_examination(project: MCPProject) -> None:
    project.write_servers(s=NPX, wrong={"url": "http://x.example/mcp"}, off={**NPX, "disabled": True})
    done = project.run_mcp("doctor")
    assert done.returncode == 2
    assert "mcpServers.wrong.url" in done.stderr
    assert "off: switched off, not examined" in done.stdout
    data = json.loads(project.run_mcp("doctor", "--json").stdout)
    assert [server["name"] for server in data["servers"]] == ["s", "off", "wrong"]


@pytest.mark.parametrize(
    ("mode", "step", "words", "advice"),
    [
        ("http-401", "authorised", "HTTP 401", "holodeck mcp login --url http://localhost:"),
        ("http-403", "authorised", "HTTP 403", "does not let you in"),
        ("http-404", "speaks MCP", "HTTP 404", "There is nothing at this path."),
        ("html", "speaks MCP", "text/html", "Is this the URL of the MCP endpoint"),
        ("http-502", "speaks MCP", "HTTP 502", ""),
    ],
)
def test_a_server_on_the_network_is_examined_in_the_same_way(
    project: MCPProject, mode: str, step: str, words: str, advice: str
) -> None:
    @async_test(BUSY)
    async def examine() -> None:
        async with FaultyMCPServer(mode) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            code, out, _ = await run("doctor", "--url", url, "--json", folder=project.path, env=project.env)
        found = next(item for item in json.loads(out)["servers"][0]["steps"] if item["outcome"] == "failed")
        assert (code, found["name"]) == (1, step)
        assert words in found["detail"]
        assert advice in found["advice"]

    examine()


def test_an_unknown_host_and_a_closed_port_have_different_errors(project: MCPProject) -> None:
    project.write_servers(s={"url": "https://no-such-host.invalid/mcp"})
    assert failed(project.run_mcp("doctor", "--json"))["name"] == "found"
    project.write_servers(s={"url": "http://127.0.0.1:9/mcp"})
    assert failed(project.run_mcp("doctor", "--json"))["name"] == "reached"


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_url_is_a_server_on_every_network_transport(project: MCPProject, transport: Any, era: Any) -> None:
    @async_test(BUSY)
    async def call() -> None:
        async with FaultyMCPServer("normal", era=era, transport=transport) as server:
            args = ("call", "--url", server.url, "add", "a=2", "b=3")
            code, out, err = await run(*args, folder=project.path, env=project.env)
            assert (code, out.strip(), err) == (0, "5", "")

    if (transport, era) != ("sse", "modern"):  # SSE has ended with the old era
        call()


def test_headers_go_to_a_server_and_are_never_shown(project: MCPProject) -> None:
    @async_test(BUSY)
    async def call() -> None:
        async with FaultyMCPServer("requires-token", token="s3cret-token") as server:
            args = ("list", "--url", server.url, "--header", "Authorization: Bearer s3cret-token", "-v")
            code, out, err = await run(*args, folder=project.path, env=project.env)
            assert code == 0
            assert "s3cret" not in out + err
            refused, out, _ = await run("list", "--url", server.url, folder=project.path, env=project.env)
            assert (refused, "HTTP 401" in out) == (1, True)

    call()


@async_test(BUSY)
async def test_a_person_logs_in_with_the_address_that_is_printed(project: MCPProject) -> None:
    async with run_auth_server() as authority, run_resource_server(authority) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holodeck", "mcp", "login", "--url", server.mcp, "--no-browser"),
            cwd=project.path,
            env={**project.env, "HOME": str(project.path), "HOLODECK_TRUST": "all"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        address = b""
        while not address.startswith(b"http"):
            address = (await process.stderr.readline()).strip()
        await follow_login(address.decode())
        out = await process.stdout.read()
        assert (await process.wait(), out.decode().strip()) == (0, "Logged in to server_127_0_0_1.")
        files = [file for file in (project.path / ".config").rglob("*") if file.is_file()]
        assert all(file.stat().st_mode & 0o077 == 0 for file in files)
        code, out_text, _ = await run("logout", "--url", server.mcp, folder=project.path, env=project.env)
        assert (code, "Logged out" in out_text) == (0, True)
