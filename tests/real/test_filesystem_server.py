"""The filesystem server with the contract's first example exactly as it stands there."""

from __future__ import annotations

import base64

import pytest
from async_tests import async_test
from real.project import LEGACY, START_SECONDS, RealProject

from holodeck.tools.mcp.content import AudioContent, ImageContent, TextContent

EXAMPLE_1 = """
tools:
  - name: files
    description: "Read and write files in workspace"
    type: mcp
    server: "@modelcontextprotocol/server-filesystem"
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem"]
    config:
      allowed_directories:
        - "${workspaceFolder}/data"
        - "${workspaceFolder}/output"
"""


@pytest.fixture
def files(project: RealProject) -> RealProject:
    project.write("data/hello.txt", "Hello from a file.")
    project.write("data/dot.png", b"\x89PNG\r\n\x1a\n")
    project.write("data/tick.wav", b"RIFF")
    project.write("output/.keep", "")
    project.write("secret.txt", "Not for the server.")
    return project


@pytest.mark.proves("000:US1-1", "000:US1-2", "000:US2-2", "000:FR-004", "000:FR-011", "003:EX-1", "D-11")
@async_test(START_SECONDS)
async def test_the_folders_of_its_config_are_all_that_it_may_touch(files: RealProject) -> None:
    data, output = files.path / "data", files.path / "output"
    async with files.open_server(EXAMPLE_1) as server:
        allowed = (await server.call_tool("list_allowed_directories")).text
        assert {str(data), str(output)} == set(allowed.splitlines()[1:])
        assert server.protocol_version == LEGACY
        assert "Hello from a file." in (await server.call_tool("read_text_file", path=str(data / "hello.txt"))).text
        written = await server.call_tool("write_file", path=str(output / "out.txt"), content="made by a tool")
        assert written.success
        assert (output / "out.txt").read_text() == "made by a tool"
        for outside in (files.path / "secret.txt", data / "../secret.txt", "/etc/hostname"):
            refused = await server.call_tool("read_text_file", path=str(outside))
            assert refused.is_error
            assert "outside allowed directories" in refused.text
            assert "Not for the server" not in refused.text


@pytest.mark.proves("000:US3-1", "000:US3-2", "000:US3-3", "000:FR-018", "000:FR-019")
@async_test(START_SECONDS)
async def test_pictures_and_sounds_arrive_with_their_bytes(files: RealProject) -> None:
    async with files.open_server(EXAMPLE_1) as server:
        folder = files.path / "data"
        (picture,) = (await server.call_tool("read_media_file", path=str(folder / "dot.png"))).content
        (sound,) = (await server.call_tool("read_media_file", path=str(folder / "tick.wav"))).content
        (text,) = (await server.call_tool("read_text_file", path=str(folder / "hello.txt"))).content
    assert picture == ImageContent(data=base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), mime_type="image/png")
    assert sound == AudioContent(data=base64.b64encode(b"RIFF").decode(), mime_type="audio/wav")
    assert text == TextContent(text="Hello from a file.")
