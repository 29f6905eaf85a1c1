"""Search for the server entries in a file of another program, and for the workspace folder that they belong to.

A draft is an entry during its translation: the tool so far, the origin of each of its keys, and the unused keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holodeck.config.mcp_json.programs import CLAUDE_DESKTOP, CODEX, GOOSE, VSCODE, ZED, Program
from holodeck.config.problems import problem_at, value_at
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import ConfigError, MCPConfigError, Problem
from holodeck.lib.record import record

SERVER_LIST_PATHS: tuple[KeyPath, ...] = (
    VSCODE.list_path,
    CLAUDE_DESKTOP.list_path,
    ("mcp", *VSCODE.list_path),
    ("customizations", "vscode", "mcp", *VSCODE.list_path),
    ZED.list_path,
)
TOML_SUFFIX = ".toml"
_EDITOR_FOLDERS = frozenset({".vscode", ".cursor", ".roo", ".gemini", ".qwen", ".windsurf", ".devcontainer"})
_TOP_LEVEL = frozenset({"servers", "mcpServers", "mcp", "inputs", "$schema", "sandbox"})


@record
class ServerEntry:
    """The entry of one server, as written."""

    name: str
    path: KeyPath
    value: dict[str, Any]


@record
class ServerListing:
    """The server entries of a file, with the context that their translation needs."""

    entries: tuple[ServerEntry, ...]
    workspace: Path
    """The workspace folder of the program that wrote the file."""
    inputs: tuple[Mapping[str, Any], ...]
    problems: tuple[Problem, ...]


def find_server_entries(document: Document, path: Path, cwd: Path) -> ServerListing:
    """Find the server entries of a file. Raises `ConfigError` for a file without any list of servers.

    `cwd` selects among lists for several folders, as in `~/.claude.json`.
    """
    root = document.value
    if not isinstance(root, dict):
        raise ConfigError.of([problem_at(document, (), "the file must hold a JSON object")])
    finder = _EntryFinder(document)
    workspace = _workspace_of(path)
    project = _find_project(root, cwd)
    if project is not None:
        workspace = Path(project)
        finder.add_servers(("projects", project, "mcpServers"))
    # In YAML, 'mcp_servers' is a key of our own.
    for list_path in (CODEX.list_path,) if path.suffix == TOML_SUFFIX else SERVER_LIST_PATHS:
        finder.add_servers(list_path)
    if not finder.has_server_list:
        finder.add_servers(GOOSE.list_path)
    if not finder.has_server_list and any(key in root for key in ("command", "url")):
        finder.add_single_server()
    finder.warn_unused(project)
    if not finder.has_server_list:
        fix = "Servers are listed under 'servers' or 'mcpServers'."
        raise ConfigError.of([problem_at(document, (), "the file lists no MCP servers", fix=fix)])
    inputs = root.get("inputs") or value_at(root, ("mcp", "inputs")) or []
    return ServerListing(
        entries=tuple(finder.entries),
        workspace=workspace,
        inputs=tuple(item for item in inputs if isinstance(item, dict)) if isinstance(inputs, list) else (),
        problems=tuple(finder.problems),
    )


def has_servers(value: Any) -> bool:
    """Return whether a document has a list of servers in the form of another program, and is no agent file."""
    if not isinstance(value, dict):
        return False
    return any(isinstance(value_at(value, path), dict) for path in (*SERVER_LIST_PATHS, GOOSE.list_path))


class _EntryFinder:
    def __init__(self, document: Document) -> None:
        self.entries: list[ServerEntry] = []
        self.problems: list[Problem] = []
        self.has_server_list = False
        self._document = document

    def add_servers(self, list_path: KeyPath) -> None:
        """Add the servers under one key path. Of servers with the same name, the first one is used, with a warning."""
        listed = value_at(self._document.value, list_path)
        if listed is None:
            return
        self.has_server_list = True
        if not isinstance(listed, dict):
            self.problems.append(
                problem_at(self._document, list_path, "this must be an object: each server by its name")
            )
            return
        known = {entry.name for entry in self.entries}
        for name, value in listed.items():
            path = (*list_path, name)
            if not isinstance(value, dict):
                self.problems.append(problem_at(self._document, path, "a server must be an object"))
            elif name in known:
                self._warn(
                    path, "a server of this name is listed before, in a place that goes first: this one is not used"
                )
            else:
                self.entries.append(ServerEntry(name=name, path=path, value=value))

    def add_single_server(self) -> None:
        """Add the whole file as one server, with its name inside."""
        value = self._document.value
        self.has_server_list = True
        self.entries.append(ServerEntry(name=str(value.get("name") or "server"), path=(), value=value))

    def warn_unused(self, project: str | None) -> None:
        """Add warnings about parts of the file that are not used."""
        root = self._document.value
        for folder, count in _list_projects(root):
            if folder != project:
                self.has_server_list = True
                fix = "Run the command in that folder to use them."
                self._warn(("projects", folder), f"{count} servers for another folder are not used here", fix)
        if "sandbox" in root:
            self._warn(("sandbox",), "unsupported: HoloDeck starts servers without this sandbox")
        if "servers" in root:
            for key in root:
                if key not in _TOP_LEVEL:
                    self._warn((key,), "unsupported: HoloDeck reads 'servers' and 'inputs' of this file")

    def _warn(self, path: KeyPath, message: str, fix: str = "") -> None:
        self.problems.append(problem_at(self._document, path, message, fix=fix, severity="warning"))


def _workspace_of(path: Path) -> Path:
    folder = path.parent
    # Such as .kiro/settings.
    if folder.name == "settings" and folder.parent.name.startswith("."):
        return folder.parent.parent
    return folder.parent if folder.name in _EDITOR_FOLDERS else folder


def _list_projects(root: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the folders with servers of their own, as in `~/.claude.json`, each with the number of servers."""
    projects = root.get("projects")
    for folder, settings in projects.items() if isinstance(projects, dict) else ():
        servers = settings.get("mcpServers") if isinstance(settings, dict) else None
        if isinstance(servers, dict) and servers:
            yield folder, len(servers)


def _find_project(root: Mapping[str, Any], cwd: Path) -> str | None:
    """Return the working folder or its nearest parent that has servers of its own; None when there is none."""
    candidates = {str(folder) for folder in (cwd, *cwd.parents)}
    return max((folder for folder, _ in _list_projects(root) if folder in candidates), key=len, default=None)


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
