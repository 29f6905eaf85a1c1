"""`holodeck mcp resources` and `holodeck mcp read`: what servers have to read, and its content."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from cli.mcp_project import NPX, UVX, MCPProject
from holodeck_command import run_holodeck
from pty_terminal import CTRL_C, TypingTerminal

from holodeck.testing import FaultyMCPServer

NOTES = "test://notes.txt"
BUSY = 60  # seconds, on a machine that others use as well


async def _run_mcp(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the command while the servers of this test keep running."""
    return await asyncio.to_thread(run_holodeck, "mcp", *args, cwd=folder)


def _write_urls(folder: Path, **urls: str) -> None:
    servers: dict[str, Any] = {name: {"type": "http", "url": url} for name, url in urls.items()}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_resources_are_a_table_with_the_templates_below(project: MCPProject, era: str) -> None:
    project.set_npx_server("normal", era=era)
    project.write_servers(s=NPX)
    done = project.run_mcp("resources")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, lines[0]) == (0, ["URI", "NAME", "TYPE", "SIZE"])
    assert [NOTES, "notes.txt", "text/plain", "5", "bytes"] in lines
    assert ["test://pages/{topic}/{page}", "pages", "text/plain"] in lines
    assert "Some notes." in project.run_mcp("resources", "s", "-v").stdout


def test_json_has_the_entries_of_the_server(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    (server,) = json.loads(project.run_mcp("resources", "--json").stdout)["servers"]
    assert server["resources"][0] == {
        "uri": NOTES,
        "name": "notes.txt",
        "description": "Some notes.",
        "mimeType": "text/plain",
        "size": 5,
    }
    assert [each["uriTemplate"] for each in server["resource_templates"]] == ["test://pages/{topic}/{page}"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(("uri", "text"), [(NOTES, "notes"), ("test://pages/plans/2", "plans, page 2")])
def test_text_goes_to_standard_output_unchanged(project: MCPProject, era: str, uri: str, text: str) -> None:
    project.set_npx_server("normal", era=era)
    project.write_servers(s=NPX)
    done = project.run_mcp("read", uri)
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


def test_other_content_goes_to_a_file_and_several_contents_to_several(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    done = project.run_mcp("read", "test://far.pdf", "-o", "far.pdf")
    assert (done.returncode, done.stdout) == (0, "")
    assert (project.path / "far.pdf").read_bytes() == bytes([0, 1, 2, 3, 4, 255])
    assert (project.path / "far-2.pdf").read_text().startswith("far away\n")
    assert "6 bytes written to far.pdf" in done.stderr
    data = json.loads(project.run_mcp("read", "test://data.bin", "--json").stdout)
    assert (data["server"], data["contents"][0]["blob"]) == (
        "s",
        base64.b64encode(bytes([0, 1, 2, 3, 4, 255])).decode(),
    )


def test_a_file_that_cannot_be_written_is_an_error(project: MCPProject) -> None:
    project.write_servers(s=NPX)
    done = project.run_mcp("read", NOTES, "-o", "missing/notes.txt")
    assert done.returncode == 1
    assert "Cannot write missing/notes.txt" in done.stderr


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_resource_that_is_not_there_is_an_error_that_says_where_to_look(project: MCPProject, era: str) -> None:
    project.set_npx_server("normal", era=era)
    project.write_servers(s=NPX)
    done = project.run_mcp("read", "test://nope")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Unknown resource: test://nope" in done.stderr
    assert "'holodeck mcp resources s' shows what there is." in done.stderr


@async_test(BUSY)
async def test_the_server_is_the_one_that_lists_the_uri_or_has_a_template_for_it(folder: Path) -> None:
    async with FaultyMCPServer() as one, FaultyMCPServer(era="modern") as two:
        _write_urls(folder, one=one.url, two=two.url)
        await two.put_resource("test://plan", text="of two")
        found = await _run_mcp(folder, "read", "test://plan")
        assert (found.returncode, found.stdout) == (0, "of two")
        both = await _run_mcp(folder, "read", NOTES)
        assert both.returncode == 2
        assert f"several servers have {NOTES}: one, two" in both.stderr
        await two.put_resource(NOTES, text="notes of two")
        chosen = await _run_mcp(folder, "read", "two", NOTES)
        assert (chosen.returncode, chosen.stdout) == (0, "notes of two")
        neither = await _run_mcp(folder, "read", "other://x")
        assert neither.returncode == 2
        assert "no server lists other://x or has a template for it" in neither.stderr
        assert "Servers with resources: one, two." in neither.stderr


def test_a_server_that_fails_does_not_hide_the_resource_of_another(project: MCPProject) -> None:
    project.set_uvx_server("dies-at-start")
    project.write_servers(good=NPX, bad=UVX)
    done = project.run_mcp("read", NOTES)
    assert (done.returncode, done.stdout) == (0, "notes")
    assert "bad: " in done.stderr
    missing = project.run_mcp("read", "test://nope")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert project.running_servers() == []


@async_test(BUSY)
async def test_a_terminal_gets_text_escaped_and_other_content_not_at_all(folder: Path) -> None:
    async with FaultyMCPServer() as server:
        await server.put_resource("test://red", text="\x1b[31mred")
        async with TypingTerminal("mcp", "read", "test://red", "--url", server.url, cwd=folder) as terminal:
            await terminal.wait_for("<U+001B>[31mred")
            assert await terminal.wait_exit() == 0
        async with TypingTerminal("mcp", "read", "test://data.bin", "--url", server.url, cwd=folder) as terminal:
            await terminal.wait_for("the content is not text (application/octet-stream, 6 bytes)")
            assert await terminal.wait_exit() == 2


@pytest.mark.parametrize("era", ["legacy", "modern"])
@async_test(BUSY)
async def test_a_watched_resource_is_printed_again_on_each_update_until_ctrl_c(folder: Path, era: Any) -> None:
    async with FaultyMCPServer(era=era) as server:
        await server.put_resource(NOTES, text="first words")
        async with TypingTerminal("mcp", "read", "--watch", NOTES, "--url", server.url, cwd=folder) as terminal:
            await terminal.wait_for("first words")
            await server.listening(1 if era == "legacy" else 2)
            await server.put_resource(NOTES, text="second words")
            await terminal.wait_for("second words")
            # The server forgets everything, as in a restart, and has another text afterwards.
            await server.go_down()
            await server.put_resource(NOTES, text="third words")
            await server.come_up()
            await terminal.wait_for("third words")
            terminal.type_text(CTRL_C)
            assert await terminal.wait_exit() == 0
        assert terminal.text.count("second words") == 1
