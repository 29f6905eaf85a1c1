"""The servers of another program's file as entries of our files.

Keys are translated as for using such a file in place. References keep their meaning: folders of the other program
become paths, and `${input:id}` becomes a variable. A secret that is written into the file becomes a reference. What
cannot be said in our files is among the problems, as warnings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from holodeck.config.env_loader import PlaceholderVariables
from holodeck.config.interpolation import map_references
from holodeck.config.mcp_json.literal_secrets import ReplacedSecret, replace_secrets
from holodeck.config.mcp_json.loader import EDITOR_WORDS, input_variable, load_mcp_servers, read_listing
from holodeck.lib.errors import Problem
from holodeck.lib.record import record

_INPUT = re.compile(r"\$\{input:([^{}]*)\}")
_DEFAULTS = (("transport", "stdio"), ("enabled", True))
_ORDER = ("type", "name", "description", "transport", "command", "args", "env", "url", "headers", "auth")


@record
class OwnEntries:
    """The servers that can be copied, by name, and what is to be said about them."""

    entries: Mapping[str, dict[str, Any]]
    replaced: Mapping[str, tuple[ReplacedSecret, ...]] = field(default_factory=dict)
    """The secrets that became references, by server."""
    problems: tuple[Problem, ...] = ()
    refused: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)


def read_own_entries(path: Path, target: Path, *, environ: Mapping[str, str] | None = None) -> OwnEntries:
    """Read the servers of a file, for a file of ours in the folder `target`. Raises `ConfigError` as the loader does.

    Variables need not be set.
    """
    variables = PlaceholderVariables(os.environ if environ is None else environ, without=EDITOR_WORDS)
    loaded = load_mcp_servers(path, environ=variables)
    listing = read_listing(path, Path.cwd())
    workspace = listing.workspace.absolute()
    written_folders = {entry.name for entry in listing.entries if entry.value.get("cwd")}
    defaults = {str(item.get("id")): item.get("default") for item in listing.inputs}
    translator = _ReferenceTranslator(workspace, target.absolute(), defaults)
    entries: dict[str, dict[str, Any]] = {}
    replaced: dict[str, tuple[ReplacedSecret, ...]] = {}
    for item in loaded.tools:
        entry = {key: translator.translate(value) for key, value in item.written.items()}
        # Without a folder in the file, the server starts in that of its new file.
        if item.tool.name not in written_folders:
            entry.pop("cwd", None)
        # What is so without being said.
        entry = {key: value for key, value in entry.items() if (key, value) not in _DEFAULTS}
        clean, found = replace_secrets(entry)
        entries[item.tool.name] = {key: clean[key] for key in (*_ORDER, *clean) if key in clean}
        replaced[item.tool.name] = found
    return OwnEntries(entries=entries, replaced=replaced, problems=loaded.problems, refused=loaded.refused)


class _ReferenceTranslator:
    """Rewrites the references in values of another program's file as our files write them."""

    def __init__(self, workspace: Path, target: Path, defaults: Mapping[str, Any]) -> None:
        is_same = workspace.resolve() == target.resolve()
        self._fixed_values = {
            "workspaceFolder": "${workspaceFolder}" if is_same else str(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": "${userHome}",
            "cwd": str(Path.cwd()),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        self._defaults = defaults

    def translate(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.translate(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.translate(item) for item in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        text = map_references(value, self._refer, self._fixed_values)
        return _INPUT.sub(self._refer_input, text)

    def _refer(self, name: str, default: str | None) -> str:
        return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"

    def _refer_input(self, match: re.Match[str]) -> str:
        default = self._defaults.get(match[1])
        is_usable = isinstance(default, str) and bool(default) and not set("{}") & set(default)
        return self._refer(input_variable(match[1]), default if is_usable else None)
