"""An `mcp.json`, as any program writes it, from text to the same tools as in an agent file. Never the network."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holodeck.config.interpolation import Vocabulary
from holodeck.config.jsonc import read_jsonc
from holodeck.config.mcp_json.find_servers import ServerListing, find_server_entries
from holodeck.config.mcp_json.programs import program_of
from holodeck.config.mcp_json.tool_draft import ToolDraft
from holodeck.config.mcp_json.translate import translate_entry
from holodeck.config.mcp_json.variables import build_vocabulary
from holodeck.config.server_loader import LoadedServers
from holodeck.config.server_names import make_unique_name
from holodeck.config.source import Source, resolve_document
from holodeck.config.tool_list import LoadedTool, ToolCheck, ToolListFile
from holodeck.config.variable_syntax import substitute
from holodeck.config.yaml_reader import Document, KeyPath, Position, format_key_path, read_document
from holodeck.lib.errors import Problem
from holodeck.models.agent import SharedSettings
from holodeck.models.file_model import quote_value

_SERVERS_KEY = "mcp_servers"
_SERVER_KEY_PATTERN = re.compile(rf"{_SERVERS_KEY}\[(\d+)\](?:\.([A-Za-z_]+))?(?:\.([A-Za-z_]+))?")


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
    listing = find_server_entries(document, file, cwd)
    words = build_vocabulary(listing.workspace, environ, listing.inputs, cwd)
    drafts = _translate_entries(document, listing, file, words, environ)
    servers = [draft for draft in drafts if draft.is_server]
    source = resolve_document(
        _to_own_document(document, servers), file, environ, tools_key=_SERVERS_KEY, vocabulary=words
    )
    skipped = [problem for draft in drafts if not draft.is_server for problem in draft.problems]
    return _ProblemSorter(source, servers, [*document.problems, *listing.problems, *skipped]).load_servers(checks)


def _translate_entries(
    document: Document, listing: ServerListing, file: Path, words: Vocabulary, environ: Mapping[str, str]
) -> list[ToolDraft]:
    def expand(text: str) -> str:
        return substitute(text, environ.get, words.words).text

    drafts: list[ToolDraft] = []
    taken: set[str] = set()
    for entry in listing.entries:
        name = make_unique_name(entry.name, taken)
        draft = ToolDraft(entry, document, name, program_of(file, entry))
        if name != entry.name:
            draft.warn((), f"the server {quote_value(entry.name)} is called '{name}' here")
        draft.is_server = translate_entry(draft, workspace=listing.workspace, expand=expand)
        taken |= {name} if draft.is_server else set()
        drafts.append(draft)
    return drafts


def _to_own_document(document: Document, drafts: Sequence[ToolDraft]) -> Document:
    """The file as it would be in our words, each key with the place of the one that it came from."""
    places: dict[KeyPath, Position] = {}
    texts: dict[KeyPath, str] = {}
    inside = _paths_inside(document, [draft.entry.path for draft in drafts])
    for index, draft in enumerate(drafts):
        here: KeyPath = (_SERVERS_KEY, index)
        start = draft.entry.path
        places[here] = document.position_of(start)
        for ours, theirs in draft.origins.items():
            origin = (*start, *theirs)
            places[(*here, *ours)] = document.position_of(origin)
            for path in (path for path in inside[start] if theirs and path[: len(origin)] == origin):
                place = (*here, *ours, *path[len(origin) :])
                places.setdefault(place, document.positions[path])
                if path in document.texts:
                    texts.setdefault(place, document.texts[path])
    value: dict[str, Any] = {_SERVERS_KEY: [draft.tool for draft in drafts]}
    return Document(file=document.file, value=value, positions=places, texts=texts)


def _paths_inside(document: Document, starts: Sequence[KeyPath]) -> dict[KeyPath, list[KeyPath]]:
    """The paths inside each entry, found in one pass: a file may hold much besides its servers."""
    inside: dict[KeyPath, list[KeyPath]] = {start: [] for start in starts}
    lengths = {len(start) for start in starts}
    for path in document.positions:
        for length in lengths:
            if len(path) > length and path[:length] in inside:
                inside[path[:length]].append(path)
    return inside


class _ProblemSorter:
    """Problems go to the server that has them, with the keys that stand in the file."""

    def __init__(self, source: Source, drafts: Sequence[ToolDraft], file_problems: list[Problem]) -> None:
        self._source = source
        self._drafts = drafts
        self._file_problems = file_problems
        self._problems_by_server: list[list[Problem]] = [list(draft.problems) for draft in drafts]

    def load_servers(self, checks: Sequence[ToolCheck]) -> LoadedServers:
        file = ToolListFile(self._source, _SERVERS_KEY, checks)
        file.validate(SharedSettings)
        tools = {item.tool.name: item for item in file.load_tools()}
        for problem in file.problems:
            self._assign_problem(problem)
        usable: list[LoadedTool] = []
        refused: dict[str, tuple[Problem, ...]] = {}
        for draft, problems in zip(self._drafts, self._problems_by_server, strict=True):
            errors = tuple(problem for problem in problems if problem.severity == "error")
            tool = tools.get(draft.name)
            if errors:
                refused[draft.name] = errors
            elif tool is not None:
                usable.append(tool)
        found = [*self._file_problems, *(problem for problems in self._problems_by_server for problem in problems)]
        found.sort(key=lambda problem: (problem.file != self._source.document.file, problem.line or 0))
        return LoadedServers(tools=tuple(usable), problems=tuple(dict.fromkeys(found)), refused=refused)

    def _assign_problem(self, problem: Problem) -> None:
        match = _SERVER_KEY_PATTERN.match(problem.key)
        if match is None:
            self._assign_env_file_problem(problem)
            return
        index = int(match[1])
        draft = self._drafts[index]
        if draft.tool.get("enabled") is False:
            problem = dataclasses.replace(problem, severity="warning")
        if problem.severity == "warning" and "'description'" in problem.message:
            return  # these files have no place for one
        origin, rest = self._find_origin(draft, match, problem.key)
        key = format_key_path((*draft.entry.path, *origin)) + rest
        self._problems_by_server[index].append(dataclasses.replace(problem, key=key))

    def _find_origin(self, draft: ToolDraft, match: re.Match[str], key: str) -> tuple[KeyPath, str]:
        """The key in the file, and what follows it, for a key of ours."""
        for groups in (2, 1):
            ours = tuple(part for part in match.groups()[1 : groups + 1] if part)
            if len(ours) == groups and ours in draft.origins:
                return draft.origins[ours], key[match.end(groups + 1) :]
        return (), key[match.end(1) + 1 :]

    def _assign_env_file_problem(self, problem: Problem) -> None:
        """A problem in a file of variables: an error for the servers that name the file, a remark for all others."""
        owners = [
            index
            for index, draft in enumerate(self._drafts)
            if draft.tool.get("env_file") and str(self._source.folder / str(draft.tool["env_file"])) == problem.file
        ]
        for index in owners:
            self._problems_by_server[index].append(problem)
        if not owners:
            self._file_problems.append(dataclasses.replace(problem, severity="warning"))
