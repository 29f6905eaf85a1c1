"""Names that would make a launch run other code than the server.

`variable_danger` knows environment variables that make a program load, fetch or start other code. `find_program` and
`is_from_package` know programs (shells, interpreters, launchers) that run whatever their arguments contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from holodeck.models.tool import CommandType

_LOADER = "would make every program load other code first"
_RUNTIME = "would make {} load other code first"
_SEARCH = "would change which programs are found, and with it what runs"
_HOME = "would move the folder whose settings can name other code"
_PROGRAM = "names a program that others start"
_SHELL = "would run code in every shell that starts"
_NPM = "is a setting of npm that can name other code, another registry or another folder"
_UV = "is a setting of uv that can name other code, another index or another folder"
_DOCKER = "would have another Docker daemon, or other settings of docker, start the container"
_NO_NAME = "is not a name that a variable can have"

_PREFIXES: Mapping[str, str] = {
    "LD_": _LOADER,
    "DYLD_": _LOADER,
    "BASH_FUNC_": _SHELL,
    "GIT_CONFIG": "would give git settings, which can name programs to start",
    "CORECLR_": _RUNTIME.format(".NET"),
    "COR_": _RUNTIME.format(".NET"),
    "LUA_": _RUNTIME.format("Lua"),
}
_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("GCONV_PATH", "GLIBC_TUNABLES", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES"), _LOADER),
    **dict.fromkeys(("PATH", "PATHEXT", "COMSPEC", "ComSpec"), _SEARCH),
    **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_CACHE_HOME"), _HOME),
    **dict.fromkeys(("BASH_ENV", "ENV", "ZDOTDIR", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"), _SHELL),
    **dict.fromkeys(("NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE"), _RUNTIME.format("Node.js")),
    **dict.fromkeys(("BUN_OPTIONS", "BUN_INSPECT_PRELOAD"), _RUNTIME.format("Bun")),
    **dict.fromkeys(
        ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE"),
        _RUNTIME.format("Python"),
    ),
    **dict.fromkeys(
        ("PYTHONPYCACHEPREFIX", "PYTHONBREAKPOINT", "PYTHONINSPECT", "PYTHON_PRESITE", "VIRTUAL_ENV", "CONDA_PREFIX"),
        _RUNTIME.format("Python"),
    ),
    **dict.fromkeys(("PERL5OPT", "PERL5LIB", "PERLLIB", "PERL5DB"), _RUNTIME.format("Perl")),
    **dict.fromkeys(("RUBYOPT", "RUBYLIB", "GEM_HOME", "GEM_PATH", "BUNDLE_GEMFILE"), _RUNTIME.format("Ruby")),
    **dict.fromkeys(("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"), _RUNTIME.format("Java")),
    **dict.fromkeys(("PHPRC", "PHP_INI_SCAN_DIR"), _RUNTIME.format("PHP")),
    **dict.fromkeys(("R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "R_LIBS"), _RUNTIME.format("R")),
    "DOTNET_STARTUP_HOOKS": _RUNTIME.format(".NET"),
    **dict.fromkeys(
        ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER"),
        _PROGRAM,
    ),
    **dict.fromkeys(("GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR"), _PROGRAM),
    **dict.fromkeys(
        ("SHELL", "BROWSER", "EDITOR", "VISUAL", "PAGER", "LESSOPEN", "LESSCLOSE", "CC", "CXX", "MAKEFLAGS"),
        _PROGRAM,
    ),
}
# npm and uv have hundreds of settings, and more with each version. Settings that are not listed here are refused.
_NPM_HARMLESS = frozenset(
    {"yes", "loglevel", "update_notifier", "fund", "audit", "progress", "color", "prefer_offline", "prefer_online"}
    | {"offline", "fetch_retries", "fetch_timeout", "fetch_retry_mintimeout", "fetch_retry_maxtimeout", "maxsockets"}
    | {"proxy", "https_proxy", "http_proxy", "noproxy", "ignore_scripts", "heading", "unicode", "timing"}
)
_UV_HARMLESS = frozenset(
    {
        "NO_PROGRESS",
        "HTTP_TIMEOUT",
        "HTTP_RETRIES",
        "REQUEST_TIMEOUT",
        "NO_CACHE",
        "OFFLINE",
        "SYSTEM_CERTS",
        "NATIVE_TLS",
    }
    | {
        "PRERELEASE",
        "RESOLUTION",
        "EXCLUDE_NEWER",
        "COMPILE_BYTECODE",
        "LINK_MODE",
        "NO_CONFIG",
        "NO_ENV_FILE",
        "NO_BUILD",
    }
    | {"MANAGED_PYTHON", "NO_MANAGED_PYTHON", "PYTHON_PREFERENCE", "PYTHON_DOWNLOADS", "TORCH_BACKEND", "ISOLATED"}
    | {"CONCURRENT_DOWNLOADS", "CONCURRENT_BUILDS", "CONCURRENT_INSTALLS", "NO_SOURCES", "NO_BINARY"}
)
_DOCKER_HARMLESS = frozenset({"DOCKER_DEFAULT_PLATFORM", "DOCKER_API_VERSION", "DOCKER_CLI_HINTS"})

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
# `mcp run server.py` starts the file, not the package.
_FILE_RUNNERS = (
    "celery fastmcp flask gunicorn hypercorn jupyter jupyter-lab marimo mcp nbconvert papermill streamlit uvicorn"
)
_SCOPED = frozenset({"@babel/node", "@dotenvx/dotenvx", "@oven/bun", "@swc-node/register", "@tsx/tsx"})
PROGRAMS = frozenset(f"{_SHELLS} {_INTERPRETERS} {_LAUNCHERS} {_FILE_RUNNERS}".split()) | _SCOPED

_VERSION = re.compile(r"[-_.]?v?\d[\d.]*$")
# Characters of a word that can connect a command with its package; shorter words ("ai", "db") are in half of all names.
_MIN_WORD_CHARS = 3


def variable_danger(name: str, command: CommandType | None) -> str | None:
    """Return what this variable would do to a launch by this command, or None when only the server reads it."""
    if not name or "=" in name or "\0" in name:
        return _NO_NAME
    if name in _NAMES:
        return _NAMES[name]
    for prefix, reason in _PREFIXES.items():
        if name.startswith(prefix):
            return reason
    if command is CommandType.NPX:
        return _npm_danger(name)
    if command is CommandType.UVX:
        return _UV if name.startswith("UV_") and name.removeprefix("UV_") not in _UV_HARMLESS else None
    if command is CommandType.DOCKER:
        return _DOCKER if name.startswith("DOCKER_") and name not in _DOCKER_HARMLESS else None
    return None


def _npm_danger(name: str) -> str | None:
    # npm reads its settings in any case, and `-` as `_`.
    setting = name.lower()
    if setting.startswith("npm_config_"):
        return None if setting.removeprefix("npm_config_").replace("-", "_") in _NPM_HARMLESS else _NPM
    # npx looks for the server's command in the `bin` folder there.
    if name in {"PREFIX", "DESTDIR"}:
        return _NPM
    return _NPM if name.startswith("COREPACK_") else None


def find_program(name: str) -> str | None:
    """Return the program of `PROGRAMS` that this name starts (`python3.12` starts `python`), or None."""
    known = name.lower().replace("_", "-").removesuffix(".exe")
    for candidate in (known, _VERSION.sub("", known)):
        if candidate in PROGRAMS:
            return candidate
    return None


def describe_danger(known: str) -> str:
    return f"'{known}' as the server would run whatever code or command its arguments hold"


def is_from_package(command: str, packages: Iterable[str]) -> bool:
    """Return whether the name of a command makes it plausible that one of the packages installs it.

    npx and uvx fall back to PATH when the package does not, so that `--from anything some-program` would start any
    program of this machine. The command of a server shares a word with the name of its package, or contains `mcp`.
    """
    name = command.lower()
    if "mcp" in name:
        return True
    words = {word for package in packages for word in _long_words(package)}
    return any(_is_prefix_pair(word, own) for word in words for own in _long_words(name))


def _long_words(name: str) -> set[str]:
    return {word for word in re.findall(r"[a-z0-9]+", name.lower()) if len(word) >= _MIN_WORD_CHARS}


def _is_prefix_pair(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
