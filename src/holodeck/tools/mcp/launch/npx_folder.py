"""The folder in which npx is started, so that the files of the agent's folder do not decide what it runs.

In the folder of an agent npx prefers `node_modules` and the `bin` of `package.json` to the named package, reads
`.npmrc`, and puts `node_modules/.bin` of that folder and of all above it on PATH, where a `node` or `sh` would be found
first. It takes all of that from its working directory, not from `--prefix`. So it is started in a folder of ours, with
a shell of ours that changes to the folder of the agent just before the server starts.

A package that npx has fetched before is started without a question to the registry, which takes more than a minute to
fail on a machine without a network. A newer version is fetched when the arguments name it, or say `--prefer-online`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holodeck.lib.system.files import draft_of, make_private_folder, user_cache_folder

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
