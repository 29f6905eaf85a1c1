"""The start of `npx`: its arguments, which are checked, and the folder that it is started in.

The arguments are a package of the registry, followed by the arguments of that package.

Only exact spellings of harmless flags pass, because npx accepts many variants: it reads `-call` and `---call` as
`--call`, splits `-yc`, reads `--yes=--call=x` as two flags, and takes the argument after `--no`, `--no-<anything>` and
even `-yq` as a value, so that flags meant for the server become flags of npx.

In the folder of an agent npx prefers `node_modules` and the `bin` of `package.json` to the named package, reads
`.npmrc`, and puts `node_modules/.bin` of that folder and of all above it on PATH, where a `node` or `sh` would be found
first. It takes all of that from its working directory, not from `--prefix`. So it is started in a folder of ours, with
a shell of ours that changes to the folder of the agent just before the server starts.

A package that npx has fetched before is started without a question to the registry, which takes more than a minute to
fail on a machine without a network. A newer version is fetched when the arguments name it, or say `--prefer-online`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from holodeck.lib.system.files import draft_of, make_private_folder, user_cache_folder
from holodeck.tools.mcp.launch.denylist import describe_danger, find_program, is_from_package
from holodeck.tools.mcp.launch.flags import scan
from holodeck.tools.mcp.launch.refusal import LaunchFinding, quote_flag

SWITCHES = frozenset(
    {
        "-y",
        "--yes",
        "-q",
        "--quiet",
        "-s",
        "--silent",
        "--no-install",
        "--prefer-offline",
        "--prefer-online",
        "--offline",
    }
    | {"--ignore-scripts", "-d", "-dd", "-ddd", "--verbose"}
)
_PACKAGE_FLAGS = frozenset({"-p", "--package"})
_LOG_LEVELS = frozenset({"silent", "error", "warn", "notice", "http", "info", "verbose", "silly"})

_CODE = "would run its value as a shell command"
_SHELL = "would run the server through another program than the system's shell"
_NODE = "would give Node.js options, which can load other code first"
_SETTINGS = "would read npm settings from elsewhere, which can name other code"
_REGISTRY = "would fetch the package from another registry"
_FOLDER = "would run what is installed in another folder"
_DANGERS: Mapping[str, str] = {
    "c": _CODE,
    "call": _CODE,
    "shell": _SHELL,
    "script-shell": _SHELL,
    "node-options": _NODE,
    "node-arg": _NODE,
    "n": _NODE,
    "userconfig": _SETTINGS,
    "globalconfig": _SETTINGS,
    "registry": _REGISTRY,
    "reg": _REGISTRY,
    "prefix": _FOLDER,
    "cache": _FOLDER,
    "w": _FOLDER,
    "workspace": _FOLDER,
}
_UNKNOWN = "is not a flag of npx that is known to be harmless"
_MOVE_ARGUMENTS = "Put the arguments of the server after its package, remove this one"

_NAME = r"(?:@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*"
_VERSION = r"[A-Za-z0-9^~*<>=][A-Za-z0-9.+^~*<>=| _-]*"
_SPEC = re.compile(rf"(?P<name>{_NAME})(?:@(?P<version>{_VERSION})?)?")
_COMMAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ARCHIVE = re.compile(r"\.(?:tgz|tar\.gz|tar)$", re.IGNORECASE)
_NOT_REGISTRY = "would run code from a folder, an archive, a URL or a repository instead of a package of the registry"


def registry_name(spec: str) -> str | None:
    """Return the package name if npm reads the text as a registry package, not as a path, an alias or a repository."""
    match = _SPEC.fullmatch(spec)
    if (
        match is None
        or spec.startswith("-")
        or _ARCHIVE.search(match["name"])
        or _ARCHIVE.search(match["version"] or "")
    ):
        return None
    return match["name"]


def find_packages(args: Sequence[str]) -> list[str]:
    """Return the packages with their versions as arguments that `check` accepts name them."""
    options = scan(args, 0, switches=SWITCHES, valued=_PACKAGE_FLAGS | {"--loglevel"})
    return options.values(*_PACKAGE_FLAGS) or list(args[options.end : options.end + 1])


def check(args: Sequence[str]) -> list[LaunchFinding]:
    """Return a finding for each argument before those of the server that is not known to be harmless."""
    found: list[LaunchFinding] = []
    packages: list[str] = []
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] != "--":
        flag, equals, value = args[at].partition("=")
        if flag in _PACKAGE_FLAGS:
            value_at = at if equals else at + 1
            spec = value if equals else (args[value_at] if value_at < len(args) else "")
            name = registry_name(spec)
            if name is None:
                found.append(
                    LaunchFinding(
                        index=at, message=f"'{flag}' {_NOT_REGISTRY}", advice="Name a package of the registry"
                    )
                )
            else:
                packages.append(name)
            at = value_at + 1
        elif flag == "--loglevel" and (value if equals else args[min(at + 1, len(args) - 1)]) in _LOG_LEVELS:
            at += 1 if equals else 2
        elif flag in SWITCHES and (not equals or value == "true"):
            at += 1
        else:
            found.append(_refuse_argument(args[at], at))
            takes_next = not equals and at + 1 < len(args) and not args[at + 1].startswith("-")
            at += 2 if takes_next else 1
    if at < len(args) and args[at] == "--":
        at += 1
    # After a refused flag it is uncertain which argument npx reads as the package.
    if found:
        return found
    return _check_server(args, at, packages)


def _refuse_argument(arg: str, index: int) -> LaunchFinding:
    name = arg.split("=", maxsplit=1)[0].lstrip("-")
    reason = _DANGERS.get(name)
    if reason is None and name.isalpha() and not arg.startswith("--"):
        reason = next((_DANGERS[letter] for letter in name if letter in _DANGERS), None)
    shown = quote_flag(arg)
    return LaunchFinding(
        index=index, message=f"{shown} {reason or _UNKNOWN}", advice="Remove it" if reason else _MOVE_ARGUMENTS
    )


def _check_server(args: Sequence[str], at: int, packages: Sequence[str]) -> list[LaunchFinding]:
    if at >= len(args):
        return [
            LaunchFinding(index=None, message="no package is named: npx would open a shell", advice="Name the package")
        ]
    word = args[at]
    name = registry_name(word)
    if packages:
        name = word if _COMMAND.fullmatch(word) else None
        if name is None or (find_program(name) is None and not is_from_package(name, packages)):
            message = "the command does not look like one of the package: npx would start any program of this machine"
            return [LaunchFinding(index=at, message=message, advice="Name the package's own command")]
    elif name is None:
        return [
            LaunchFinding(index=at, message=f"the package {_NOT_REGISTRY}", advice="Name a package of the registry")
        ]
    known = find_program(name)
    return (
        [LaunchFinding(index=at, message=describe_danger(known), advice="Name the server's package")] if known else []
    )


_FOLDER_VARIABLE = "HOLODECK_SERVER_FOLDER"
_SHELL_SETTING = "npm_config_script_shell"
_OFFLINE_SETTING = "npm_config_prefer_offline"
# What a user can say about it. npm reads names of variables in any case, with `-` or `_`.
_NETWORK_SETTINGS = frozenset({_OFFLINE_SETTING, "npm_config_prefer_online", "npm_config_offline"})
_NETWORK_FLAGS = ("--prefer-offline", "--prefer-online", "--offline")
_SHELL_SCRIPT = f"""#!/bin/sh
# npx starts servers with this shell, so that they run in the folder of their agent.
INIT_CWD=${_FOLDER_VARIABLE}
unset {_FOLDER_VARIABLE} {_SHELL_SETTING}
cd "$INIT_CWD" || exit 1
exec /bin/sh "$@"
"""
# npm looks for the root of a project upwards from its working directory, and stops at this file.
_PACKAGE_FILE = "{}\n"


def prepare_npx_folder() -> Path:
    """Create the folder, if needed, and return it. Raises OSError."""
    folder = user_cache_folder() / "npx"
    make_private_folder(folder)
    for name, text, mode in (("package.json", _PACKAGE_FILE, 0o600), ("shell", _SHELL_SCRIPT, 0o700)):
        _write_file(folder / name, text, mode)
    return folder


def build_npx_environment(
    env: Mapping[str, str], argv: Sequence[str], folder: Path, server_folder: Path
) -> dict[str, str]:
    """Return the environment of npx: its shell then starts the server in `server_folder`."""
    others = {name: value for name, value in env.items() if name.lower() != _SHELL_SETTING}
    has_setting = any(name.lower().replace("-", "_") in _NETWORK_SETTINGS for name in env)
    if not has_setting and not any(arg.startswith(_NETWORK_FLAGS) for arg in argv):
        others[_OFFLINE_SETTING] = "true"
    return {**others, _SHELL_SETTING: str(folder / "shell"), _FOLDER_VARIABLE: str(server_folder.absolute())}


def _write_file(path: Path, text: str, mode: int) -> None:
    if path.is_file() and path.read_text() == text:
        return
    with draft_of(path) as draft:
        draft.write_text(text)
        draft.chmod(mode)
        draft.replace(path)
