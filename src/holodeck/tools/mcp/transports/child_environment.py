"""Builds the environment of a server's process.

It inherits the variables that programs need on this machine and adds those of the tool. Other variables, which may
contain keys of the operator, are not inherited, nor are values with a login in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holodeck.lib.secret import Secret

_INHERITED = frozenset(
    {"PATH", "HOME", "LOGNAME", "USER", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "COLORTERM"}
    # A browser that a server opens needs the display.
    | {"NO_COLOR", "FORCE_COLOR", "DISPLAY", "WAYLAND_DISPLAY"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"}
    | {"DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_TLS"}
    | {"DOCKER_API_VERSION", "DOCKER_DEFAULT_PLATFORM", "DOCKER_CONTENT_TRUST", "DOCKER_CONTENT_TRUST_SERVER"}
    # `npx` or `uvx` on PATH may be a shim of a version manager, which needs these.
    | {"NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR", "FNM_MULTISHELL_PATH", "ASDF_DIR", "ASDF_DATA_DIR", "PYENV_ROOT"}
    | {"PYENV_VERSION", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "NIX_PATH", "NIX_SSL_CERT_FILE"}
)
_INHERITED_ON_WINDOWS = frozenset(
    {"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATH", "PATHEXT"}
    | {"PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "PSMODULEPATH"}
    | {"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERDOMAIN", "USERNAME", "USERPROFILE", "WINDIR"}
)
_INHERITED_IN_ANY_CASE = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_PREFIXES = ("LC_", "XDG_", "UV_")
_NPM_PREFIX = "npm_config_"
_SECRET_MARKS = (
    *("auth", "token", "password", "passwd", "publish", "username", "email", "otp", "_key"),
    *("secret", "credential", "cookie"),
)
# The value of an exported bash function, which a shell in the child would run.
_SHELL_FUNCTION = "() {"
# A login in the URL of a proxy, an index or a registry, at any position in a list of URLs. With `ssh://` a user name
# alone is no login. A proxy may be written without its scheme.
_LOGIN = re.compile(
    r"(?<![A-Za-z])(?!ssh:)[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#]*@|://[^\s/?#@]*:[^\s/?#]*@|^[^\s/:@]+:[^\s/@]+@"
    r"|[?&][^\s=&]*(?:token|key|secret|password|auth)[^\s=&]*=[^\s&]",
    re.IGNORECASE,
)


def child_environment(parent: Mapping[str, str], launch_env: Mapping[str, Secret]) -> dict[str, str]:
    """Return the environment of a server: the inherited part of `parent`, overridden by the variables of the tool."""
    child = {
        name: value
        for name, value in parent.items()
        if _is_inherited(name) and not value.startswith(_SHELL_FUNCTION) and not _LOGIN.search(value)
    }
    return child | {name: secret.reveal() for name, secret in launch_env.items()}


def withheld_variables(parent: Mapping[str, str], launch_env: Mapping[str, Secret]) -> list[str]:
    """Return the names of variables that are not inherited because they contain a login and the tool sets none."""
    return sorted(
        name
        for name, value in parent.items()
        if _is_inherited(name) and _LOGIN.search(value) and name not in launch_env
    )


def _is_inherited(name: str) -> bool:
    lower = name.lower()
    if name in _INHERITED or lower in _INHERITED_IN_ANY_CASE or name.upper() in _INHERITED_ON_WINDOWS:
        return True
    is_setting = name.startswith(_PREFIXES) or lower.startswith(_NPM_PREFIX)
    return is_setting and not any(mark in lower for mark in _SECRET_MARKS)
