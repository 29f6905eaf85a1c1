"""A folder that a person got from a stranger, the person's own settings, and everything that could be reached."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holodeck_command import run_holodeck
from pty_terminal import TypingTerminal

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, stand_in
from holodeck.testing.model.scripted import ScriptedServer

CANARY = "sk-canary-0123456789"
QUESTION = "Do you trust it? [y/N]"


class StrangersFolder:
    """The folder, with a home that has a server of the person's own."""

    def __init__(self, root: Path, model: ScriptedServer) -> None:
        self.home = root
        self.path = root / "clone"
        self.path.mkdir()
        self.model = model
        self.journal = root / "journal"
        path = stand_in(root / "bin", FaultyMCPServer.command("normal", journal=self.journal))["PATH"]
        self.env = {"PATH": path, "OPENAI_API_KEY": CANARY, "HOLODECK_TRUST": ""}
        (root / ".holodeck").mkdir()
        own = {"mcp_servers": [{"name": "own", "description": "d", "command": "npx", "args": ["-y", "own-server"]}]}
        (root / ".holodeck" / "config.yaml").write_text(json.dumps(own))
        self.write_agent()

    @property
    def file(self) -> Path:
        return self.path / "agent.yaml"

    def write_agent(self, **more: Any) -> None:
        """Write the agent file: a name and a model, with more of it in `more`."""
        model = {"provider": "openai", "name": "m", "endpoint": self.model.url, "api_key": "${OPENAI_API_KEY}"}
        self.file.write_text(json.dumps({"name": "demo", "model": model, **more}))

    def npx_tool(self, *args: str) -> dict[str, Any]:
        return {"type": "mcp", "name": "calc", "description": "d", "command": "npx", "args": ["-y", *args]}

    async def run(self, *args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command without a terminal."""
        return await asyncio.to_thread(run_holodeck, *args, cwd=self.path, env=self.env | env)

    def type(self, *args: str | Path, **env: str) -> TypingTerminal:
        """The command at a terminal."""
        return TypingTerminal(*args, cwd=self.path, env=self.env | env)

    def assert_untouched(self) -> None:
        """Nothing was sent to the model, and no server was started."""
        assert self.model.received == []
        assert not self.journal.exists()


@asynccontextmanager
async def open_strangers_folder(root: Path) -> AsyncIterator[StrangersFolder]:
    """A folder whose model calls a tool of the person's own server, once it is asked."""
    turns = [call("add", a=1, b=2), say("Done.")]
    async with ScriptedModel(*turns, *turns, *turns).serve() as model:
        yield StrangersFolder(root, model)
