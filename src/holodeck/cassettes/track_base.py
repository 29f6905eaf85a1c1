"""The common part of a track in a recording and in a replay: ids, the agent's folder, and the secrets to mask."""

from __future__ import annotations

import hashlib
from pathlib import Path

from holodeck.cassettes.recording.redactor import Redactor
from holodeck.cassettes.workspace import Workspace

# Hexadecimal digits of an id, as many as a random one has.
_ID_DIGITS = 32


class TrackBase:
    """One track of an opened cassette."""

    def __init__(self, name: str, redactor: Redactor, workspace: Workspace) -> None:
        self.name = name
        self._redactor = redactor
        self._workspace = workspace
        self._ids = 0
        self.agent = ""
        """Name of the agent file that was used first."""

    def set_agent(self, path: Path) -> None:
        self.agent = self.agent or path.name
        self._workspace.set_folder(path.parent)

    def make_id(self, prefix: str) -> str:
        self._ids += 1
        digest = hashlib.sha256(f"{self.name}/{self._ids}".encode()).hexdigest()
        return f"{prefix}_{digest[:_ID_DIGITS]}"
