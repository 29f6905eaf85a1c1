"""Plans the sandbox of a server's process: the files that it may reach, and a home folder of its own.

The home folder belongs to one server of one agent file and stays between starts, so that what npx or uvx downloads is
in no cache from which a program outside of the sandbox would start it. It contains the folder for temporary files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from holodeck.lib.errors import MCPConfigError
from holodeck.lib.system.files import make_private_folder, user_cache_folder
from holodeck.lib.system.landlock import build_command, find_missing
from holodeck.models.tool import Sandbox

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix/store", "/proc", "/sys"),
    # Often a link to a file in /run, which has much that is not for servers.
    "/etc/resolv.conf",
)
# No terminal: what the user types in another window could be read there.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")  # noqa: S108
# Beside `bin`, what an interpreter or package manager needs to start.
_BESIDE_BIN = ("lib", "lib64", "libexec", "pyvenv.cfg")
# Variables that name folders of the user, in which the server may not write.
_FOLDER_VARIABLES = frozenset(
    {"TEMP", "TMP", "npm_config_cache", "npm_config_userconfig", "UV_CACHE_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR"}
    | {"UV_PYTHON_INSTALL_DIR", "UV_PYTHON_BIN_DIR", "UV_PYTHON_CACHE_DIR", "UV_CONFIG_FILE"}
)
# npx and uvx then start what they have downloaded before, and fail at once without it.
_OFFLINE = {"npm_config_offline": "true", "UV_OFFLINE": "1"}


def plan_sandbox(
    limits: Sandbox,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    own_variables: Iterable[str],
    server: str,
    folder: Path,
    cwd: Path,
    read: Iterable[Path] = (),
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command and the environment that start `argv` in its sandbox. Creates the home folder of the server.

    `folder` is that of the agent file; `own_variables` are set by the tool and not changed; `read` are paths that the
    launch itself needs. Raises `MCPConfigError` if this machine cannot do it or a path is wrong, `FileNotFoundError`
    if there is no such command, and other OSErrors of the file system.
    """
    missing = find_missing()
    if missing:
        raise MCPConfigError(f"'sandbox' does not work on this machine: {missing}. Remove it, or use command: docker.")
    program = _find_program(argv[0], env, cwd)
    home = user_cache_folder() / "sandboxes" / sha256(f"{folder.absolute()}\0{server}".encode()).hexdigest()[:32]
    temporary = home / "tmp"
    make_private_folder(temporary)
    programs = [program, *_find_helpers(argv[0], env)]
    readable = [*map(Path, _SYSTEM), *read, *(path for each in programs for path in _list_program_files(each))]
    prefix = env.get("npm_config_prefix")
    if prefix:
        readable += [Path(prefix, name) for name in ("bin", "lib", "lib/node_modules")]
    command = build_command(
        str(program),
        argv,
        read=[*_list_existing(readable), *(_require_path(folder, path, "read") for path in limits.read)],
        write=[
            *_list_existing([*map(Path, _DEVICES), home]),
            *(_require_path(folder, path, "write") for path in limits.write),
        ],
        network=limits.network,
    )
    kept = set(own_variables)
    inherited = {name: value for name, value in env.items() if name in kept or not _names_folder(name)}
    own = {"HOME": str(home), "TMPDIR": str(temporary), **({} if limits.network else _OFFLINE)}
    return command, inherited | {name: value for name, value in own.items() if name not in kept}


def _names_folder(name: str) -> bool:
    return name in _FOLDER_VARIABLES or name.startswith("XDG_")


def _find_program(command: str, env: Mapping[str, str], cwd: Path) -> Path:
    if "/" in command:
        return cwd.absolute() / command
    found = shutil.which(command, path=env.get("PATH"))
    if found is None:
        raise FileNotFoundError(command)
    return Path(found).absolute()


def _find_helpers(command: str, env: Mapping[str, str]) -> Iterator[Path]:
    """The programs that the command itself starts, which may be installed elsewhere."""
    for name in {"npx": ("node",), "uvx": ("uv",)}.get(command, ()):
        found = shutil.which(name, path=env.get("PATH"))
        if found is not None:
            yield Path(found).absolute()


def _list_program_files(program: Path) -> Iterator[Path]:
    """The program and what it is installed with, also where it is a link to."""
    for path in (program, program.resolve()):
        yield path
        if path.parent.name == "bin":
            yield path.parent
            yield from (path.parent.parent / name for name in _BESIDE_BIN)
        else:
            yield from _list_package(path)


def _list_package(path: Path) -> Iterator[Path]:
    """The npm package of a script, which a link in a `bin` leads to."""
    parts = path.parts
    if "node_modules" in parts:
        yield Path(*parts[: parts.index("node_modules") + 1])


def _list_existing(paths: Iterable[Path]) -> list[str]:
    return list(dict.fromkeys(str(path) for path in paths if path.exists()))


def _require_path(folder: Path, text: str, key: str) -> str:
    path = (folder / text).absolute()
    if not path.exists():
        raise MCPConfigError(f"'{path}' does not exist. Create it, or correct 'sandbox.{key}'.")
    # With these a server could start what it likes outside of its sandbox.
    own = (Path.home() / ".holodeck", user_cache_folder())
    if any(each.resolve().is_relative_to(path.resolve()) for each in own):
        problem = f"'{path}' contains your home folder or HoloDeck's own files: the sandbox would protect nothing"
        fix = f"Move your file into a folder of its own, or list other folders in 'sandbox.{key}'"
        raise MCPConfigError(f"{problem}. {fix}.")
    return str(path)
