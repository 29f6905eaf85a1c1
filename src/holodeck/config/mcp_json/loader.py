"""Loader of `mcp.json` and similar files of other programs: returns the same tools as an agent file does.

Each entry is translated into the keys of our own files, and the result is resolved and validated like one of them.
Every key remembers the key that it was translated from, so that each problem names the key, and the position, in the
file of the user. An error in one server does not prevent the use of the others. Nothing is started, and the network
is not used.

References with a meaning outside an editor are replaced. The environment has the answers to the `inputs` of a file:
`${input:api-key}` is the variable `INPUT_API_KEY`.

`read_own_entries` returns the servers as entries of our files. References keep their meaning: folders of the other
program become paths, and `${input:id}` becomes a variable. A secret that is written into the file becomes a reference.
What cannot be said in our files is among the problems, as warnings.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from holodeck.config.env_loader import PlaceholderVariables
from holodeck.config.interpolation import (
    Vocabulary,
    malformed_reference_problem,
    map_references,
    missing_variable_problem,
    substitute,
)
from holodeck.config.jsonc import read_jsonc
from holodeck.config.mcp_json.find_servers import TOML_SUFFIX, ServerListing, ToolDraft, find_server_entries
from holodeck.config.mcp_json.literal_secrets import ReplacedSecret, replace_secrets
from holodeck.config.mcp_json.programs import program_of
from holodeck.config.mcp_json.toml_reader import read_toml
from holodeck.config.mcp_json.translate import translate_entry
from holodeck.config.server_loader import LoadedServers
from holodeck.config.server_names import make_unique_name
from holodeck.config.source import FileRead, Source, resolve_document
from holodeck.config.tool_list import LoadedTool, ToolListFile
from holodeck.config.yaml_reader import Document, KeyPath, Position, format_key_path, read_document
from holodeck.lib.errors import Problem
from holodeck.lib.record import record
from holodeck.lib.redaction import is_inert_secret
from holodeck.models.agent import SharedSettings
from holodeck.models.file_model import quote_value
from holodeck.models.tool_rules import CommandRule

_SERVERS_KEY = "mcp_servers"
_SERVER_KEY_PATTERN = re.compile(rf"{_SERVERS_KEY}\[(\d+)\](?:\.([A-Za-z_]+))?(?:\.([A-Za-z_]+))?")

_READERS: Mapping[str, Callable[[Path, str], Document]] = {
    ".yaml": read_document,
    ".yml": read_document,
    TOML_SUFFIX: read_toml,
}
EDITOR_WORDS = frozenset(
    {"file", "fileBasename", "fileBasenameNoExtension", "fileExtname", "fileDirname", "fileDirnameBasename"}
    | {"fileWorkspaceFolder", "fileWorkspaceFolderBasename", "relativeFile", "relativeFileDirname", "lineNumber"}
    | {"columnNumber", "selectedText", "selectedPosition", "execPath", "defaultBuildTask", "extensionInstallFolder"}
)
_EDITOR_KINDS: Mapping[str, str] = {
    "command": "runs a command of the editor",
    "config": "reads a setting of the editor",
    "workspaceFolder": "names one of several folders of the editor",
}
_INPUT = re.compile(r"\$\{input:([^{}]*)\}")
_DEFAULTS = (("transport", "stdio"), ("enabled", True))
_ORDER = ("type", "name", "description", "transport", "command", "args", "env", "url", "headers", "auth")


def load_mcp_servers(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> LoadedServers:
    """Read the servers of a file. Raises `ConfigError` for a file that cannot be parsed or has no list of servers.

    `cwd`: the working folder, where a file has lists for several folders.
    """
    environ = os.environ if environ is None else environ
    return load_server_entries(_read_document(path), Path(path).absolute(), environ, cwd or Path.cwd())


def load_server_entries(document: Document, file: Path, environ: Mapping[str, str], cwd: Path) -> LoadedServers:
    """Read the servers of a document. `file`: where it is, or would be. Raises as `load_mcp_servers` does."""
    listing = find_server_entries(document, file, cwd)
    vocabulary = build_vocabulary(listing.workspace, environ, listing.inputs, cwd)
    drafts = _translate_entries(document, listing, file, vocabulary, environ)
    servers = [draft for draft in drafts if draft.is_server]
    source = resolve_document(
        _to_own_document(document, servers), file, environ, tools_key=_SERVERS_KEY, vocabulary=vocabulary
    )
    skipped = [problem for draft in drafts if not draft.is_server for problem in draft.problems]
    loaded = _ProblemSorter(source, servers, [*document.problems, *listing.problems, *skipped]).load_servers()
    return dataclasses.replace(loaded, reads=(*loaded.reads, *_input_defaults(listing)))


def read_listing(path: str | os.PathLike[str], cwd: Path) -> ServerListing:
    """Return the server entries of a file as written. Raises as `load_mcp_servers` does."""
    return find_server_entries(_read_document(path), Path(path).absolute(), cwd)


def _read_document(path: str | os.PathLike[str]) -> Document:
    file = Path(path).absolute()
    return _READERS.get(file.suffix, read_jsonc)(file, str(path))


def _input_defaults(listing: ServerListing) -> Iterator[FileRead]:
    """Yield the answers that the file itself gives to its `inputs`, in the form of a `.env` file."""
    given = [item for item in listing.inputs if isinstance(item.get("default"), str)]
    defaults = {
        str(item.get("id")): item["default"]
        for item in given
        if not is_inert_secret("password" if item.get("password") is True else str(item.get("id")), item["default"])
    }
    if defaults:
        yield FileRead(path="inputs", variables=tuple(sorted(defaults.items())))


def _translate_entries(
    document: Document, listing: ServerListing, file: Path, vocabulary: Vocabulary, environ: Mapping[str, str]
) -> list[ToolDraft]:
    def expand(text: str) -> str:
        return substitute(text, environ.get, vocabulary.fixed_values).text

    drafts: list[ToolDraft] = []
    used_names: set[str] = set()
    for entry in listing.entries:
        name = make_unique_name(entry.name, used_names)
        draft = ToolDraft(entry, document, name, program_of(file, entry.path[:-1], entry.value))
        if name != entry.name:
            draft.warn((), f"the server {quote_value(entry.name)} is called '{name}' here")
        draft.is_server = translate_entry(draft, workspace=listing.workspace, expand=expand)
        used_names |= {name} if draft.is_server else set()
        drafts.append(draft)
    return drafts


def _to_own_document(document: Document, drafts: Sequence[ToolDraft]) -> Document:
    """Return the document with the translated entries, each key with the position of the key that it was translated
    from."""
    positions: dict[KeyPath, Position] = {}
    texts: dict[KeyPath, str] = {}
    inside = _paths_inside(document, [draft.entry.path for draft in drafts])
    for index, draft in enumerate(drafts):
        here: KeyPath = (_SERVERS_KEY, index)
        start = draft.entry.path
        positions[here] = document.position_of(start)
        for ours, theirs in draft.origins.items():
            origin = (*start, *theirs)
            positions[(*here, *ours)] = document.position_of(origin)
            for path in (path for path in inside[start] if theirs and path[: len(origin)] == origin):
                own_path = (*here, *ours, *path[len(origin) :])
                positions.setdefault(own_path, document.positions[path])
                if path in document.texts:
                    texts.setdefault(own_path, document.texts[path])
    value: dict[str, Any] = {_SERVERS_KEY: [draft.tool for draft in drafts]}
    return Document(file=document.file, value=value, positions=positions, texts=texts)


def _paths_inside(document: Document, starts: Sequence[KeyPath]) -> dict[KeyPath, list[KeyPath]]:
    """Return the key paths inside each entry, found in one pass: a file may have many values besides its servers."""
    inside: dict[KeyPath, list[KeyPath]] = {start: [] for start in starts}
    lengths = {len(start) for start in starts}
    for path in document.positions:
        for length in lengths:
            if len(path) > length and path[:length] in inside:
                inside[path[:length]].append(path)
    return inside


class _ProblemSorter:
    """Validates the translated servers, and assigns each problem to its server, with the key in the user's file."""

    def __init__(self, source: Source, drafts: Sequence[ToolDraft], file_problems: list[Problem]) -> None:
        self._source = source
        self._drafts = drafts
        self._file_problems = file_problems
        self._problems_by_server: list[list[Problem]] = [list(draft.problems) for draft in drafts]

    def load_servers(self) -> LoadedServers:
        # The file starts what its program would start. A user decides about all of it at once, by trusting the file.
        file = ToolListFile(self._source, _SERVERS_KEY, (), CommandRule(allows_all=True))
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
        return LoadedServers(
            tools=tuple(usable), problems=tuple(dict.fromkeys(found)), refused=refused, reads=self._source.reads
        )

    def _assign_problem(self, problem: Problem) -> None:
        match = _SERVER_KEY_PATTERN.match(problem.key)
        if match is None:
            self._assign_env_file_problem(problem)
            return
        index = int(match[1])
        draft = self._drafts[index]
        if draft.tool.get("enabled") is False:
            problem = dataclasses.replace(problem, severity="warning")
        # These files have no key for a description.
        if problem.severity == "warning" and "'description'" in problem.message:
            return
        origin, rest = self._find_origin(draft, match, problem.key)
        key = format_key_path((*draft.entry.path, *origin)) + rest
        self._problems_by_server[index].append(dataclasses.replace(problem, key=key))

    def _find_origin(self, draft: ToolDraft, match: re.Match[str], key: str) -> tuple[KeyPath, str]:
        """Return the key in the entry that one of our keys was translated from, and the rest of the key path behind
        it."""
        for groups in (2, 1):
            ours = tuple(part for part in match.groups()[1 : groups + 1] if part)
            if len(ours) == groups and ours in draft.origins:
                return draft.origins[ours], key[match.end(groups + 1) :]
        return (), key[match.end(1) + 1 :]

    def _assign_env_file_problem(self, problem: Problem) -> None:
        """Assign a problem of a `.env` file to the servers that name the file; without any, it is a warning."""
        indexes = [
            index
            for index, draft in enumerate(self._drafts)
            if draft.tool.get("env_file") and str(self._source.folder / str(draft.tool["env_file"])) == problem.file
        ]
        for index in indexes:
            self._problems_by_server[index].append(problem)
        if not indexes:
            self._file_problems.append(dataclasses.replace(problem, severity="warning"))


def build_vocabulary(
    workspace: Path, environ: Mapping[str, str], inputs: Iterable[Mapping[str, Any]], cwd: Path
) -> Vocabulary:
    """Return the vocabulary of a file: folders, separators, and the answers to its `inputs` from the environment."""
    fixed_values = {
        "workspaceFolder": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "userHome": str(Path.home()),
        "cwd": str(cwd),
        "pathSeparator": os.sep,
        "/": os.sep,
    }
    known = {str(item.get("id")): item for item in inputs}
    answers = {f"input:{name}": _find_input_answer(name, item, environ) for name, item in known.items()}
    fixed_values |= {name: answer for name, answer in answers.items() if answer is not None}

    def malformed_problem(written: str) -> Problem:
        kind, colon, name = written.removeprefix("${").removesuffix("}").partition(":")
        if kind == "input" and colon:
            return _unanswered_input_problem(name, known.get(name), environ)
        if kind in _EDITOR_KINDS and colon:
            return _editor_only_problem(written, _EDITOR_KINDS[kind])
        return malformed_reference_problem(written)

    return Vocabulary(
        fixed_values=fixed_values, missing_problem=_missing_variable_problem, malformed_problem=malformed_problem
    )


def input_variable(name: str) -> str:
    """Return the environment variable with the answer to an input: `INPUT_API_KEY` for `api-key`."""
    return "INPUT_" + re.sub(r"[^A-Za-z0-9]+", "_", name).upper()


def _find_input_answer(name: str, item: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    answer = environ.get(input_variable(name))
    default = item.get("default")
    return answer if answer is not None else default if isinstance(default, str) and default else None


def _unanswered_input_problem(name: str, item: Mapping[str, Any] | None, environ: Mapping[str, str]) -> Problem:
    variable = input_variable(name)
    about = f" ({item['description']})" if item and isinstance(item.get("description"), str) else ""
    if item is None and variable in environ:
        return Problem(
            message=f"the input {quote_value(name)} is not listed in 'inputs'", fix="List it, or use ${env:NAME}."
        )
    return Problem(message=f"the input {quote_value(name)} has no answer{about}", fix=f"Set it: export {variable}=...")


def _missing_variable_problem(name: str) -> Problem:
    if name in EDITOR_WORDS:
        return _editor_only_problem(f"${{{name}}}", "speaks of what is open in the editor")
    missing = missing_variable_problem(name)
    return Problem(
        message=missing.message,
        fix=f"Set it (export {name}=...), put it in a .env file beside this file, or write ${{{name}:-default}}.",
    )


def _editor_only_problem(written: str, what: str) -> Problem:
    return Problem(
        message=f"{quote_value(written)} {what}, which does not exist here",
        fix="Write the value, ${workspaceFolder}, or a variable: ${env:NAME}.",
    )


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
