"""Variables that make a program load, fetch or start other code than the server's."""

from __future__ import annotations

from collections.abc import Mapping

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
# Both launchers have hundreds of settings, and new ones come with each version: what is not listed here is refused.
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


def variable_danger(name: str, command: CommandType | None) -> str | None:
    """What this variable would do to a server started by this command, or None when it only reaches the server."""
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
    setting = name.lower()  # npm reads its settings in any case, and `-` as `_`
    if setting.startswith("npm_config_"):
        return None if setting.removeprefix("npm_config_").replace("-", "_") in _NPM_HARMLESS else _NPM
    if name in {"PREFIX", "DESTDIR"}:
        return _NPM  # npx looks for the server's command in the `bin` folder there
    return _NPM if name.startswith("COREPACK_") else None
