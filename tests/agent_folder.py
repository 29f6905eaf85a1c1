"""An agent file in a folder of its own, with the environment that a test gives it and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from holodeck.config.agent_loader import LoadedAgent
from holodeck.lib.errors import ConfigError, Problem
from holodeck.runtime import read_agent


class AgentFolder:
    """A project folder with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "project"
        self.home = folder / "home"
        self.path.mkdir()
        self.home.mkdir()

    def write(self, name: str, text: str | bytes) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def load(self, text: str | bytes | None = None, env: Mapping[str, str] | None = None) -> LoadedAgent:
        if text is not None:
            self.write("agent.yaml", text)
        return read_agent(self.path / "agent.yaml", environ=env or {}, home=self.home)

    def load_error(self, text: str | bytes | None = None, env: Mapping[str, str] | None = None) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(text, env)
        return caught.value

    def load_errors(self, text: str | bytes | None = None, env: Mapping[str, str] | None = None) -> list[Problem]:
        return [problem for problem in self.load_error(text, env).problems if problem.severity == "error"]


def agent_with_tool(*lines: str) -> str:
    """An agent file with one MCP tool of these lines."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"name: demo\ntools:\n  - type: mcp\n    name: t\n    description: d\n{body}\n"
