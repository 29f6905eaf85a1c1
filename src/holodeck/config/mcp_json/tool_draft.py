"""One server on its way from another program's words to ours: what was taken, from where, and what was left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holodeck.config.mcp_json.find_servers import ServerEntry
from holodeck.config.problems import problem_at
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import MCPConfigError, Problem


class ToolDraft:
    """A tool in our words, growing key by key. Every key of the entry is taken by somebody, or reported."""

    def __init__(self, entry: ServerEntry, document: Document, name: str, program: str) -> None:
        self.entry = entry
        self.name = name
        self.program = program
        """Who wrote the file, as far as one can tell: `Claude Code`."""
        self.tool: dict[str, Any] = {"type": "mcp", "name": name}
        self.origins: dict[KeyPath, KeyPath] = {("name",): (), ("type",): ()}
        """Where in the entry each key of the tool comes from."""
        self.problems: list[Problem] = []
        self.is_server = True
        """False for an entry that turned out to be something else."""
        self._document = document
        self._remaining = dict(entry.value)

    def pop(self, *keys: str) -> tuple[str, Any]:
        """The first of these keys that the entry has, with its value; the others stay. `("", None)` for none."""
        for key in keys:
            if key in self._remaining:
                return key, self._remaining.pop(key)
        return "", None

    def remaining_keys(self) -> list[str]:
        """The keys that nobody took."""
        return list(self._remaining)

    def set_key(self, key: str, value: Any, origin: KeyPath) -> None:
        """Set a key of the tool; `origin` is where in the entry it comes from."""
        self.tool[key] = value
        self.origins[(key,)] = origin

    def scalar_text(self, *path: str | int) -> str:
        """A scalar of the entry as it is written, for places where `1.10` is text."""
        return self._document.texts.get((*self.entry.path, *path), "")

    def scalar_texts(self, path: Sequence[str | int], values: list[Any]) -> list[Any]:
        """A list in which numbers are the text that stands in the file."""
        return [
            self.scalar_text(*path, index) if isinstance(value, (bool, int, float)) else value
            for index, value in enumerate(values)
        ]

    def warn(self, path: KeyPath, message: str, fix: str = "") -> None:
        """Say what is different here; the server stays usable."""
        where = (*self.entry.path, *path)
        self.problems.append(problem_at(self._document, where, message, fix=fix, severity="warning"))

    def refuse(self, path: KeyPath, message: str, fix: str = "") -> None:
        """Say why this server, and only this one, cannot be used."""
        where = (*self.entry.path, *path)
        self.problems.append(problem_at(self._document, where, message, fix=fix, kind=MCPConfigError))
