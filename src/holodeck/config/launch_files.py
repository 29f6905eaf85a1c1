"""The files of a project that a server's command or a function's file runs, each with the hash of its content.

A command names a script, a module or a package in the folder of the file, and its interpreter imports what lies beside
it first, as a function's file imports Python files of its own folder. What a command names as data, such as a database
or a folder to serve, is not among them: it may change. Everything is found by name, without starting anything. What
lies in `node_modules`, in an environment, or elsewhere on the machine is not looked at. Of one folder, `MAX_CODE_FILES`
files are hashed and the others counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import islice
from pathlib import Path

from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.limits import MIB
from holodeck.lib.record import record
from holodeck.lib.system.files import read_regular_file
from holodeck.models.tool import MCPTool

# Files without a hash that are counted: walking a larger data set would take seconds.
MAX_COUNTED_FILES = 100_000
_SCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")
CODE_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_CODE_SUFFIXES = (*CODE_SUFFIXES, *_SCRIPT_SUFFIXES, ".sh", ".bash", ".rb", ".pl", ".php", ".lua", ".jar", ".wasm")
_SETTINGS_SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".env")
_COMPOSE_FILES = tuple(
    f"{name}{middle}.{suffix}"
    for name in ("compose", "docker-compose")
    for middle in ("", ".override")
    for suffix in ("yaml", "yml")
)
_PYTHON_PROJECT = ("pyproject.toml", "uv.lock", "setup.py", "uv.toml")
_SCRIPT_PROJECT = ("package.json", "package-lock.json", "tsconfig.json", "deno.json", "bunfig.toml", ".npmrc")
_SCRIPT_PROGRAMS = frozenset({"node", "nodejs", "deno", "bun", "bunx", "tsx", "ts-node", "npm", "pnpm", "yarn", "npx"})
_FOLDER_OPTIONS = frozenset({"--from", "--directory", "--project", "--prefix", "--with-editable", "-C", "--package"})
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
# Files of one folder: a project has dozens. More are those of an environment or of a data set.
MAX_CODE_FILES = 2_000
# Bytes of one file: extension modules are large.
MAX_CODE_BYTES = 256 * MIB
_NOT_PACKAGES = frozenset({"__pycache__", "node_modules"})


@record
class LaunchFiles:
    """The files of a folder that the command of a server runs."""

    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files, by their paths in the folder."""
    uncovered: Mapping[str, int] = field(default_factory=dict)
    """Number of further files without a hash, by the path of a folder with too many, or of a file that is too large."""


def hash_launch_files(tool: MCPTool, folder: Path) -> LaunchFiles:
    """Hash the files below `folder` that the command of a server runs.

    Reads files, and raises nothing: one that cannot be read cannot be run either.
    """
    if not tool.starts_process or tool.command is None:
        return LaunchFiles()
    finder = _FileFinder(Path(tool.cwd or folder), folder.resolve())
    digests: dict[str, str] = {}
    for path in finder.find([str(tool.command), *(tool.args or ())]):
        try:
            data = read_regular_file(path, MAX_CODE_BYTES)
        except OSError:
            continue
        if len(data) == MAX_CODE_BYTES:
            finder.uncovered[path] = 1
        else:
            digests[os.path.relpath(path, folder)] = sha256(data).hexdigest()
    uncovered = {os.path.relpath(path, folder): count for path, count in finder.uncovered.items()}
    return LaunchFiles(digests=digests, uncovered=uncovered)


class _FileFinder:
    """Finds the files that a command runs in the folder `cwd`. Those outside `root` are not among them."""

    def __init__(self, cwd: Path, root: Path) -> None:
        self._cwd = cwd
        self._root = root
        self.uncovered: dict[Path, int] = {}
        """How many files of a folder are not found, because it has too many."""

    def find(self, argv: Sequence[str]) -> Iterator[Path]:
        program = Path(argv[0]).name.lower().removesuffix(".exe")
        is_python = program.startswith(("python", "pypy")) or program in ("uv", "uvx", "py")
        if "/" in argv[0]:
            yield from self._inside([self._cwd / argv[0]])
        # `-m` and `-c` put the working folder first; `uv run` installs the project that lies there.
        takes_cwd = is_python and (program == "uv" or {"-m", "-c"} & set(argv))
        if takes_cwd:
            yield from self._list_python(self._cwd)
        if program in ("docker", "podman") and "compose" in argv:
            yield from self._inside([self._cwd / name for name in _COMPOSE_FILES])
        previous = ""
        for arg in argv[1:]:
            option, _, value = arg.partition("=") if arg.startswith("-") else (previous, "", arg)
            previous = arg if arg.startswith("-") else ""
            # A line for a shell names its files among other words.
            words = value.split() if program in _SHELLS and option.startswith("-") else [value]
            for word in words:
                yield from self._find_argument(option, word.strip("'\";"), program)

    def _find_argument(self, option: str, value: str, program: str) -> Iterator[Path]:
        if not value or "\0" in value or "://" in value:
            return
        path = self._cwd / value.removeprefix("file:")
        try:
            is_file, is_folder = path.is_file(), path.is_dir()
        except OSError:
            return
        if is_file and _is_code(path, option):
            yield from self._inside([path])
            if path.suffix in CODE_SUFFIXES:
                yield from self._list_python(path.parent)
            elif path.suffix in _SCRIPT_SUFFIXES:
                yield from self._list_scripts(path.parent)
        elif is_folder and (option in _FOLDER_OPTIONS or _is_main(path)):
            yield from self._list_scripts(path) if program in _SCRIPT_PROGRAMS else self._list_python(path)

    def _list_python(self, folder: Path) -> Iterator[Path]:
        yield from self._inside(folder / name for name in _PYTHON_PROJECT)
        yield from self._take(folder, walk_code_files(folder))

    def _list_scripts(self, folder: Path) -> Iterator[Path]:
        folders = [folder, *(parent for parent in folder.parents if parent.resolve().is_relative_to(self._root))]
        yield from self._inside(each / name for each in folders for name in _SCRIPT_PROJECT)
        yield from self._take(folder, _walk_scripts(folder))

    def _take(self, folder: Path, found: Iterator[Path]) -> Iterator[Path]:
        """Yield the first of the files of a folder. The others are counted."""
        yield from self._inside(islice(found, MAX_CODE_FILES))
        more = sum(1 for _ in islice(found, MAX_COUNTED_FILES))
        if more and folder.resolve().is_relative_to(self._root):
            self.uncovered[Path(os.path.normpath(folder))] = more

    def _inside(self, paths: Iterable[Path]) -> Iterator[Path]:
        """Yield the files among these that are in the root. Those of the machine are the person's own."""
        for path in paths:
            if path.is_file() and path.absolute().parent.resolve().is_relative_to(self._root):
                yield Path(os.path.normpath(path))


def _is_code(path: Path, option: str) -> bool:
    if path.name.endswith(_CODE_SUFFIXES) or os.access(path, os.X_OK):
        return True
    is_setting = "config" in option or option in ("-f", "--file", "--env-file", "--import", "--require", "-r")
    return is_setting and path.name.endswith(_SETTINGS_SUFFIXES)


def _is_main(folder: Path) -> bool:
    """Return whether a folder is a program: Python and Node start it by its name."""
    return any((folder / name).is_file() for name in ("__main__.py", "package.json", "pyproject.toml"))


def _walk_scripts(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each != "node_modules" and not each.startswith("."))
        yield from (Path(here) / name for name in sorted(names) if name.endswith((*_SCRIPT_SUFFIXES, ".node", ".json")))


def hash_code_files(folder: Path) -> dict[Path, str]:
    """Return the SHA-256 of each file below `folder` that Python can import from there.

    Raises `ConfigError` for more than `MAX_CODE_FILES` files. A file that cannot be read is left out, and therefore
    cannot be imported either.
    """
    found: dict[Path, str] = {}
    for path in walk_code_files(folder):
        if len(found) == MAX_CODE_FILES:
            message = f"the folder of this function has more than {MAX_CODE_FILES:,} Python files that it could import"
            raise ConfigError.of([Problem(message=message, fix="Put the functions into a folder of their own.")])
        try:
            data = read_regular_file(path, MAX_CODE_BYTES)
        except OSError:
            continue
        found[path] = sha256(data).hexdigest()
    return found


def walk_code_files(folder: Path) -> Iterator[Path]:
    """Yield each file below `folder` that Python can import from there, in a stable order."""
    return _walk(folder, set())


def is_package_name(name: str) -> bool:
    """Return whether a folder of this name can be a package: `site-packages` and `.venv` cannot."""
    return name.isidentifier() and name not in _NOT_PACKAGES


def _walk(folder: Path, seen: set[str]) -> Iterator[Path]:
    # A link may lead to a folder above.
    real = os.path.realpath(folder)
    if real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith(CODE_SUFFIXES):
            yield folder / entry.name
        elif is_package_name(entry.name) and entry.is_dir():
            yield from _walk(folder / entry.name, seen)
