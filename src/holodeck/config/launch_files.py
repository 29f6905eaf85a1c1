"""The files of a project that a server's command runs, each with the hash of its content.

A command names a script, a module or a package in the folder of the file, and its interpreter imports what lies beside
it first. What a command names as data, such as a database or a folder to serve, is not among them: it may change.
Everything is found by name, without starting anything, and within `MAX_CODE_FILES` for one folder: what lies in
`node_modules`, in an environment, or elsewhere on the machine is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path

from holodeck.config.code_files import CODE_SUFFIXES, MAX_CODE_BYTES, MAX_CODE_FILES, walk_code_files
from holodeck.lib.system.files import read_regular_file
from holodeck.models.tool import MCPTool

_SCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")
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


def hash_launch_files(tool: MCPTool, folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below `folder` that the command of a server runs, by its path in the folder.

    Reads files, and raises nothing: one that cannot be read cannot be run either.
    """
    if not tool.starts_process or tool.command is None:
        return {}
    root = folder.resolve()
    found: dict[str, str] = {}
    for path in _find_files([str(tool.command), *(tool.args or ())], Path(tool.cwd or folder), root):
        try:
            data = read_regular_file(path, MAX_CODE_BYTES)
        except OSError:
            continue
        found[os.path.relpath(path, folder)] = sha256(data).hexdigest()
    return found


def _find_files(argv: Sequence[str], cwd: Path, root: Path) -> Iterator[Path]:
    program = Path(argv[0]).name.lower().removesuffix(".exe")
    is_python = program.startswith(("python", "pypy")) or program in ("uv", "uvx", "py")
    if "/" in argv[0]:
        yield from _inside([cwd / argv[0]], root)
    # `-m` and `-c` put the working folder first; `uv run` installs the project that lies there.
    takes_cwd = is_python and (program == "uv" or {"-m", "-c"} & set(argv))
    if takes_cwd:
        yield from _list_python(cwd, root)
    if program in ("docker", "podman") and "compose" in argv:
        yield from _inside([cwd / name for name in _COMPOSE_FILES], root)
    previous = ""
    for arg in argv[1:]:
        option, _, value = arg.partition("=") if arg.startswith("-") else (previous, "", arg)
        previous = arg if arg.startswith("-") else ""
        # A line for a shell names its files among other words.
        words = value.split() if program in _SHELLS and option.startswith("-") else [value]
        for word in words:
            yield from _find_argument(option, word.strip("'\";"), program, cwd, root)


def _find_argument(option: str, value: str, program: str, cwd: Path, root: Path) -> Iterator[Path]:
    if not value or "\0" in value or "://" in value:
        return
    path = cwd / value.removeprefix("file:")
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except OSError:
        return
    if is_file and _is_code(path, option):
        yield from _inside([path], root)
        if path.suffix in CODE_SUFFIXES:
            yield from _list_python(path.parent, root)
        elif path.suffix in _SCRIPT_SUFFIXES:
            yield from _list_scripts(path.parent, root)
    elif is_folder and (option in _FOLDER_OPTIONS or _is_main(path)):
        list_files: Callable[[Path, Path], Iterator[Path]] = (
            _list_scripts if program in _SCRIPT_PROGRAMS else _list_python
        )
        yield from list_files(path, root)


def _is_code(path: Path, option: str) -> bool:
    if path.name.endswith(_CODE_SUFFIXES) or os.access(path, os.X_OK):
        return True
    is_setting = "config" in option or option in ("-f", "--file", "--env-file", "--import", "--require", "-r")
    return is_setting and path.name.endswith(_SETTINGS_SUFFIXES)


def _is_main(folder: Path) -> bool:
    """Whether a folder is a program: Python and Node start it by its name."""
    return any((folder / name).is_file() for name in ("__main__.py", "package.json", "pyproject.toml"))


def _list_python(folder: Path, root: Path) -> Iterator[Path]:
    beside = [folder / name for name in _PYTHON_PROJECT]
    yield from _inside([*beside, *islice(walk_code_files(folder), MAX_CODE_FILES)], root)


def _list_scripts(folder: Path, root: Path) -> Iterator[Path]:
    folders = [folder, *(parent for parent in folder.parents if parent.resolve().is_relative_to(root))]
    settings = [each / name for each in folders for name in _SCRIPT_PROJECT]
    yield from _inside([*settings, *islice(_walk_scripts(folder), MAX_CODE_FILES)], root)


def _walk_scripts(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each != "node_modules" and not each.startswith("."))
        yield from (Path(here) / name for name in sorted(names) if name.endswith((*_SCRIPT_SUFFIXES, ".node", ".json")))


def _inside(paths: Sequence[Path], root: Path) -> Iterator[Path]:
    """The files among these that are in the folder. Those of the machine are the person's own."""
    for path in paths:
        if path.is_file() and path.absolute().parent.resolve().is_relative_to(root):
            yield Path(os.path.normpath(path))
