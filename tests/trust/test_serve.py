"""`holodeck serve` at a terminal: a gateway with agents does nothing before a yes, and says what has changed later."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest
from async_tests import async_test
from pty_terminal import CTRL_C, TypingTerminal
from trust.strangers_folder import QUESTION, StrangersFolder, open_strangers_folder

CODE = "open({marker!r}, 'a').write('imported ')\ndef greet() -> str:\n    return 'hello'\n"


class StrangersGateway:
    """A gateway file with an agent that asks a model, starts a server and imports Python code."""

    def __init__(self, folder: StrangersFolder) -> None:
        self.folder, self.marker = folder, folder.home / "was-imported"
        self.file = folder.path / "gateway.yaml"
        self.file.write_text(
            json.dumps({"allow_stdio": True, "agents": [{"file": "agent.yaml"}], "listen": {"port": 0}})
        )
        (folder.path / "tools.py").write_text(CODE.format(marker=str(self.marker)))
        self.write_agent("server")

    def write_agent(self, package: str) -> None:
        function = {"type": "function", "name": "greet", "description": "d", "file": "tools.py", "function": "greet"}
        self.folder.write_agent(tools=[self.folder.npx_tool(package), function])

    def serve(self) -> TypingTerminal:
        return self.folder.type("serve", "gateway.yaml")

    def assert_untouched(self) -> None:
        self.folder.assert_untouched()
        assert not self.marker.exists()


def read_json(url: str) -> object:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


async def stop(terminal: TypingTerminal) -> None:
    """Press Ctrl-C at a gateway that serves."""
    terminal.type_text(CTRL_C)
    assert await terminal.wait_exit() in (0, 130)


@pytest.mark.parametrize(("keys", "code"), [("n\r", 2), ("\r", 2), (CTRL_C, 130)], ids=["n", "enter", "ctrl-c"])
@async_test(90)
async def test_without_a_yes_nothing_is_started_dialled_imported_or_stored(
    keys: str, code: int, tmp_path: Path
) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        gateway = StrangersGateway(folder)
        before = sorted(folder.path.iterdir())
        async with gateway.serve() as terminal:
            shown = await terminal.wait_for(QUESTION)
            gateway.assert_untouched()
            terminal.type_text(keys)
            assert await terminal.wait_exit() == code
        gateway.assert_untouched()
        assert sorted(folder.path.iterdir()) == before
        assert not (folder.home / ".holodeck" / "trust.json").exists()
    for part in (folder.model.url, "npx -y server", "tools.py", "allow_stdio"):
        assert part in shown
    assert "Serving" not in terminal.text


@async_test(120)
async def test_after_a_yes_it_serves_and_the_next_start_does_not_ask(tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        gateway = StrangersGateway(folder)
        async with gateway.serve() as terminal:
            await terminal.wait_for(QUESTION)
            terminal.type_text("y\r")
            await terminal.wait_for("Serving demo at ")
            url = await terminal.wait_for("/v1")
            assert await asyncio.to_thread(read_json, f"{url}/healthz") == {"status": "ok"}
            await stop(terminal)
        async with gateway.serve() as terminal:
            await terminal.wait_for("Serving demo at ")
            assert QUESTION not in terminal.text
            await stop(terminal)


@pytest.mark.parametrize("changed", ["agent", "code", "gateway"])
@async_test(120)
async def test_after_a_change_of_one_of_its_files_it_asks_with_the_difference(changed: str, tmp_path: Path) -> None:
    async with open_strangers_folder(tmp_path) as folder:
        gateway = StrangersGateway(folder)
        assert (await folder.run("trust", "--yes", "gateway.yaml")).returncode == 0
        if changed == "agent":
            gateway.write_agent("other-server")
        elif changed == "code":
            (folder.path / "tools.py").write_text(CODE.format(marker=str(gateway.marker)) + "\n")
        else:
            data = json.loads(gateway.file.read_text())
            gateway.file.write_text(json.dumps(data | {"cors_origins": ["https://evil.example"]}))
        async with gateway.serve() as terminal:
            shown, _, _ = (await terminal.wait_for(QUESTION)).partition("All of it:")
            gateway.assert_untouched()
            terminal.type_text("n\r")
            assert await terminal.wait_exit() == 2
        gateway.assert_untouched()
    assert "has changed since you trusted it" in shown
    expected = {
        "agent": ["- command: npx -y server\n", "+ command: npx -y other-server\n"],
        "code": ["demo/tools.py", "- sha256: ", "+ sha256: "],
        "gateway": ["cors_origins", "evil"],
    }
    assert [text for text in expected[changed] if text not in shown] == []
