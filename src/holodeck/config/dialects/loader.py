"""An `mcp.json`, as any program writes it, from text to the same tools as in an agent file. Never the network."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holodeck.config.dialects.draft import Draft
from holodeck.config.dialects.listing import Listing, list_entries
from holodeck.config.dialects.programs import program_of
from holodeck.config.dialects.references import vocabulary
from holodeck.config.dialects.translation import translate
from holodeck.config.document import Document, KeyPath, Place, dotted, read_document
from holodeck.config.jsonc import read_jsonc
from holodeck.config.server_names import allowed_name
from holodeck.config.servers import LoadedServers
from holodeck.config.source import Source, resolve_document
from holodeck.config.substitution import Vocabulary
from holodeck.config.toolfile import LoadedTool, ToolCheck, ToolFile
from holodeck.config.variables import substitute
from holodeck.lib.errors import Problem
from holodeck.models.agent import SharedSettings
from holodeck.models.base import shown

_KEY = "mcp_servers"
_PLACE = re.compile(rf"{_KEY}\[(\d+)\](?:\.([A-Za-z_]+))?(?:\.([A-Za-z_]+))?")


def load_mcp_servers(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    checks: Sequence[ToolCheck] = (),
    cwd: Path | None = None,
) -> LoadedServers:
    """Read the servers of a file. Raises `ConfigError` only for a file in which no server can be found."""
    environ = os.environ if environ is None else environ
    file, cwd = Path(path).absolute(), cwd or Path.cwd()
    read = read_document if file.suffix in {".yaml", ".yml"} else read_jsonc
    document = read(file, str(path))
    listing = list_entries(document, file, cwd)
    words = vocabulary(listing.workspace, environ, listing.inputs, cwd)
    drafts = _drafts(document, listing, file, words, environ)
    servers = [draft for draft in drafts if draft.is_server]
    source = resolve_document(_as_ours(document, servers), file, environ, tools_key=_KEY, vocabulary=words)
    skipped = [problem for draft in drafts if not draft.is_server for problem in draft.problems]
    return _Sorting(source, servers, [*document.problems, *listing.problems, *skipped]).servers(checks)


def _drafts(
    document: Document, listing: Listing, file: Path, words: Vocabulary, environ: Mapping[str, str]
) -> list[Draft]:
    def known(text: str) -> str:
        return substitute(text, environ.get, words.words).text

    drafts: list[Draft] = []
    taken: set[str] = set()
    for entry in listing.entries:
        name = allowed_name(entry.name, taken)
        draft = Draft(entry, document, name, program_of(file, entry))
        if name != entry.name:
            draft.warn((), f"the server {shown(entry.name)} is called '{name}' here")
        draft.is_server = translate(draft, workspace=listing.workspace, known=known)
        taken |= {name} if draft.is_server else set()
        drafts.append(draft)
    return drafts


def _as_ours(document: Document, drafts: Sequence[Draft]) -> Document:
    """The file as it would be in our words, each key with the place of the one that it came from."""
    places: dict[KeyPath, Place] = {}
    texts: dict[KeyPath, str] = {}
    inside = _inside(document, [draft.entry.path for draft in drafts])
    for index, draft in enumerate(drafts):
        here: KeyPath = (_KEY, index)
        start = draft.entry.path
        places[here] = document.place(start)
        for ours, theirs in draft.origins.items():
            origin = (*start, *theirs)
            places[(*here, *ours)] = document.place(origin)
            for path in (path for path in inside[start] if theirs and path[: len(origin)] == origin):
                place = (*here, *ours, *path[len(origin) :])
                places.setdefault(place, document.places[path])
                if path in document.texts:
                    texts.setdefault(place, document.texts[path])
    value: dict[str, Any] = {_KEY: [draft.tool for draft in drafts]}
    return Document(file=document.file, value=value, places=places, texts=texts)


def _inside(document: Document, starts: Sequence[KeyPath]) -> dict[KeyPath, list[KeyPath]]:
    """The paths inside each entry, found in one pass: a file may hold much besides its servers."""
    inside: dict[KeyPath, list[KeyPath]] = {start: [] for start in starts}
    lengths = {len(start) for start in starts}
    for path in document.places:
        for length in lengths:
            if len(path) > length and path[:length] in inside:
                inside[path[:length]].append(path)
    return inside


class _Sorting:
    """Problems go to the server that has them, with the keys that stand in the file."""

    def __init__(self, source: Source, drafts: Sequence[Draft], general: list[Problem]) -> None:
        self._source = source
        self._drafts = drafts
        self._general = general
        self._of: list[list[Problem]] = [list(draft.problems) for draft in drafts]

    def servers(self, checks: Sequence[ToolCheck]) -> LoadedServers:
        file = ToolFile(self._source, _KEY, checks)
        file.validate(SharedSettings)
        tools = {item.tool.name: item for item in file.tools()}
        for problem in file.problems:
            self._sort(problem)
        usable: list[LoadedTool] = []
        refused: dict[str, tuple[Problem, ...]] = {}
        for draft, problems in zip(self._drafts, self._of, strict=True):
            errors = tuple(problem for problem in problems if problem.severity == "error")
            tool = tools.get(draft.name)
            if errors:
                refused[draft.name] = errors
            elif tool is not None:
                usable.append(tool)
        found = [*self._general, *(problem for problems in self._of for problem in problems)]
        found.sort(key=lambda problem: (problem.file != self._source.document.file, problem.line or 0))
        return LoadedServers(tools=tuple(usable), problems=tuple(dict.fromkeys(found)), refused=refused)

    def _sort(self, problem: Problem) -> None:
        match = _PLACE.match(problem.key)
        if match is None:
            self._elsewhere(problem)
            return
        index = int(match[1])
        draft = self._drafts[index]
        if draft.tool.get("enabled") is False:
            problem = dataclasses.replace(problem, severity="warning")
        if problem.severity == "warning" and "'description'" in problem.message:
            return  # these files have no place for one
        origin, rest = self._origin(draft, match, problem.key)
        key = dotted((*draft.entry.path, *origin)) + rest
        self._of[index].append(dataclasses.replace(problem, key=key))

    def _origin(self, draft: Draft, match: re.Match[str], key: str) -> tuple[KeyPath, str]:
        """The key in the file, and what follows it, for a key of ours."""
        for groups in (2, 1):
            ours = tuple(part for part in match.groups()[1 : groups + 1] if part)
            if len(ours) == groups and ours in draft.origins:
                return draft.origins[ours], key[match.end(groups + 1) :]
        return (), key[match.end(1) + 1 :]

    def _elsewhere(self, problem: Problem) -> None:
        """A problem in a file of variables: an error for the servers that name the file, a remark for all others."""
        owners = [
            index
            for index, draft in enumerate(self._drafts)
            if draft.tool.get("env_file") and str(self._source.folder / str(draft.tool["env_file"])) == problem.file
        ]
        for index in owners:
            self._of[index].append(problem)
        if not owners:
            self._general.append(dataclasses.replace(problem, severity="warning"))
