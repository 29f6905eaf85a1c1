"""Plans the sandbox of a server's process: the files that it may reach, and a home folder of its own.

The server reads the folder of the agent file, and writes to its home folder and what the file names. What decides what
runs outside of the sandbox (the agent file, the lock, `.env`, `.git`) is never writable, and `.env` never readable.

The home folder belongs to one server of one agent file and stays between starts, so that what npx or uvx downloads is
in no cache from which a program outside of the sandbox would start it. It contains the folder for temporary files.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Beside `bin`, what an interpreter or package manager needs to start.
_BESIDE_BIN = ("lib", "lib64", "libexec", "pyvenv.cfg")
# Folders of version managers, such as pyenv: each program in them is a script that starts the real one.
_SHIMS = "shims"
# In the folder of the agent file, what decides what is started outside of the sandbox, now or by the next `git commit`.
_CONTROL_FOLDERS = frozenset({".git", ".holodeck", ".vscode", ".cursor"})
_CONTROL_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".toml", ".lock"})
_ENV_FILES = ".env*"
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
    env_file: str | None = None,
    read: Iterable[Path] = (),
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command and the environment that start `argv` in its sandbox. Creates the home folder of the server.

    `folder` is that of the agent file; `own_variables` are set by the tool and not changed; `env_file` has secrets;
    `read` are paths that the launch itself needs. Raises `MCPConfigError` if this machine cannot do it or a path is
    wrong, `FileNotFoundError` if there is no such command, and other OSErrors of the file system.
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
    named = [_require_path(folder, path, "read") for path in limits.read]
    hidden = {path.resolve() for path in folder.glob(_ENV_FILES)} | ({Path(env_file).resolve()} if env_file else set())
    command = build_command(
        str(program),
        argv,
        browse=[str(path) for path in named if path.is_dir()],
        read=_list_existing([*readable, *(part for path in named for part in _list_without(path, hidden))]),
        write=[
            *_list_existing([*map(Path, _DEVICES), home]),
            *(str(_require_writable(folder, path)) for path in limits.write),
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
    """Yield the programs that the command itself starts, which may be installed elsewhere."""
    for name in {"npx": ("node",), "uvx": ("uv",)}.get(command, ()):
        found = shutil.which(name, path=env.get("PATH"))
        if found is not None:
            yield Path(found).absolute()


def _list_program_files(program: Path) -> Iterator[Path]:
    """Yield the program and what it is installed with, also where it is a link to."""
    for path in (program, program.resolve()):
        yield path
        if path.parent.name == _SHIMS:
            yield path.parent.parent
        elif path.parent.name == "bin":
            yield path.parent
            yield from (path.parent.parent / name for name in _BESIDE_BIN)
        else:
            yield from _list_package(path)


def _list_package(path: Path) -> Iterator[Path]:
    """Yield the npm package of a script, which a link in a `bin` leads to."""
    parts = path.parts
    if "node_modules" in parts:
        yield Path(*parts[: parts.index("node_modules") + 1])


def _list_existing(paths: Iterable[Path]) -> list[str]:
    return list(dict.fromkeys(str(path) for path in paths if path.exists()))


def _list_without(path: Path, hidden: Collection[Path]) -> Iterator[Path]:
    """Yield the path, or what is in it but for the hidden files. What is made there later is not among it."""
    if not any(each.is_relative_to(path.resolve()) for each in hidden):
        yield path
    elif path.is_dir():
        for child in path.iterdir():
            # The target of a link is listed where it is, if it is in the folder.
            if not child.is_symlink():
                yield from _list_without(child, hidden)


def _require_writable(folder: Path, text: str) -> Path:
    path = _require_path(folder, text, "write")
    real, home = path.resolve(), folder.resolve()
    inside = real.relative_to(home).parts if real.is_relative_to(home) else ()
    is_control_file = len(inside) == 1 and (
        inside[0].startswith(".env") or (real.is_file() and real.suffix in _CONTROL_SUFFIXES)
    )
    if home.is_relative_to(real) or is_control_file or (inside and inside[0] in _CONTROL_FOLDERS):
        raise MCPConfigError(
            f"'{path}' has files that decide what is started outside of the sandbox, such as the agent file, the lock, "
            "'.env' or '.git'. List folders with data in 'sandbox.write'."
        )
    return path


def _require_path(folder: Path, text: str, key: str) -> Path:
    path = (folder / text).absolute()
    if not path.exists():
        raise MCPConfigError(f"'{path}' does not exist. Create it, or correct 'sandbox.{key}'.")
    # With these a server could start what it likes outside of its sandbox.
    own = (Path.home() / ".holodeck", user_cache_folder())
    if any(each.resolve().is_relative_to(path.resolve()) for each in own):
        problem = f"'{path}' contains your home folder or HoloDeck's own files: the sandbox would protect nothing"
        fix = f"Move your file into a folder of its own, or list other folders in 'sandbox.{key}'"
        raise MCPConfigError(f"{problem}. {fix}.")
    return path
