"""Programs that run whatever their arguments hold. As the server itself they would make every other rule pointless."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SHELLS = "ash bash busybox cmd csh dash elvish fish ksh mksh nu nushell powershell pwsh rbash sh tcsh toybox xonsh zsh"
_INTERPRETERS = (
    "awk bpython bun crystal deno elixir erl esno gawk ghci go graalpy groovy guile ipython irb janet java "
    "jbang jiti jq jruby julia lua luajit mawk node nodejs ocaml osascript perl php ptpython pypy pypyw python "
    "pythonw r racket raku rscript ruby scala sed sqlite swift tclsh ts-node ts-node-esm tsx vite-node zx "
)
_LAUNCHERS = (
    "at batch cargo cc chroot command concurrently conda coverage crontab cross-env cross-env-shell curl "
    "debugpy doas docker dotenv dotenv-cli dotenvx emacs env env-cmd eval exec expect fab find flock gcc gdb "
    "git hatch honcho invoke ionice kubectl ld lerna make mamba micromamba nc ncat nerdctl nice nodemon nohup "
    "nox npm npm-run-all npx nsenter nx parallel pdm pip pipenv pipx pixi pkexec pm2 pnpm pnpx podman poetry "
    "pytest rsync run-p run-s rustc rye scp screen script setarch setsid shx socat source ssh start-stop-daemon "
    " stdbuf strace su sudo systemd-run tar task taskset time timeout tmux tox turbo unshare uv uvx vi "
    "vim watch watchexec wget xargs yarn "
)
_FILE_RUNNERS = (  # `mcp run server.py` starts the file, not the package
    "celery fastmcp flask gunicorn hypercorn jupyter jupyter-lab marimo mcp nbconvert papermill streamlit uvicorn"
)
_SCOPED = frozenset({"@babel/node", "@dotenvx/dotenvx", "@oven/bun", "@swc-node/register", "@tsx/tsx"})
PROGRAMS = frozenset(f"{_SHELLS} {_INTERPRETERS} {_LAUNCHERS} {_FILE_RUNNERS}".split()) | _SCOPED

_VERSION = re.compile(r"[-_.]?v?\d[\d.]*$")
_SHORTEST_WORD = 3  # shorter ones ("ai", "db") are in half of all names


def find_program(name: str) -> str | None:
    """The program of our list that this name starts (`python3.12` starts `python`), or None."""
    known = name.lower().replace("_", "-").removesuffix(".exe")
    for candidate in (known, _VERSION.sub("", known)):
        if candidate in PROGRAMS:
            return candidate
    return None


def describe_danger(known: str) -> str:
    return f"'{known}' as the server would run whatever code or command its arguments hold"


def is_from_package(command: str, packages: Iterable[str]) -> bool:
    """Whether a command can be believed to come with one of the packages.

    Both launchers fall back to PATH when it does not, so that `--from anything some-program` starts any program of this
    machine. A server's command has a word of its package's name, or says `mcp`.
    """
    name = command.lower()
    if "mcp" in name:
        return True
    words = {word for package in packages for word in _long_words(package)}
    return any(_is_prefix_pair(word, own) for word in words for own in _long_words(name))


def _long_words(name: str) -> set[str]:
    return {word for word in re.findall(r"[a-z0-9]+", name.lower()) if len(word) >= _SHORTEST_WORD}


def _is_prefix_pair(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
