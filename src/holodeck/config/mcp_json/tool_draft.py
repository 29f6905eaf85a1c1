"""A server entry during its translation: the tool so far, the origin of each of its keys, and the unused keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holodeck.config.mcp_json.find_servers import ServerEntry
from holodeck.config.mcp_json.programs import Program
from holodeck.config.problems import problem_at
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import MCPConfigError, Problem


class ToolDraft:
    """A tool in the form of our files, filled key by key. `pop` removes a key of the entry; the rest is unused."""

    def __init__(self, entry: ServerEntry, document: Document, name: str, program: Program) -> None:
        self.entry = entry
        self.name = name
        self.program = program
        """The program that wrote the file, as far as it is known."""
        self.tool: dict[str, Any] = {"type": "mcp", "name": name}
        self.origins: dict[KeyPath, KeyPath] = {("name",): (), ("type",): ()}
        """The key path in the entry for each key path of the tool."""
        self.problems: list[Problem] = []
        self.is_server = True
        """False for an entry that is no MCP server."""
        self._document = document
        self._remaining = dict(entry.value)

    def pop(self, *keys: str) -> tuple[str, Any]:
        """Remove the first of these keys that the entry has, and return it with its value; `("", None)` for none."""
        for key in keys:
            if key in self._remaining:
                return key, self._remaining.pop(key)
        return "", None

    def remaining_keys(self) -> list[str]:
        """Return the keys of the entry that `pop` has not removed."""
        return list(self._remaining)

    def set_key(self, key: str, value: Any, origin: KeyPath) -> None:
        """Set a key of the tool. `origin` is its key path in the entry."""
        self.tool[key] = value
        self.origins[(key,)] = origin

    def scalar_text(self, *path: str | int) -> str:
        """Return a scalar of the entry as written, for keys whose value `1.10` is a text."""
        return self._document.texts.get((*self.entry.path, *path), "")

    def scalar_texts(self, path: Sequence[str | int], values: list[Any]) -> list[Any]:
        """Return the list with each number and boolean replaced by its text as written."""
        return [
            self.scalar_text(*path, index) if isinstance(value, (bool, int, float)) else value
            for index, value in enumerate(values)
        ]

    def warn(self, path: KeyPath, message: str, fix: str = "") -> None:
        """Add a warning. The server stays usable."""
        where = (*self.entry.path, *path)
        self.problems.append(problem_at(self._document, where, message, fix=fix, severity="warning"))

    def refuse(self, path: KeyPath, message: str, fix: str = "") -> None:
        """Add an error. This server, and only this one, cannot be used."""
        where = (*self.entry.path, *path)
        self.problems.append(problem_at(self._document, where, message, fix=fix, kind=MCPConfigError))
