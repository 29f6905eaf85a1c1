"""An agent whose runs are recorded with a scripted model, and replayed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_of_file import load_runner
from agent_project import serve_scripted

from holodeck.cassettes.opened_cassette import OpenedCassette
from holodeck.cli.output.events_json import event_line
from holodeck.runtime import People

WALL_CLOCK = re.compile(r'"(seconds|duration_ms)": [0-9.e-]+')
UNREACHABLE = "http://127.0.0.1:1/v1"


class RecordedAgent:
    """A folder with an agent file and its cassette. The file names the model by the variable `ENDPOINT`."""

    def __init__(self, folder: Path, tools: str | None, *, more: str = "", people: People | None = None) -> None:
        """`tools`: the lines of its tools; None: the file is there."""
        self.folder = folder
        self.file = folder / "agent.yaml"
        self.cassette = folder / "agent.cassette.yaml"
        self.environ: dict[str, str] = {}
        self.people = people
        if tools is not None:
            self.write(tools, more=more)

    def write(self, tools: str, *, more: str = "") -> None:
        model = 'model: {provider: openai_compatible, name: scripted, endpoint: "${ENDPOINT}"}'
        self.file.write_text(f"name: demo\n{model}\n{more}\ntools:\n{tools}\n")

    async def record(self, *turns: Any, chunk: int | None = 7, question: str = "Go on.") -> list[str]:
        """Run with a model that answers by a script; return the events."""
        async with serve_scripted(*turns, chunk=chunk) as model, OpenedCassette(self.cassette, "always"):
            return await self.run({**self.environ, "ENDPOINT": model.url}, question)

    async def replay(self, *, question: str = "Go on.", environ: Mapping[str, str] | None = None) -> list[str]:
        """Run from the cassette; return the events."""
        with OpenedCassette(self.cassette, "never"):
            return await self.run({**self.environ, "ENDPOINT": UNREACHABLE, **(environ or {})}, question)

    async def run(self, environ: Mapping[str, str], question: str = "Go on.") -> list[str]:
        lines: list[str] = []
        async with load_runner(self.file, environ=environ, home=self.folder, people=self.people) as runner:
            async for event in runner.stream(question):
                line = event_line(len(lines), event)
                lines.append(WALL_CLOCK.sub(r'"\1": 0', line))
        return lines

    @property
    def text(self) -> str:
        return self.cassette.read_text()
